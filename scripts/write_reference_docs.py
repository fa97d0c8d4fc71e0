"""Write the tables of docs/reference/configuration.md and docs/reference/cli.md anew, from what the program declares.

`python -m scripts.write_reference_docs`
"""

from __future__ import annotations

from pathlib import Path

from scripts import cli_docs, settings_docs

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
SETTINGS = REFERENCE / "configuration.md"
COMMANDS = REFERENCE / "cli.md"


if __name__ == "__main__":
    SETTINGS.write_text(settings_docs.with_tables(SETTINGS.read_text(encoding="utf-8")), encoding="utf-8")
    COMMANDS.write_text(cli_docs.with_tables(COMMANDS.read_text(encoding="utf-8")), encoding="utf-8")
