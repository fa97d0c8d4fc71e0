"""Writes the sections of docs/clients.md that are made from the table of clients."""

from __future__ import annotations

from pathlib import Path

from mcp_workbench.clients.client_docs import START, sections

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "clients.md"


def document() -> str:
    """The document as it should be: what was written by hand, then the sections."""
    return DOCUMENT.read_text(encoding="utf-8").partition(START)[0] + sections()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
