"""`redactResults`, behind the real workbench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import Workbench
from tests.support.workbench import scripted_entry

SECRET = "t0ken-of-the-other-server"


@pytest.mark.parametrize("mode", [None, "warn", "block"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_secret_of_another_server_does_not_reach_the_agent(tmp_path: Path, era: str, mode: str | None) -> None:
    box = {"one": scripted_entry(), "other": scripted_entry(env={"API_TOKEN": SECRET})}
    settings: dict[str, Any] = {} if mode is None else {"redactResults": mode}
    audit = tmp_path / "audit.jsonl"
    async with Workbench(tmp_path).serving({"box": box}, era=era, audit={"file": str(audit)}, **settings) as client:
        own = await client.use_tool("box", "other", "echo", {"text": SECRET})
        assert SECRET in json.dumps(own), "its own"
        leaked = await client.use_tool("box", "one", "echo", {"text": SECRET})
        assert (SECRET in json.dumps(leaked)) == (mode != "block")
        assert bool(leaked.get("isError")) == (mode == "block")
        fine = await client.use_tool("box", "one", "echo", {"text": "hi"})
        assert not fine.get("isError")
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [each for each in events if each.get("kind") == "secret"]
    assert [each["decision"] for each in found] == {None: [], "warn": ["passed"], "block": ["denied"]}[mode]
    assert all((each["server"], each["item"]) == ("one", "answer") for each in found)
    assert SECRET not in audit.read_text()
