"""Write the table of rooms into ``CONTRIBUTING.md``: ``python -m scripts.rooms``."""

from __future__ import annotations

from tests.repository import ROOT, TABLE, table

if __name__ == "__main__":
    path = ROOT / "CONTRIBUTING.md"
    path.write_text(TABLE.sub(lambda _: table(), path.read_text(encoding="utf-8")), encoding="utf-8")
