"""What users need, in files of theirs; and from the first search to the next client, through the whole workbench."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app import use_memory
from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
from mcp_workbench.app.use_memory import MAX_CLIENTS, MAX_NEEDS, UseMemory, add, forget, proposed_pins, read, use_file
from mcp_workbench.cli.main import main
from mcp_workbench.engine.face import use
from mcp_workbench.team.identity.named_keys import KeyFolder, KeysInForce
from mcp_workbench.team.identity.named_keys import folder as key_folder
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with
from tests.support.processes import eventually

DAY = 86_400
NEED = "nudge people that owe us money"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "use" / "own.json"


def needs(path: Path) -> list[tuple[tuple[str, ...], str]]:
    return [(words, tool) for _, words, tool in read(str(path))["needs"]]


# ── files ──


def test_learned_needs_are_private_to_the_user(file: Path) -> None:
    add(str(file), [(("nudg", "owe"), "box/crm/remind")], [["box/crm/remind"]])
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert needs(file) == [(("nudg", "owe"), "box/crm/remind")]
    file.chmod(0o644)
    assert needs(file) == [], "others may have written it"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"needs": 1, "clients": []}', b'{"needs": [[1]], "clients": []}']
)
def test_a_damaged_file_is_as_good_as_none(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    file.chmod(0o600)
    assert read(str(file)) == {"needs": [], "clients": []}
    add(str(file), [(("a",), "t")], [])
    assert needs(file) == [(("a",), "t")]


def test_a_link_is_not_followed(file: Path, tmp_path: Path) -> None:
    add(str(tmp_path / "elsewhere.json"), [(("a",), "t")], [])
    file.parent.mkdir()
    file.symlink_to(tmp_path / "elsewhere.json")
    assert needs(file) == []


def test_the_oldest_needs_make_room_and_known_ones_are_renewed(file: Path) -> None:
    add(str(file), [((f"word{n}",), "t") for n in range(MAX_NEEDS)], [])
    add(str(file), [(("word0",), "t"), (("new",), "t")], [["t"]] * (MAX_CLIENTS + 5))
    found = needs(file)
    assert len(found) == MAX_NEEDS and (("word0",), "t") in found and (("word1",), "t") not in found
    assert found[-2:] == [(("word0",), "t"), (("new",), "t")]
    assert len(read(str(file))["clients"]) == MAX_CLIENTS


def test_needs_expire(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(str(file), [(("old",), "t")], [["t"]])
    later = time.time() + (use_memory.MAX_USE_DAYS + 1) * DAY
    monkeypatch.setattr(time, "time", lambda: later)
    assert read(str(file)) == {"needs": [], "clients": []}


def test_forgetting(file: Path) -> None:
    assert forget(str(file)) is False
    add(str(file), [(("a",), "t")], [])
    assert forget(str(file)) is True and needs(file) == []


def test_each_user_has_a_file(tmp_path: Path) -> None:
    files = {use_file(principal, str(tmp_path)) for principal in ("", "local", "ada", "https://idp#bob", "../x")}
    assert len(files) == 4 and all(Path(str(each)).parent == tmp_path for each in files)


def test_pins_are_proposed_for_tools_most_clients_used() -> None:
    clients = [(1, ["a", "b"])] * 3 + [(1, ["a"])] * 3
    assert proposed_pins({"clients": clients}, 5, 0.6) == [("a", 6, 6)]
    assert proposed_pins({"clients": clients}, 5, 0.5) == [("a", 6, 6), ("b", 3, 6)]
    assert proposed_pins({"clients": clients[:4]}, 5, 0.5) == [], "too few to tell"


async def test_unwritten_use_counts(tmp_path: Path) -> None:
    memory = UseMemory(str(tmp_path))
    memory.learn("ada", ("nudg",), "t")
    assert memory.needs_of("ada") and not memory.needs_of("bob")
    memory.end("ada", ["t"])
    await memory.close()
    assert read(str(use_file("ada", str(tmp_path))))["clients"] and not os.path.exists(str(use_file("", str(tmp_path))))


# ── through the workbench ──


def boxes() -> dict[str, dict[str, Server]]:
    tools = [
        tool("list_invoices", "List invoices that are unpaid, of people who owe money."),
        tool("send_reminder", "Send a dunning letter."),
        tool("find_customer", "Find a customer by name."),
    ]

    def answer(name: str, arguments: Any) -> Any:
        if name == "find_customer":
            return {"content": [{"type": "text", "text": "no such customer"}], "isError": True}
        return {"content": [{"type": "text", "text": name}]}

    return {"office": {"crm": Server(*tools, answer=answer)}}


async def search(at: ConnectedClient, query: str = NEED) -> list[str]:
    return [str(each["name"]) for each in (await at.open(query=query))["structuredContent"]["tools"]]


def own_file() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "mcp-workbench" / "use" / "own.json"


LOCAL = {"learns": True}
REMINDER = "office/crm/send_reminder"


async def test_next_client_finds_the_tool_that_served_the_need(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), options=LOCAL) as at:
        before = await at.said(query=NEED)
        assert await search(at) == ["list_invoices"]
        await at.use(REMINDER, {"to": "secret@example.com"})
        assert await at.said(query=NEED) == before, "the same bytes as long as this client is connected"
        listed = await at.client.request("tools/list")
    written = json.loads(own_file().read_text())
    (need,) = written["needs"]
    assert need[2] == REMINDER and written["clients"][0][1] == [REMINDER]
    assert "secret" not in own_file().read_text() and "nudge people" not in own_file().read_text()
    async with workbench_with(tmp_path, boxes(), options=LOCAL) as at:
        assert await search(at) == ["list_invoices", "send_reminder"]
        assert await at.client.request("tools/list") == listed, "the two tools are the same"


async def test_a_call_that_failed_or_came_too_late_teaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workbench_with(tmp_path, boxes(), options=LOCAL) as at:
        await search(at)
        await at.use("office/crm/find_customer")
        await at.use(REMINDER)
        await search(at, "write to debtors")
        monkeypatch.setattr(use, "NEED_TIMEOUT", -1.0)
        await at.use(REMINDER)
    assert json.loads(own_file().read_text())["needs"] == []


async def test_only_the_call_after_a_search_counts(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(), options=LOCAL) as at:
        await search(at)
        await at.use(REMINDER)
        await at.use("office/crm/list_invoices")
        # A tool that was called before can serve another need.
        await search(at, "write to debtors")
        await at.use(REMINDER)
    written = json.loads(own_file().read_text())
    assert [tool for _, _, tool in written["needs"]] == [REMINDER, REMINDER]


@pytest.mark.parametrize(
    ("options", "settings", "learns"),
    [
        pytest.param({"learns": True}, {"learn": False}, False, id="refused"),
        pytest.param({"learns": False}, {}, False, id="over HTTP"),
        pytest.param({"learns": False}, {"learn": True}, True, id="over HTTP with consent"),
        pytest.param({}, {"learn": True}, False, id="a command"),
    ],
)
async def test_learning_needs_agreement(
    tmp_path: Path, options: dict[str, Any], settings: dict[str, Any], learns: bool
) -> None:
    async with workbench_with(tmp_path, boxes(), options=options, **settings) as at:
        await search(at)
        await at.use(REMINDER)
    assert own_file().exists() is learns


async def test_new_holder_of_a_revoked_name_finds_nothing_of_the_former_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = key_folder()
    assert where is not None
    keys = KeyFolder(where)
    keys.create("ada")
    found = []
    for is_same in (True, True, False):
        if not is_same:
            keys.revoke("ada")
            keys.create("ada")
        async with workbench_with(tmp_path, boxes(), options=LOCAL, principal="ada") as at:
            at.gateway.runtime.follow_keys(KeysInForce(keys).holder_of)
            found.append(await search(at))
            await at.use(REMINDER)
    assert found == [["list_invoices"], ["list_invoices", "send_reminder"], ["list_invoices"]]
    for said in ("forgotten", "nothing was learned so far"):
        assert main(["find", "--forget", "--as", "ada"]) == 0
        assert capsys.readouterr().out.strip() == said


async def test_the_endpoint_tells_holders_of_a_name_apart(tmp_path: Path) -> None:
    where = key_folder()
    assert where is not None
    keys = KeyFolder(where)
    keys.create("ada")
    async with workbench_with(tmp_path, boxes()) as at:
        callers = HttpCallers(at.gateway, CallerOptions())
        assert callers._has_keys()
        assert at.gateway.runtime.use_memory.holder_of("ada") == KeysInForce(keys).holder_of("ada") != "ada"


async def test_a_disk_that_does_not_respond_delays_no_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = asyncio.Event()

    async def aside(work: object) -> None:
        await hangs.wait()

    monkeypatch.setattr("mcp_workbench.engine.blocking_work.aside", aside)
    monkeypatch.setattr(use_memory, "LAST_SAVE_TIMEOUT", 0.01)
    memory = UseMemory(str(tmp_path))
    memory.learn("ada", ("note",), "desk/notes/add_note")
    await asyncio.wait_for(memory.close(), 10)


async def test_recorded_use_is_bounded_while_it_cannot_be_written(tmp_path: Path) -> None:
    memory = UseMemory(str(tmp_path))
    for number in range(MAX_CLIENTS + 5):
        memory.end("ada", [f"desk/notes/{number}"])
    assert len(memory._ended["ada"]) == MAX_CLIENTS
    await memory.close()


def files_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_the_file_of_a_key_goes_with_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = key_folder()
    assert where is not None
    keys = KeyFolder(where)
    for name in ("ada", "bob"):
        keys.create(name)
    in_force = KeysInForce(keys)
    paths = {name: Path(str(use_file(in_force.holder_of(name)))) for name in ("ada", "bob")}
    for path in paths.values():
        add(str(path), [(("a",), "t")], [])
    assert main(["team", "key", "revoke", "ada"]) == 0
    bob = paths["bob"].name
    assert files_in(paths["bob"].parent) == [bob, f"{bob}.lock"]


async def test_a_client_that_leaves_after_its_key_was_revoked_leaves_nothing(tmp_path: Path) -> None:
    where = key_folder()
    assert where is not None
    keys = KeyFolder(where)
    keys.create("ada")
    async with workbench_with(tmp_path, boxes(), options=LOCAL, principal="ada") as at:
        callers = HttpCallers(at.gateway, CallerOptions())
        in_force = callers._keys
        assert in_force is not None
        path = Path(str(use_file(in_force.holder_of("ada"))))
        add(str(path), [(("a",), "t")], [])
        await search(at)
        await at.use(REMINDER)
        # Removed on another machine, or by hand.
        keys.revoke("ada")
        in_force.reload()
        await eventually(lambda: not path.exists(), what="the file to be deleted")
    assert files_in(path.parent) == []


async def test_files_that_hold_nothing_any_more_are_deleted(tmp_path: Path) -> None:
    old, new = use_file("ada", str(tmp_path)), use_file("bob", str(tmp_path))
    assert old is not None and new is not None
    for path in (old, new):
        add(path, [(("a",), "t")], [])
    long_ago = time.time() - (use_memory.MAX_USE_DAYS + 1) * DAY
    for path in (old, f"{old}.lock"):
        os.utime(path, (long_ago, long_ago))
    (tmp_path / "other.txt").write_text("not ours")
    os.utime(tmp_path / "other.txt", (long_ago, long_ago))
    memory = UseMemory(str(tmp_path))
    memory.learn("bob", ("b",), "t")
    await memory.close()
    assert files_in(tmp_path) == sorted([os.path.basename(new), f"{os.path.basename(new)}.lock", "other.txt"])
