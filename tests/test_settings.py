"""Settings: which source wins, what is refused, and edits that keep a file as people wrote it."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest
from maskreg_cli.next_step import next_step

from maskreg.errors import ConfigError
from maskreg.settings import Remote, Settings, StoreOptions, add_remote, remove_remote, set_value
from maskreg.settings.credentials import known_services, remember

CONFIG = """\
# where the team keeps things
default_remote = "lab"   # the fast one
jobs = 4

[remotes.lab]
url = "s3://updates/team"   # bucket
endpoint = "https://s3.example.org"
catalog = "postgresql+psycopg://maskreg@db.example.org/maskreg"

[remotes.disk]
url = "/srv/maskreg"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


def load(path: Path, env: dict[str, str] | None = None) -> Settings:
    return Settings.load(env={"MASKREG_CONFIG": str(path), **(env or {})})


def test_works_with_nothing_configured(tmp_path: Path) -> None:
    settings = load(tmp_path / "absent.toml")
    assert settings.home.is_absolute()
    assert (settings.default_remote, settings.jobs, settings.offline, dict(settings.remotes)) == ("", 8, False, {})
    assert {origin for _, _, origin in settings.items()} == {"default"}
    assert not (tmp_path / "absent.toml").exists()


def test_the_environment_wins_over_the_file_over_the_default(config: Path) -> None:
    assert load(config).jobs == 4
    assert load(config, {"MASKREG_JOBS": "5"}).jobs == 5
    settings = load(config, {"MASKREG_JOBS": "5", "MASKREG_OFFLINE": "yes"})
    origins = {key: (value, origin) for key, value, origin in settings.items()}
    assert origins["jobs"] == ("5", "MASKREG_JOBS")
    assert origins["offline"] == ("True", "MASKREG_OFFLINE")
    assert origins["default_remote"] == ("lab", str(config))
    assert origins["remotes.lab.endpoint"] == ("https://s3.example.org", str(config))
    assert origins["remotes.lab.addressing"] == ("auto", "default")
    assert origins["home"][1] == "default"


def test_a_list_of_projects_is_a_list_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    set_value(config, "immutable_projects", "paper, team")
    assert config.read_text() == 'immutable_projects = ["paper", "team"]\n'
    assert ("immutable_projects", "paper,team", str(config)) in load(config).items()
    assert load(config, {"MASKREG_IMMUTABLE_PROJECTS": "lab"}).immutable_projects == ("lab",)
    set_value(config, "immutable_projects", "")
    assert load(config).immutable_projects == ()


