"""Write what is made from the tables of clients into docs/start/clients.md and docs/reference/client-behaviour.md.

`python -m scripts.write_client_docs`
"""

from __future__ import annotations

from pathlib import Path

from scripts import behaviour_docs, client_docs

DOCS = Path(__file__).resolve().parent.parent / "docs"
DOCUMENT = DOCS / "start" / "clients.md"
BEHAVIOUR = DOCS / "reference" / "client-behaviour.md"


def document() -> str:
    """The document as it should be: what was written by hand, then the sections."""
    return DOCUMENT.read_text(encoding="utf-8").partition(client_docs.START)[0] + client_docs.sections()


def behaviour_document() -> str:
    """The same for how clients behave."""
    return BEHAVIOUR.read_text(encoding="utf-8").partition(behaviour_docs.START)[0] + behaviour_docs.table()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
    BEHAVIOUR.write_text(behaviour_document(), encoding="utf-8")
