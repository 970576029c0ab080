"""The recipe of CONTRIBUTING for a column to search by: one line in the table of columns is enough."""

from __future__ import annotations

import subprocess
import sys

WALK = """
import importlib.machinery, sys

LINE = '    nnz: int = _of_artifact('
NEW = '    ffn_energy: float | None = _of_artifact("Energy of the FFN.", "range", lambda of: of.totals.ffn.energy_lift)'

class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        text = self.get_data(self.path).decode()
        assert LINE in text
        return compile(text.replace(LINE, NEW + chr(10) + LINE), self.path, "exec")

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname != "maskreg.catalog.query":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        spec.loader = Loader(fullname, spec.origin)
        return spec

sys.meta_path.insert(0, Finder)

from maskreg.catalog import Query, open_catalog
from tests.catalog.conftest import digest, entry, manifest

with open_catalog("sqlite://") as catalog:
    catalog.put_artifact(digest(1), manifest())
    catalog.put_ref(entry("a", digest(1)))
    (row,) = catalog.search(Query(ffn_energy=(1, 2), sort="ffn_energy"))
    assert row.ffn_energy == manifest().totals.ffn.energy_lift, row
    assert catalog.search(Query(ffn_energy=(2, 3))) == []

from maskreg.service.api import artifacts, models
assert "ffn_energy" in models.Name.model_fields
assert artifacts.Filters(ffn_energy="0.5..", sort="ffn_energy").query().ranges == {"ffn_energy": (0.5, float("inf"))}

from maskreg_cli.list import FIELDS
from maskreg_cli.main import main
assert "ffn_energy" in FIELDS
main(["list", "--help"])
"""


def test_a_column_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"--ffn-energy LO..HI", "ffn_energy,"} <= {*done.stdout.split("  "), *done.stdout.split()}