def test_home_is_absolute_and_knows_the_tilde(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load(config, {"MASKREG_HOME": "~/registry"}).home == Path("/home/someone/registry")
    assert load(config, {"MASKREG_HOME": "here"}).home == Path.cwd() / "here"


def test_which_remote_is_meant(config: Path) -> None:
    set_value(config, "default_remote", "")
    with pytest.raises(ConfigError, match="disk, lab") as caught:
        load(config).remote()
    assert next_step(caught.value) == "maskreg config set default_remote lab"
    with pytest.raises(ConfigError, match="'moon'"):
        load(config).remote("moon")
    with pytest.raises(ConfigError, match=r"^MASKREG_REMOTE: .*'moon'"):
        load(config, {"MASKREG_REMOTE": "moon"}).remote()
    assert load(config).meant_remote == ""
    remove_remote(config, "lab")
    assert load(config).remote().name == load(config).meant_remote == "disk"
    remove_remote(config, "disk")
    with pytest.raises(ConfigError, check=lambda error: error.facts["new_remote"] == "NAME"):
        load(config).remote()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = ", "not TOML"),
        ("color = 1", "unknown key 'color'"),
        ('jobs = "4"', "jobs: '4' is not of type int"),
        ("jobs = true", "jobs: True is not of type int"),
        ("jobs = 0", "jobs: '0' is not a number from 1 to 256"),
        ('immutable_projects = "paper"', "immutable_projects: 'paper' is not of type list"),
        ('immutable_projects = ["A b"]', "immutable_projects: 'A b' is not a project"),
        ("offline = 1", "offline: 1 is not of type bool"),
        ('home = "here"', "home: 'here' is not an absolute path"),
        ('default_remote = "a b"', "default_remote: 'a b' is not a name"),
        ('default_remote = "local"', "'local' means the registry of this machine"),
        ('[remotes.local]\nurl = "s3://x"', "'local' means the registry of this machine"),
        ("remotes = 3", "remotes: tables"),
        ("[remotes]\nlab = 3", "remotes.lab: a table"),
        ("[remotes.lab]", "remotes.lab: url is missing"),
        ('[remotes."a.b"]\nurl = "s3://x"', "'a.b' is not a name"),
        ('[remotes.lab]\nurl = "s3://x"\nregio = "eu"', "remotes.lab: unknown key 'regio'"),
        ('[remotes.lab]\nurl = "s3://x"\nregion = 3', "remotes.lab.region: 3 is not of type str"),
        ('[remotes.lab]\nurl = "s3://x"\naddressing = "none"', "remotes.lab.addressing: 'none' is none of auto"),
        ('[remotes.lab]\nurl = "some/where"', "neither a URL nor an absolute path"),
        ('[remotes.lab]\nurl = "s3://key:s3cr3t@x"', "remotes.lab.url: a URL must not hold a password"),
        (
            '[remotes.lab]\nurl = "s3://x"\ncatalog = "postgresql+psycopg://u:s3cr3t@h/d"',
            "lab.catalog: a URL must not hold a password",
        ),
        (
            '[remotes.lab]\nurl = "s3://x"\ncatalog = "postgresql+psycopg://h/d?password=s3cr3t"',
            "lab.catalog: a URL must not hold a password",
        ),
        ('[remotes.lab]\nurl = "s3://x"\ncatalog = "sqlite:///x"', "lab.catalog: not the URL of a PostgreSQL database"),
    ],
)
def test_a_wrong_file_is_refused_naming_file_and_key(config: Path, text: str, says: str) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert caught.value.message.startswith(str(config))
    assert says in caught.value.message
    assert "s3cr3t" not in caught.value.message + caught.value.hint


def test_a_wrong_variable_is_named(config: Path) -> None:
    with pytest.raises(ConfigError, match="MASKREG_JOBS: 'many'"):
        load(config, {"MASKREG_JOBS": "many"})


def test_edits_keep_comments(config: Path) -> None:
    set_value(config, "jobs", "12")
    set_value(config, "remotes.lab.region", "eu-north-1")
    text = config.read_text()
    assert "# where the team keeps things" in text
    assert "# the fast one" in text
    assert "# bucket" in text
    settings = load(config)
    assert settings.jobs == 12
    assert settings.remotes["lab"].options.region == "eu-north-1"
    set_value(config, "remotes.lab.region", "")
    set_value(config, "jobs", "4")
    assert config.read_text() == CONFIG


