"""The tables of settings in the documentation are made from their declarations."""

from __future__ import annotations

import pytest

from scripts.settings_docs import MORE, groups, listed, with_tables
from scripts.write_reference_docs import AUDIT
from scripts.write_reference_docs import SETTINGS as DOCUMENT

# Explained in prose: the servers themselves.
ROOTS = {"file.toolboxes", "file.mcpServers", "file.servers", "file.context_servers"}


@pytest.mark.requirement("project.documentation")
def test_tables_match_the_declarations() -> None:
    document = DOCUMENT.read_text("utf-8")
    assert document == with_tables(document), "run python -m scripts.write_reference_docs"
    guide = AUDIT.read_text("utf-8")
    assert guide == with_tables(guide) and "audit.keepFiles" in listed(guide)
    assert "| `timeout` | seconds | `120` | How long a call may take, in seconds. |" in document


def test_every_setting_is_in_one_table() -> None:
    ignored = "Accepted and ignored.", "Not supported"
    settings = [
        f"{group}.{name}"
        for group, schema in groups().items()
        for name, described in schema["properties"].items()
        if not described["description"].endswith(ignored[0]) and not described["description"].startswith(ignored[1])
    ]
    assert len(settings) > 100
    assert sorted(listed(DOCUMENT.read_text("utf-8"))) == sorted(set(settings) - ROOTS)


def test_every_manual_addition_belongs_to_a_setting() -> None:
    places = {f"{group}.{name}" for group, schema in groups().items() for name in schema["properties"]}
    assert MORE.keys() <= places


def test_a_table_that_is_out_of_date_is_replaced() -> None:
    before = "Text.\n\n<!-- settings of server: args, timeout -->\n\n| key |\n|---|\n| `old` |\n\nMore | text.\n"
    assert with_tables(before) == (
        "Text.\n\n<!-- settings of server: args, timeout -->\n\n"
        "| key | value | default | what it is |\n|---|---|---|---|\n"
        "| `args` | list of strings | `[]` | The program's arguments. |\n"
        "| `timeout` | seconds | `120` | How long a call may take, in seconds. |\n\nMore | text.\n"
    )
