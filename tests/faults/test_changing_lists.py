"""Lists that change all the time, grow without end, or never come to one: coalesced, bounded, a clear error."""

from __future__ import annotations

from functools import partial

import pytest

from mcp_workbench.engine.downstream.server_run import MAX_LIST_PAGES, MAX_LISTED_ITEMS
from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry
from tests.support.processes import eventually
from tests.support.workbench import logged

CHANGED = {"method": "notifications/tools/list_changed", "count": 10_000}


async def test_ten_thousand_changes_in_a_moment_are_one_and_nothing_is_announced(faults: Faults) -> None:
    log = faults.path("log")
    async with faults.serving({"bad": bad_entry("--log", log)}) as workbench:
        await workbench.open()
        await workbench.value("bad", "count")
        asked = len(logged(log, "tools/list"))
        assert await workbench.value("bad", "flood", CHANGED) == {"sent": 10_000}
        await workbench.others_work()
        await eventually(lambda: len(logged(log, "tools/list")) > asked, what="another look at the list")
        assert len(logged(log, "tools/list")) - asked <= 3
        assert await workbench.value("bad", "count") == {"count": 2}
        # Nothing is different in the list, so nothing is announced.
        assert workbench.client.received("notifications/tools/list_changed") == []


async def test_list_that_grows_to_ten_thousand_tools_is_complete_and_costs_its_size(faults: Faults) -> None:
    log = faults.path("log")
    async with faults.serving({"bad": bad_entry("--log", log)}) as workbench:
        # What is known of a server is no leak: its definitions, and what is needed to find and show them, stay.
        workbench.kept_bytes = 10_000 * 2048
        await workbench.open()
        assert await workbench.value("bad", "grow", {"to": 10_000, "step": 100}) == {"tools": 10_000}
        await workbench.others_work()

        # The list may have been fetched while it was growing; then it is fetched again.
        async def tools() -> int:
            found = (await workbench.server_status())["tools"]
            assert isinstance(found, int)
            return found

        for _ in range(400):
            if await tools() > 10_000:
                break
            await workbench.others_work(1)
        assert await workbench.value("bad", "extra_9999", {"n": 1}) == {"n": 1}
        shown = [tool["name"] for tool in (await workbench.open())["tools"] if tool["source_server"] == "bad"]
        assert len(shown) == len(set(shown)) > 10_000
        assert len(logged(log, "tools/list")) < 200


@pytest.mark.requirement("pagination.downstream")
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ("endless", f"`tools/list` has more than {MAX_LIST_PAGES} pages"),
        ("cyclic", "`tools/list` repeats the cursor"),
        ("no list", "its answer to `tools/list` cannot be used"),
    ],
)
async def test_pages_that_never_end_are_a_clear_error_and_the_rest_of_the_toolbox_is_shown(
    faults: Faults, pages: str, reason: str
) -> None:
    path = faults.write_faults({"pages": pages})
    async with faults.serving({"bad": bad_entry("--faults", path)}) as workbench:
        opening = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
        await workbench.others_work()
        content = (await opening.result())["structuredContent"]
        (entry,) = content["unavailable"]
        assert entry["server"] == "bad" and reason in entry["reason"]
        assert {tool["source_server"] for tool in content["tools"]} == {"good"}
        faults.write_faults({})
        assert await workbench.unavailable() == {}, "it is asked again, and works"
        assert await workbench.value("bad", "echo", {"n": 1}) == {"n": 1}


async def test_a_list_of_more_than_anybody_can_use_is_a_clear_error(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        # Its pages are read and thrown away. What the C library keeps of them, 8 to 9 MB and more with another thread
        # beside, is used again by the next such list, which costs 0 to 2 MB more: five that were kept would not fit.
        workbench.kept_bytes = 16 * 1024 * 1024
        await workbench.value("bad", "echo", {"n": 1})
        for lists in range(1, 6):
            step = 1 if lists > 1 else MAX_LISTED_ITEMS + 1
            await workbench.value("bad", "grow", {"to": MAX_LISTED_ITEMS + lists, "step": step})
            await workbench.process.wait_for(partial(_has_refused, workbench, lists), "a word about it")
        assert await workbench.value("bad", "echo", {"n": 2}) == {"n": 2}, "what was known before is still there"


def _has_refused(workbench: RunningWorkbench, lists: int) -> bool:
    return workbench.process.stderr.count(f"more than {MAX_LISTED_ITEMS} items") >= lists
