"""Which small files can run code that was not there before."""

import pytest

from maskreg.checkpoint.files import can_run_code

AUTO_MAP = b'{"auto_map": {"AutoModel": "modeling_x.X"}}'
REMOTE = b'{"auto_map": {"AutoModel": "eve/code--modeling_x.X"}}'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("modeling_x.py", b""),
        ("SETUP.PY", b"print()"),
        ("config.json", AUTO_MAP),
        ("tokenizer_config.json", REMOTE),
        ("config.json", b'{"text_config": [{"auto_map": {"AutoConfig": "x.Y"}}]}'),
        ("config.json", b'{"custom_pipelines": {"p": {"impl": "x.Y"}}}'),
        ("config.json", b'{"\\u0061uto_map": {"AutoModel": "x.Y"}}'),
        ("config.json", b'{"x": NaN, "auto_map": {"AutoModel": "x.Y"}}'),
        ("config.json", b'{"auto_map": null, "auto_map": {"AutoModel": "x.Y"}}'),
        ("config.json", b"[" * 100 + b'"auto_map"' + b"]" * 100),
    ],
)
def test_code_and_what_names_it(name: str, data: bytes) -> None:
    assert can_run_code(name, data)
    assert not can_run_code(name, data, data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b'{"hidden_size": 64}'),
        ("config.json", b'{"auto_map": {}}'),
        ("config.json", b'{"note": "auto_map"}'),
        ("tokenizer.json", b'{"vocab": {"\\u0120the": 1}}'),
        ("chat_template.jinja", b"{{ auto_map }}"),
        ("LICENSE", b"auto_map"),
        ("vocab.txt", b"import os"),
    ],
)
def test_everything_else(name: str, data: bytes) -> None:
    assert not can_run_code(name, data)


def test_the_same_code_under_another_configuration_is_known() -> None:
    wider = AUTO_MAP.replace(b"}}", b'}, "hidden_size": 64}')
    assert not can_run_code("config.json", wider, AUTO_MAP)
    assert can_run_code("config.json", REMOTE, AUTO_MAP)
    assert can_run_code("config.json", AUTO_MAP, b"{}")
    assert can_run_code("modeling_x.py", b"1", b"2")