def test_edits_at_one_time_are_all_kept(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKREG_CONFIG", str(config))
    names = [f"r{number}" for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        for name in names:
            pool.submit(add_remote, config, Remote(name, "s3://b"))
            pool.submit(remember, f"https://{name}", "token")
    assert {"lab", "disk", *names} == set(load(config).remotes)
    assert len(known_services()) == len(names)


def test_adding_and_removing_a_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep" / "config.toml"
    lab = Remote("lab", "s3://b/p", "", StoreOptions(endpoint="http://localhost:9000", checksums="when_supported"))
    add_remote(path, lab)
    assert load(path).remotes == {"lab": lab}
    monkeypatch.chdir(tmp_path)
    add_remote(path, Remote("disk", "shared"))
    assert load(path).remotes["disk"].url == str(tmp_path / "shared")
    before = path.read_text()
    for wrong in (lab, Remote("a b", "s3://x"), Remote("new", "s3://k:pw@x")):
        with pytest.raises(ConfigError):
            add_remote(path, wrong)
    assert path.read_text() == before
    set_value(path, "default_remote", "lab")
    remove_remote(path, "lab")
    assert set(load(path).remotes) == {"disk"}
    assert load(path).default_remote == ""
    with pytest.raises(ConfigError, match="'lab'"):
        remove_remote(path, "lab")


SECRETS = [
    "u:s3cr3t@h/d", "u%3As3cr3t@h/d", "u%253As3cr3t@h/d", "u:s3/cr3t@h/d", "u:s3#cr3t@h/d", "u:s3?cr3t@h/d",
    ":s3cr3t@h/d", "u%3Dpassword%3Ds3cr3t@h/d", "h/d%20password%3Ds3cr3t", "h/d%2520password%253Ds3cr3t",
    "h/d#s3cr3t", "h/d?password=s3cr3t", "h/d?PassWord=s3cr3t", "h/d?p%61ssword=s3cr3t", "h/d?sslpassword=s3cr3t",
    "h/d?pwd=s3cr3t", "h/d?options=password%3Ds3cr3t", "h/d?options=-c%20a.password%253Ds3cr3t", "h/d?opt%69ons=x",
    "h/d?dbname=s3cr3t", "h/d?dbname=postgresql://u:s3cr3t@h", "h/d?s3cr3t", "h/d?host=a&host=b%20password=s3cr3t",
    "h/d?application_name=password%3Ds3cr3t", "h/d?application_name=password%253Ds3cr3t", "h/d?host=u:s3cr3t@h",
    "h/d?sslmode=require&application_name=x%26password%3Ds3cr3t", "h/d?sslmode=a;password=s3cr3t",
]  # fmt: skip
"""What follows ``postgresql://`` where a user tries to store a password."""


STORES = (
    *("s3://k:s3cr3t@b/p", "s3://k%3As3cr3t%40b/p", "s3://k:s3/cr3t@b/p", "s3://b?token=s3cr3t", "s3://b/p#s3cr3t"),
    *("https://s3cr3t@h/", "https://h/?X-Amz-Signature=s3cr3t", "https://h:s3cr3t/", "file:///p?password=s3cr3t"),
)
CATALOGS = [f"{scheme}://{rest}" for scheme in ("postgresql", "postgresql+psycopg") for rest in SECRETS]


@pytest.mark.parametrize(("key", "url"), [*product(("url", "endpoint"), STORES), *product(["catalog"], CATALOGS)])
def test_no_part_of_a_url_carries_a_secret(config: Path, key: str, url: str) -> None:
    with pytest.raises(ConfigError, match=rf"remotes\.lab\.{key}: ") as caught:
        set_value(config, f"remotes.lab.{key}", url)
    assert "s3cr3t" not in caught.value.message + caught.value.hint
    assert config.read_text() == CONFIG


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("catalog", "postgresql://h/d"),
        ("catalog", "postgresql:///d?host=/run/postgresql&passfile=/home/ada/.pgpass"),
        ("catalog", "postgresql+psycopg://ada%40corp@[::1]:5432/mask-reg?sslmode=verify-full&sslrootcert=/etc/ca.pem"),
        ("catalog", "postgresql://ada@h/d?connect_timeout=5&application_name=mask%20reg&service=team"),
        ("url", "s3://my.bucket-1/team/a=b/masks@v2"),
        ("url", "file:///srv/with%20space/masks"),
        ("endpoint", "http://127.0.0.1:9000"),
        ("endpoint", "https://[::1]:9000/s3"),
    ],
)
def test_a_url_without_a_secret_is_taken(config: Path, key: str, url: str) -> None:
    set_value(config, f"remotes.lab.{key}", url)
    assert dict(load(config).remotes["lab"].items())[key] == url


def test_a_link_stays_a_link_and_the_mode_stays(config: Path, tmp_path: Path) -> None:
    config.chmod(0o600)
    link = tmp_path / "link.toml"
    link.symlink_to(config)
    set_value(link, "jobs", "2")
    assert link.is_symlink()
    assert load(config).jobs == 2
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
