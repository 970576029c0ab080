"""Write ``docs/glossary.md``: ``python -m scripts.glossary``."""

from __future__ import annotations

from pathlib import Path

from maskreg.analysis.glossary.page import page

if __name__ == "__main__":
    (Path(__file__).parent.parent / "docs" / "glossary.md").write_text(page(), encoding="utf-8")
