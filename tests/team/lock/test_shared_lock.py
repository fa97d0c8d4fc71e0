"""Accepted definitions of a cluster: whoever has the former hash in their lock file expects the accepted one."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.lasting_state import ACCEPTED_DEFINITION
from mcp_workbench.team.lock import shared_lock as module
from mcp_workbench.team.lock.lock_file import LockedServer, LockFile
from mcp_workbench.team.lock.shared_lock import SharedLock
from tests.support.shared_state import SharedServer


def file_with(config: str = "workbench.json", instructions: str = "", **tools: str) -> LockFile:
    return LockFile(1, config, {"box": {"server": LockedServer(tools=tools, instructions=instructions)}})


class Machine:
    def __init__(self, server: SharedServer, file: LockFile) -> None:
        self.server = server
        self.file = file
        self.changes = 0
        self.shared = SharedLock(server.instance(), self._on_changed)

    def _on_changed(self) -> None:
        self.changes += 1

    def accept(self, file: LockFile) -> None:
        self.shared.note(self.file, file)
        self.file = file
        self.server.settle()

    @property
    def expected(self) -> dict[str, str]:
        found = self.shared.applied(self.file).server("box", "server")
        return {} if found is None else found.tools


@pytest.fixture
def server() -> SharedServer:
    return SharedServer()


def test_changed_new_and_removed_definitions_count_on_all(server: SharedServer) -> None:
    here, there = (Machine(server, file_with(read="r1", write="w1")) for _ in range(2))
    here.accept(file_with(read="r2", new="n1"))
    assert there.expected == {"read": "r2", "new": "n1"}
    assert there.changes == 1, "its servers are judged again"
    assert there.file == file_with(read="r1", write="w1"), "the file is that machine's own"


def test_server_that_was_not_locked_counts_on_all(server: SharedServer) -> None:
    here, there = (Machine(server, LockFile(1, "workbench.json")) for _ in range(2))
    here.accept(file_with(read="r1"))
    assert there.expected == {"read": "r1"}


def test_instructions_count_on_all(server: SharedServer) -> None:
    here, there = (Machine(server, file_with(instructions="i1")) for _ in range(2))
    here.accept(file_with(instructions="i2"))
    found = there.shared.applied(there.file).server("box", "server")
    assert found is not None and found.instructions == "i2"


def test_later_decision_counts_wherever_it_was_made(server: SharedServer) -> None:
    here, there, third = (Machine(server, file_with(read="r1")) for _ in range(3))
    here.accept(file_with(read="r2"))
    there.accept(file_with(read="r3"))
    assert [each.expected for each in (here, there, third)] == [{"read": "r3"}] * 3
    here.accept(file_with(read="r1"))
    assert [each.expected for each in (here, there, third)] == [{"read": "r1"}] * 3, "also one that takes it back"


def test_file_that_says_something_else_stands(server: SharedServer) -> None:
    here, newer = Machine(server, file_with(read="r1")), Machine(server, file_with(read="r9"))
    another = Machine(server, file_with(config="another.json", read="r1"))
    here.accept(file_with(read="r2"))
    assert newer.expected == {"read": "r9"}
    assert another.expected == {"read": "r1"}


def test_instance_that_starts_later_knows_and_a_state_that_lost_it_is_told_again(server: SharedServer) -> None:
    here = Machine(server, file_with(read="r1"))
    here.accept(file_with(read="r2"))
    server.come_back(is_empty=True)
    later = Machine(server, file_with(read="r1"))
    server.settle()
    assert later.expected == {"read": "r2"}


def test_unreadable_input_is_left_alone(server: SharedServer) -> None:
    here = Machine(server, file_with(read="r1"))
    for key, value in (("a", b"[]"), ("b", b'{"config":"workbench.json","toolbox":"box","server":"server"}')):
        server.values[ACCEPTED_DEFINITION, "", key] = value
    server.settle()
    assert here.expected == {"read": "r1"} and not here.changes
    assert len(server.values) == 2


def test_former_hashes_are_bounded(server: SharedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FORMER_HASHES", 3)
    here, there = (Machine(server, file_with(read="r0")) for _ in range(2))
    for number in range(1, 6):
        here.accept(file_with(read=f"r{number}"))
    assert there.expected == {"read": "r0"}, "too old to be known"
    assert Machine(server, file_with(read="r3")).shared._accepted == {}
    assert all(len(value) < 500 for value in server.values.values())
