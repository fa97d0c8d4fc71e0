"""Resources of the same server in two toolboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_process_workbench import Server, tool, workbench_with


def notes() -> Server:
    server = Server(tool("add_note"))
    server.resources = [{"uri": "notes:///index", "name": "index"}]
    return server


@pytest.mark.requirement("resources.collisions")
@pytest.mark.parametrize("face", ["proxy", "flat", "dynamic"])
async def test_a_resource_of_twins_is_read_by_an_address_with_the_toolbox_in_it(tmp_path: Path, face: str) -> None:
    every = {"dev": {"notes": notes()}, "prod": {"notes": notes()}}
    async with workbench_with(tmp_path, every, options={"face": face}) as seen:
        if face != "flat":
            await seen.open(toolbox_name="dev")
            await seen.open(toolbox_name="prod")
        else:
            await seen.client.request("tools/list")
        refused = await (await seen.client.start("resources/read", {"uri": "notes:///index"})).response()
        assert "workbench://resources/dev/notes/notes:///index" in refused["error"]["message"]
        await seen.client.request("resources/read", {"uri": "workbench://resources/prod/notes/notes:///index"})
        assert every["prod"]["notes"].asked == [("resources/read", "notes:///index")]
        assert every["dev"]["notes"].asked == []
        wrong = await (
            await seen.client.start("resources/read", {"uri": "workbench://resources/ops/notes/notes:///index"})
        ).response()
        assert "was not found" in wrong["error"]["message"]
