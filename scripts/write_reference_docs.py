"""Write the tables of docs/reference anew, and that of docs/guides/audit.md, from what the program declares and says.

`python -m scripts.write_reference_docs`
"""

from __future__ import annotations

from pathlib import Path

from scripts import cli_docs, error_docs, settings_docs
from scripts.error_texts import COMPOSED, error_texts

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
SETTINGS = REFERENCE / "configuration.md"
COMMANDS = REFERENCE / "cli.md"
ERRORS = REFERENCE / "errors.md"
AUDIT = REFERENCE.parent / "guides" / "audit.md"


if __name__ == "__main__":
    for each in (SETTINGS, AUDIT):
        each.write_text(settings_docs.with_tables(each.read_text(encoding="utf-8")), encoding="utf-8")
    errors = error_docs.with_tables(ERRORS.read_text(encoding="utf-8"), error_texts(), COMPOSED)
    ERRORS.write_text(errors, encoding="utf-8")
    COMMANDS.write_text(cli_docs.with_tables(COMMANDS.read_text(encoding="utf-8")), encoding="utf-8")
