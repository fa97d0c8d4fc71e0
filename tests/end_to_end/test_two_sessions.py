"""Two clients over HTTP with the same token, in front of one legacy program that asks its users things.

On the one line of such a program nothing says whose question it is. Whatever happens, nobody is asked the other's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.faults.http_wire import HttpConversation
from tests.faults.running_workbench import port_of
from tests.support.client import Json, RawClient
from tests.support.workbench import scripted_entry, workbench_command, write_config

TOKEN = "the-same-token-for-both"


class Person(HttpConversation):
    """A client with a session of its own, whose user answers questions with their name."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(port, {"Authorization": f"Bearer {TOKEN}"})
        self.name = name
        self.asked: list[str] = []
        self.handlers["elicitation/create"] = self._accept

    def _accept(self, params: Json) -> Json:
        self.asked.append(params["message"])
        return {"action": "accept", "content": {"name": self.name}}

    async def transfer(self) -> Json:
        """A call that has the server ask this user, and nobody else; its result."""
        return await self.use_tool("box", "bank", "ask", {"message": f"transfer money of {self.name}?"})

    @property
    def own_question(self) -> str:
        return f"[box/bank] transfer money of {self.name}?"


@asynccontextmanager
async def two_people(folder: Path) -> AsyncIterator[tuple[Person, Person, RawClient]]:
    entry = scripted_entry("--era", "legacy", "--log", folder / "server.log", timeout=30)
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    config = write_config(folder, {"box": {"bank": entry}})
    command = workbench_command(config, "--http", "127.0.0.1:0", "--token-file", token, "--no-cache")
    async with RawClient.spawn(command) as process:
        port = await port_of(process)
        people = Person("alice", port), Person("bob", port)
        try:
            for person in people:
                await person.initialize(capabilities={"elicitation": {}})
            yield *people, process
        finally:
            for person in people:
                await person.close()
        process.process.terminate()
        assert await process.wait_exit() == 0, process.stderr


def answered_by(result: Json) -> str | None:
    """Whose answer the server got; None where it was refused to ask."""
    answer = result["structuredContent"]
    name: str | None = answer["result"]["content"]["name"] if "result" in answer else None
    return name


@pytest.mark.requirement("asking.whose")
async def test_a_question_is_sent_only_to_its_own_session(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (alice, bob, _):
        shared = {(await person.use_tool("box", "bank", "pid"))["content"][0]["text"] for person in (alice, bob)}
        assert len(shared) == 1, "a server that never asked is shared"
        # A call of Alice's is under way on the same program when it asks about a call of Bob's.
        hanging = await alice.start_tool("use_tool", {"tool": "box/bank/hang", "arguments": {}})
        await alice.use_tool("box", "bank", "echo", {"text": "sent behind it, so it has arrived too"})
        refused = await bob.transfer()
        assert answered_by(refused) is None and "calls of several clients" in str(refused)
        assert alice.asked == bob.asked == []
        # From then on it is known as one that asks, and each has a program of their own: the first keeps the old one.
        for _ in range(3):
            results = [await person.transfer() for person in (alice, bob)]
            assert [answered_by(result) for result in results] == ["alice", "bob"]
        assert alice.asked == [alice.own_question] * 3
        assert bob.asked == [bob.own_question] * 3
        await alice.cancel(hanging)


@pytest.mark.requirement("asking.whose")
async def test_concurrent_questions_reach_only_their_own_user(tmp_path: Path) -> None:
    async with two_people(tmp_path) as (alice, bob, _):
        for _ in range(5):
            calls = [
                await person.start_tool(
                    "use_tool",
                    {"tool": "box/bank/ask", "arguments": {"message": f"transfer money of {person.name}?"}},
                )
                for person in (alice, bob)
            ]
            for person, call in zip((alice, bob), calls, strict=True):
                assert answered_by(await call.result()) in (person.name, None)
        for person in (alice, bob):
            assert set(person.asked) <= {person.own_question}
            assert answered_by(await person.transfer()) == person.name
