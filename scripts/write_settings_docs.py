"""Write the tables of settings in docs/reference/configuration.md anew. `python -m scripts.write_settings_docs`"""

from __future__ import annotations

from pathlib import Path

from scripts.settings_docs import with_tables

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
