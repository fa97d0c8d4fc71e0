"""The demo server `clock`: zones, progress and cancellation."""

from __future__ import annotations

import zoneinfo
from datetime import datetime
from typing import Any

import mcp_types as types
import pytest

from tests.cli.demo.sdk import ERAS, command, connect
from tests.support.client import RawClient, RpcError

zones = pytest.mark.skipif(not zoneinfo.available_timezones(), reason="this machine has no time zone database")
both_eras = pytest.mark.parametrize("era", ERAS)


def _text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@zones
@both_eras
async def test_now_is_a_moment_in_the_zone_asked_for(era: str) -> None:
    async with connect("clock", era=era) as client:
        in_utc = (await client.call_tool("now", {})).structured_content
        in_tokyo = (await client.call_tool("now", {"zone": "Asia/Tokyo"})).structured_content
    assert in_utc is not None and in_tokyo is not None
    assert (in_utc["zone"], in_utc["utc_offset_hours"]) == ("UTC", 0)
    assert (in_tokyo["zone"], in_tokyo["utc_offset_hours"]) == ("Asia/Tokyo", 9)
    assert datetime.fromisoformat(in_tokyo["time"]) >= datetime.fromisoformat(in_utc["time"])


@zones
@both_eras
async def test_a_time_is_converted_between_zones_with_the_daylight_saving_of_its_date(era: str) -> None:
    async with connect("clock", era=era) as client:

        async def convert(time: str) -> dict[str, Any]:
            arguments = {"time": time, "from_zone": "Europe/Vienna", "to_zone": "America/New_York"}
            converted: dict[str, Any] | None = (await client.call_tool("convert_time", arguments)).structured_content
            assert converted is not None
            return converted

        winter = await convert("2025-01-15T12:00")
        assert winter["to"]["time"] == "2025-01-15T06:00:00-05:00"
        # America changes to summer time three weeks before Europe does.
        assert (await convert("2025-03-20T12:00"))["difference_hours"] == -5
        assert (await convert("09:30"))["from"]["time"][11:16] == "09:30"


@zones
@both_eras
async def test_a_wrong_zone_or_time_is_answered_with_advice(era: str) -> None:
    async with connect("clock", era=era) as client:
        zone = await client.call_tool("now", {"zone": "Europe/Wienna"})
        assert zone.is_error and "Europe/Vienna" in _text(zone)
        outside = await client.call_tool("now", {"zone": "../../etc/passwd"})
        assert outside.is_error and "unknown time zone" in _text(outside)
        arguments = {"time": "noon", "from_zone": "UTC", "to_zone": "UTC"}
        time = await client.call_tool("convert_time", arguments)
        assert time.is_error and "cannot read the time `noon`" in _text(time)


@both_eras
async def test_waiting_reports_progress_up_to_the_end(era: str) -> None:
    seen: list[tuple[float, float | None]] = []

    async def remember(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with connect("clock", era=era) as client:
        result = await client.call_tool("wait", {"seconds": 0.2}, progress_callback=remember)
        assert result.structured_content == {"seconds": 0.2}
        too_long = await client.call_tool("wait", {"seconds": 301})
        assert too_long.is_error and "at most 300" in _text(too_long)
    assert seen == [(step, 10) for step in range(1, 11)]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_cancelled_wait_is_not_answered_and_blocks_nothing(modern: bool) -> None:
    async with RawClient.spawn(command("clock"), modern=modern) as client:
        if not modern:
            await client.initialize()
        waiting = await client.start_tool("wait", {"seconds": 3}, _meta={"progressToken": "w"})
        assert (await client.call_tool("now"))["structuredContent"]["zone"] == "UTC"
        await client.wait_notification("notifications/progress")
        await client.cancel(waiting)
        # Whatever was sent before the cancellation was read is here before the next answer.
        await client.call_tool("now")
        sent = len(client.notifications)
        await client.call_tool("wait", {"seconds": 1})
        assert len(client.notifications) == sent
        assert not waiting.answered


async def test_the_end_of_input_ends_a_running_wait() -> None:
    async with RawClient.spawn(command("clock"), modern=True) as client:
        await client.start_tool("wait", {"seconds": 300}, _meta={"progressToken": "w"})
        await client.call_tool("now")
        client.close_stdin()
        assert await client.wait_exit() == 0
        assert client.stderr == ""


async def test_it_crashes_only_where_that_was_asked_for() -> None:
    async with RawClient.spawn(command("clock"), modern=True) as client:
        with pytest.raises(RpcError, match="-32602"):
            await client.call_tool("crash")
    async with RawClient.spawn(command("clock", "--with-crash"), modern=True) as client:
        await client.start_tool("crash")
        assert await client.wait_exit() == 70
        await client.wait_for(lambda: "crashing because it was asked to" in client.stderr, "words on stderr")
