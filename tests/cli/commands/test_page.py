"""`mcp-workbench page` asks the workbench that is meant, and opens what it answers."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import command

ADDRESS = "http://127.0.0.1:8421/login?code=abc"
ONE = {"pid": 1, "config": "/one.json", "serving": "stdio"}
TWO = {"pid": 2, "config": None, "serving": "shared", "clients": [{"config": "/two.json"}]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    async def ask(pid: int, port: int, connect: object) -> Any:
        found.append((pid, port))
        return {"address": ADDRESS}

    monkeypatch.setattr("mcp_workbench.cli.commands.page._ask", ask)
    return found


def running(monkeypatch: pytest.MonkeyPatch, *statuses: dict[str, Any]) -> None:
    async def workbenches() -> list[dict[str, Any]]:
        return list(statuses)

    monkeypatch.setattr("mcp_workbench.cli.commands.page.running_workbenches", workbenches)


def test_the_address_is_opened_and_its_code_not_printed(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    opened: list[str] = []

    def open_(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", open_)
    running(monkeypatch, TWO)
    done = command(monkeypatch, "page")
    assert (done.status, opened, asked) == (0, [ADDRESS], [(2, 0)])
    assert done.stdout == "opened http://127.0.0.1:8421/ in the browser\n"


def test_without_a_browser_the_address_is_printed(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    running(monkeypatch, ONE, TWO)
    done = command(monkeypatch, "page", "--no-browser", "--config", "/two.json", "--port", "9000")
    assert (done.status, done.stdout, asked) == (0, ADDRESS + "\n", [(2, 9000)])
    assert command(monkeypatch, "page", "--no-browser", "--pid", "1").status == 0
    assert asked[1:] == [(1, 0)]


def test_of_several_one_has_to_be_named(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    running(monkeypatch, ONE, TWO)
    done = command(monkeypatch, "page")
    assert done.status == 2 and "process 1 (/one.json); process 2 (shared)" in done.stderr and not asked


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pid", "7"), "no running workbench matches"),
        (("--port", "0"), "is not a number from 1 to 65,535"),
        (("--port", "http"), "is not a number"),
    ],
)
def test_mistakes_are_reported(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], words: tuple[str, ...], said: str
) -> None:
    running(monkeypatch, ONE)
    done = command(monkeypatch, "page", *words)
    assert done.status == 2 and said in done.stderr and not asked


def test_without_a_workbench_there_is_no_page(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    running(monkeypatch)
    done = command(monkeypatch, "page")
    assert done.status == 2 and "no workbench is running" in done.stderr


def test_why_it_opened_no_page_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(pid: int, port: int, connect: object) -> Any:
        return {"error": "its configuration says no"}

    monkeypatch.setattr("mcp_workbench.cli.commands.page._ask", ask)
    running(monkeypatch, ONE)
    done = command(monkeypatch, "page")
    assert done.status == 1 and "opened no page: its configuration says no" in done.stderr


def test_without_clients_the_ways_to_connect_are_those_of_the_users_own_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[Any] = []

    async def ask(pid: int, port: int, connect: object) -> Any:
        given.append(connect)
        return {"address": ADDRESS}

    monkeypatch.setattr("mcp_workbench.cli.commands.page._ask", ask)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    running(monkeypatch, {"pid": 2, "config": None, "serving": "shared", "clients": []})
    assert command(monkeypatch, "page", "--no-browser").status == 0
    own = tmp_path / "mcp-workbench" / "workbench-config.json"
    own.parent.mkdir()
    own.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    assert command(monkeypatch, "page", "--no-browser").status == 0
    # It cannot be used, which is reported elsewhere.
    own.write_text("{}")
    assert command(monkeypatch, "page", "--no-browser").status == 0
    without, with_own, _ = given
    assert without == []
    assert {"cursor", "claude-code"} <= {each["client"] for each in with_own}
