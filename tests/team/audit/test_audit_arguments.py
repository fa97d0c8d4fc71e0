"""What the audit says of arguments: nothing that a caller sends can make them vanish without a trace."""

from __future__ import annotations

import json

import pytest
from msgspec.json import encode

from mcp_workbench.engine.config.redact import MASK, Redactor
from mcp_workbench.team.audit.audit_arguments import (
    MAX_AUDITED_ITEMS,
    UNREADABLE_ARGUMENTS,
    Arguments,
    described_arguments,
)


def _described(arguments: str, how: Arguments = "redacted") -> object:
    found = described_arguments(f'{{"name":"run","arguments":{arguments}'.encode(), how, Redactor(("hidden-value",)))
    encode(found)
    return found


def test_values_are_shown_without_secrets_and_shapes_without_values() -> None:
    arguments = '{"path":"/tmp","password":"x","note":"has hidden-value in it","n":[1,2.5,true,null]}'
    assert _described(arguments) == {
        "path": "/tmp",
        "password": MASK,
        "note": f"has {MASK} in it",
        "n": [1, 2.5, True, None],
    }
    assert _described(arguments, "shape") == {
        "path": "string of 4",
        "password": "string of 1",
        "note": "string of 22",
        "n": "4 of boolean, null, number",
    }


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
def test_numbers_that_no_reader_takes_hide_nothing(number: str) -> None:
    assert _described(f'{{"cmd":"rm","pad":{number}}}', "shape") == {"cmd": "string of 2", "pad": "number"}
    shown = _described(f'{{"cmd":"rm","pad":{number}}}')
    assert isinstance(shown, dict)
    assert shown["cmd"] == "rm"
    assert number.startswith(shown["pad"].rstrip("…"))


@pytest.mark.parametrize("how", ["shape", "redacted"])
def test_members_of_the_same_name_are_all_shown(how: Arguments) -> None:
    shown = _described('{"x":1,"x":"two"}', how)
    assert isinstance(shown, dict)
    assert list(shown) == ["x", "x (again)"]
    twice = _described('{"x":1},"arguments":{"y":2}', how)
    assert isinstance(twice, list)
    assert [list(each) for each in twice] == [["x"], ["y"]]


def test_omitted_members_and_items_are_counted() -> None:
    many = {f"k{number}": number for number in range(MAX_AUDITED_ITEMS + 3)}
    shown = _described(json.dumps(many))
    assert isinstance(shown, dict)
    assert len(shown) == MAX_AUDITED_ITEMS + 1
    assert shown["…"] == "3 more"
    listed = _described(json.dumps({"all": list(many)}))
    assert isinstance(listed, dict)
    assert listed["all"][-1] == "… 3 more"


def test_half_a_surrogate_pair_is_written_out() -> None:
    assert _described('{"text":"a\\ud800b"}') == {"text": "a\\ud800b"}


def test_arguments_that_cannot_be_read_are_reported_as_unreadable() -> None:
    assert _described("[" * 100_000 + "]" * 100_000) == UNREADABLE_ARGUMENTS
    assert _described("{oops}") == UNREADABLE_ARGUMENTS
    assert described_arguments(b'{"name":"run"', "redacted", Redactor(())) is None
