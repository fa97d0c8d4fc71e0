"""Servers behind a network: refused, reset, encrypted badly, failing, redirecting in circles, lying, forgetful.

A clear error each, nothing repeated that may have been accepted, and everything works again when the server does.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.engine.downstream.lifecycle import MAX_CRASHES
from tests.faults.remote import Remote, playing, remote
from tests.faults.running_workbench import Faults, RunningWorkbench, error_text
from tests.support.client import Json, RawClient
from tests.support.processes import eventually
from tests.support.workbench import workbench_command

CALL = ["tools/call"]


async def works(workbench: RunningWorkbench, remote: Remote) -> None:
    """The server is well again, and so is everything that goes through us."""
    remote.does()
    for _ in range(3):
        # Each open is a plea for another chance.
        await workbench.open()
        result = await workbench.call("remote", "echo", {"n": 1})
        if not result.get("isError"):
            assert result["structuredContent"] == {"n": 1}
            return
    raise AssertionError(result)  # type: ignore[possibly-undefined]


STATUSES: list[tuple[Json, str, str]] = [
    ({"status": 500, "body": "boom"}, "failed (500): boom", "try again"),
    (
        {
            "status": 502,
            "body": "<html><head><title>Bad Gateway</title></head><body><script>x</script></body></html>",
            "headers": {"Content-Type": "text/html"},
        },
        "is not available (502), with a web page: Bad Gateway",
        "try again",
    ),
    ({"status": 503, "headers": {"Retry-After": "7"}}, "is not available (503)", "try again in 7 s"),
    ({"status": 429, "headers": {"Retry-After": "30"}}, "received too many requests (429)", "try again in 30 s"),
    ({"status": 429}, "received too many requests (429)", "less often"),
    ({"status": 401}, "wants you to sign in", "`headers`"),
    ({"status": 403}, "denied access (403)", "token"),
    ({"status": 418, "body": "\x1b[31mteapot"}, "answered with status 418: [31mteapot", "check `url`"),
    ({"redirect": "loop"}, "redirects in a loop", "check `url`"),
    ({"redirect": "http://127.0.0.1:1/elsewhere"}, "redirects to another origin, http://127.0.0.1:1", "set `url` to"),
    ({"status": 200, "body": "hello", "headers": {"Content-Type": "text/plain"}}, "", ""),
    ({"status": 200, "body": "not json"}, "", ""),
    ({"status": 200, "body": ""}, "", ""),
    ({"raw": "SSH-2.0-OpenSSH_9\r\n"}, "not speak HTTP", ""),
    ({"reset": "before"}, "without a response", "not repeated"),
    ({"reset": "middle"}, "ended early", "not repeated"),
    ({"reset": "stream"}, "ended early", "not repeated"),
    ({"stream": "short"}, "", ""),
]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_any_faulty_answer_is_one_clear_error_and_the_server_recovers(faults: Faults, era: str) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, timeout=5, protocol=era) as workbench:
            for fault, words, hint in STATUSES:
                there.does(on=CALL, **fault)
                # No time to answer, no error: the deadline would be another fault's words.
                async with asyncio.timeout(4.5):
                    text = error_text(await workbench.call("remote", "count"))
                assert text.startswith("[box/remote/count] "), text
                assert words in text and hint in text, (fault, text)
                assert "\x1b" not in text and len(text) < 1000
                await workbench.others_work(1)
                await works(workbench, there)
            assert await workbench.value("remote", "count") == {"count": 2}, "no call was ever repeated"


async def test_a_stream_that_never_ends_and_a_server_that_never_answers_hit_the_deadline(faults: Faults) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, timeout=1) as workbench:
            for fault in ({"stream": "endless"}, {"hang": True}):
                there.does(on=CALL, **fault)
                calls = [await workbench.start("remote", "count") for _ in range(5)]
                await workbench.others_work()
                for call in calls:
                    assert "did not answer within 1 s" in error_text(await call.result())
                await works(workbench, there)


async def test_a_stream_that_lies_about_its_framing_is_read_as_far_as_it_makes_sense(faults: Faults) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, timeout=5) as workbench:
            there.does(on=CALL, stream="lies")
            assert await workbench.value("remote", "echo", {"n": 1}) == {"n": 1}
            await works(workbench, there)


async def test_a_forgotten_session_is_reconnected_and_no_call_is_made_twice(faults: Faults) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, timeout=5) as workbench:
            there.does(on=CALL, forget=True)
            result = await workbench.call("remote", "count")
            there.does()
            await works(workbench, there)
            counted = (await workbench.value("remote", "count"))["count"]
            assert counted == (2 if result.get("isError") else 3)


async def test_a_server_that_listens_again_is_reached(faults: Faults) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, timeout=5, startupTimeout=5) as workbench:
            there.stop()
            text = await workbench.failure("remote", "count")
            assert text.startswith(f"[box/remote/count] nothing is listening at http://127.0.0.1:{there.port}")
            assert "nothing is listening" in (await workbench.unavailable())["remote"]
            await workbench.others_work()
            await there.start()
            assert await workbench.unavailable() == {}
            assert await workbench.value("remote", "count") == {"count": 1}
            # And away again, in the middle of everything.
            calls = [await workbench.start("remote", "hang") for _ in range(5)]
            await eventually(lambda: there.calls("hang") == 5, what="the calls at the server")
            there.stop()
            for call in calls:
                text = error_text(await call.result())
                assert text.startswith("[box/remote/hang] ") and "it may or may not have acted" in text
            await there.start()
            await works(workbench, there)


@pytest.mark.parametrize("face", ["proxy", "flat"])
async def test_a_server_that_failed_for_good_is_used_as_soon_as_it_listens_again(faults: Faults, face: str) -> None:
    """The first call after an outage works, however many failed during it; nobody has to open the toolbox for it."""
    async with remote(faults) as there:
        config = faults.write_config({"remote": there.entry()})
        spawned = RawClient.spawn(workbench_command(config, "--face", face), env=faults.environment())
        async with spawned as client:
            await client.initialize()

            async def count() -> Json:
                if face == "proxy":
                    return await client.use_tool("box", "remote", "count")
                return await client.call_tool("box:remote:count")

            assert (await count())["structuredContent"] == {"count": 1}
            # Then every further call has to connect.
            await client.wait_for(lambda: "without a call" in client.stderr, "an idle server that is let go")
            there.stop()
            texts = [error_text(await count())]
            # On a busy machine the first failures may be too long ago to count.
            while "not restarted" not in texts[-1] and len(texts) < 4 * MAX_CRASHES:
                texts.append(error_text(await count()))
            assert len(texts) > MAX_CRASHES and "not restarted" in texts[-1], texts
            await there.start()
            assert (await count())["structuredContent"] == {"count": 1}
    faults.nothing_left_on_disk()


async def test_encryption_that_does_not_come_about_is_reported(faults: Faults) -> None:
    async with remote(faults) as there:
        url = there.url.replace("http://", "https://")
        async with faults.serving({"remote": {"url": url, "startupTimeout": 5}}) as workbench:
            for is_warm in (False, True):
                reason = (await workbench.unavailable())["remote"]
                assert "cannot establish an encrypted connection to https://127.0.0.1" in reason
                await workbench.others_work()
                if not is_warm:
                    await workbench.remember()


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_failures_in_handshake_and_lists_reach_waiting_calls(faults: Faults, method: str) -> None:
    async with remote(faults) as there:
        settings = {"timeout": 5, "startupTimeout": 2}
        servers = {"remote": there.entry(**settings), "new": there.entry(url=f"{there.url}?new", **settings)}
        async with faults.serving(servers) as workbench:
            await workbench.value("remote", "count")
            await workbench.remember()
            for fault, words in (({"status": 500, "body": "boom"}, "boom"), ({"hang": True}, "within 2 s")):
                there.does(on=[method], **fault)
                opening = await workbench.client.start_tool("open_toolbox", {"toolbox_name": "box"})
                await workbench.others_work()
                reasons = (await opening.result())["structuredContent"]["unavailable"]
                (reason,) = (entry["reason"] for entry in reasons if entry["server"] == "new")
                assert words in reason or "no answer in time" in reason
            await works(workbench, there)
            assert await workbench.unavailable() == {}
            assert await workbench.value("new", "echo", {"n": 1}) == {"n": 1}


async def test_an_answer_beyond_the_limit_is_not_read_to_its_end(faults: Faults) -> None:
    async with remote(faults) as there:
        async with playing(faults, there, large=True, maxMessageBytes=1024 * 1024) as workbench:
            text = await workbench.failure("remote", "large", {"bytes": 30 * 1024 * 1024})
            assert "is larger than 1048576 bytes" in text and "maxMessageBytes" in text
            assert await workbench.value("remote", "count") == {"count": 2}


async def test_secrets_of_the_address_and_the_headers_are_in_no_error(faults: Faults) -> None:
    async with remote(faults) as there:
        secret: dict[str, Any] = {
            "headers": {"Authorization": "Bearer hunter2hunter2"},
            "url": f"{there.url}?key=hunter2hunter2",
        }
        async with playing(faults, there, **secret) as workbench:
            for fault in ({"status": 500, "body": "hunter2hunter2"}, {"status": 401}, {"reset": "before"}):
                there.does(**fault)
                assert "hunter2" not in json.dumps(await workbench.open())
                assert "hunter2" not in json.dumps(await workbench.call("remote", "count"))
            assert "hunter2" not in workbench.process.stderr
            assert "hunter2" not in json.dumps(await workbench.status())
