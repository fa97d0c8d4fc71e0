"""docs/start/clients.md is made from the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.setup.clients.table import clients
from scripts.write_client_docs import DOCUMENT, document


@pytest.mark.requirement("project.documentation")
def test_document_matches_the_table() -> None:
    assert DOCUMENT.read_text("utf-8") == document(), "run python -m scripts.write_client_docs"
    assert all(f"\n## {client.title}\n" in document() for client in clients().values())


def test_the_readme_counts_the_clients() -> None:
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())
    every = clients().values()
    assert f"`init` reads the files of [{len(every)} clients](docs/start/clients.md)" in readme
    assert f"`install` knows {sum(not client.import_only for client in every)} of them" in readme
