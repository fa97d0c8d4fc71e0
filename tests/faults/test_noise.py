"""A server writes what it should not: banners, garbage, half lines, bad bytes, answers that nobody waits for.

What is no message is skipped, counted and logged at a limited rate. What is one is passed as it is or refused, it alone;
the connection lives. The first answer counts, the rest is dropped and counted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.running_workbench import Faults, RunningWorkbench, bad_entry, error_text

OK = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"structuredContent":{"ok":1}}}'
LATE = OK.replace('"ok":1', '"ok":2')
ERAS = ["legacy", "modern"]

# What stands on stdout beside the answer, and how many lines of it are noise.
NOISE = {
    "banner": ("Welcome to the server!\nListening...\n", 2),
    "blank lines": ("\n\n   \n\t\n\r\n", 0),
    "garbage": ("\x01\x02\x80\xff{{{[[\n", 1),
    "half a message": ('{"jsonrpc":"2.0",\n', 1),
    "other JSON": ('{"hello":"world"}\n"text"\n5\nnull\ntrue\n[]\n', 6),
    "a log line in JSON": ('{"level":"info","time":1,"msg":"started"}\n', 1),
    "a batch": ('[{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}]\n', 1),
    "no UTF-8": ("\xff\xfe\xfd\n", 1),
    "NUL": ("\x00\x00\x00\n", 1),
    "deep nesting": ("[" * 100_000 + "\n", 1),
    "what it was asked": ('received: {"jsonrpc":"2.0","id":$ID,"method":"tools/call"}\n', 1),
    "a question that cannot be read": ('{"jsonrpc":"2.0","id":$ID,"method":"x/y","params":{"x":"\xff"}}\n', 1),
    "a comment of an event stream": (": keep-alive\n", 1),
}


@pytest.mark.requirement("servers.noise")
@pytest.mark.parametrize("era", ERAS)
async def test_noise_is_skipped_counted_and_logged_at_a_limited_rate(faults: Faults, era: str) -> None:
    async with faults.serving({"bad": bad_entry()}, era=era) as workbench:
        expected = 0
        for kind, (text, lines) in NOISE.items():
            expected += 3 * lines
            for latin1 in (f"{text}{OK}\n", f"{OK}\n{text}", f"{text}{OK}\r\n"):
                result = await workbench.call("bad", "raw", {"latin1": latin1})
                assert result.get("structuredContent") == {"ok": 1}, (kind, result)
        assert await workbench.value("bad", "count") == {"count": 1}
        status = await workbench.server_status()
        assert (status["noiseLines"], status["starts"], status["failures"]) == (expected, 1, 0)
        assert 1 <= workbench.process.stderr.count("noise on stdout") <= 5
        assert workbench.client.garbage == []


async def test_a_flood_of_noise_holds_up_nothing_and_fills_no_log(faults: Faults) -> None:
    # The requests that ask for the flood are large themselves, and the C library keeps some of what they took.
    async with faults.serving({"bad": bad_entry()}, large=True) as workbench:
        # Large messages are read in a thread, whose arena keeps free memory too. It does not grow with more floods.
        workbench.kept_bytes *= 3
        flood = "this is not JSON\n" * 100_000
        calls = [await workbench.start("bad", "raw", {"latin1": flood}) for _ in range(5)]
        await workbench.others_work()
        done = await workbench.value("bad", "echo", {"n": 1})
        assert done == {"n": 1}
        for call in calls:
            await workbench.client.cancel(call)
        assert (await workbench.server_status())["noiseLines"] == 500_000
        assert len(workbench.process.stderr) < 10_000


# The same answer, cut up in ways that a reader must not mind.
PIECES: dict[str, dict[str, Any]] = {
    "one byte at a time": {"latin1": f"{OK}\n", "piecewise": True},
    "with a carriage return": {"latin1": f"{OK}\r\n"},
    "with a byte order mark": {"latin1": f"\xef\xbb\xbf{OK}\n"},
    "two in one write": {"latin1": f'{OK}\n{{"jsonrpc":"2.0","method":"notifications/x"}}\n'},
    "after a message in the same write": {"latin1": f'{{"jsonrpc":"2.0","method":"notifications/x"}}\n{OK}\n'},
    "spaces around it": {"latin1": f"  {OK}\t \n"},
    "é as two bytes, one at a time": {"latin1": OK[:-1] + ',"x":"\xc3\xa9"}\n', "piecewise": True},
}


@pytest.mark.parametrize("era", ERAS)
async def test_messages_are_found_however_they_are_cut(faults: Faults, era: str) -> None:
    async with faults.serving({"bad": bad_entry()}, era=era) as workbench:
        for kind, arguments in PIECES.items():
            result = await workbench.call("bad", "raw", arguments)
            assert result.get("structuredContent") == {"ok": 1}, (kind, result)
        assert await workbench.value("bad", "count") == {"count": 1}


async def test_half_a_line_and_then_silence_hits_the_deadline_and_then_the_end_fails_the_rest(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry(timeout=1)}) as workbench:
        half = '{"jsonrpc":"2.0","id":$ID,"result":{"content":['
        silent = await workbench.start("bad", "raw", {"latin1": half})
        await workbench.others_work()
        text = error_text(await silent.result())
        assert text.startswith("[box/bad/raw] the server did not answer within 1 s")
        # The line is still open, so this is part of it, and the end of the process is the end of it.
        waiting = await workbench.start("bad", "hang")
        ended = await workbench.start("bad", "crash", {"status": 6})
        for call in (waiting, ended):
            assert "exited with status 6" in error_text(await call.result())
        assert await workbench.value("bad", "count") == {"count": 1}


async def test_an_answer_without_a_newline_counts_when_the_server_ends(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        result = await workbench.call("bad", "raw", {"latin1": OK, "end": 0})
        assert result["structuredContent"] == {"ok": 1}
        text = await workbench.failure("bad", "raw", {"latin1": OK[:40], "end": 5})
        assert text.startswith("[box/bad/raw] ")


HEAD = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"x":'
# Values that careless readers change or die of: they pass as they are.
PASSED = {
    "lone surrogate": '"\\ud83d"',
    "surrogates in the wrong order": '"\\udc00\\ud800"',
    "escaped NUL": '"\\u0000"',
    "huge integer": "1" + "0" * 400,
    "more digits than Python converts": "9" * 5000,
    "tiny float": "1e-400",
    "huge float": "1e400",
    "minus zero": "-0",
    "duplicate keys": '{"a":1,"a":2}',
    "nesting of 500 levels": "[" * 500 + "]" * 500,
    "long key": '{"' + "k" * 100_000 + '":1}',
    "beyond the basic plane": '"\xf0\x9f\x98\x80"',
}
# What cannot be read fails its own call, at once.
REFUSED = {
    "no UTF-8": '"\xff"',
    "half of a character": '"\xc3"',
    "overlong slash": '"\xc0\xaf"',
    "surrogate as bytes": '"\xed\xa0\x80"',
    "NUL": '"\x00"',
    "NaN": "NaN",
    "nesting of 513 levels": "[" * 513 + "]" * 513,
    "nesting of 100,000 levels": "[" * 100_000 + "]" * 100_000,
    "control character": '"\x1f"',
    "single quotes": "'text'",
    "trailing comma": "[1,]",
}


@pytest.mark.parametrize("era", ERAS)
async def test_bytes_that_others_die_of_are_passed_as_they_are_or_refused_alone(faults: Faults, era: str) -> None:
    async with faults.serving({"bad": bad_entry(timeout=60)}, era=era) as workbench:
        # What the raw client would not let through is looked for in the line itself.
        lines: list[bytes] = []
        take = workbench.client.take_line

        async def watch(line: bytes) -> None:
            lines.append(line)
            await take(line)

        workbench.client.take_line = watch  # type: ignore[method-assign]
        for kind, value in PASSED.items():
            call = await workbench.start("bad", "raw", {"latin1": f"{HEAD}{value}}}}}\n"})
            expected = b'"x":' + value.encode("latin-1")
            await workbench.client.wait_for(lambda wanted=expected: any(wanted in each for each in lines), kind)  # type: ignore[misc]
            del call
        for kind, value in REFUSED.items():
            call = await workbench.start("bad", "raw", {"latin1": f"{HEAD}{value}}}}}\n"})
            text = error_text(await call.result())
            assert text.startswith("[box/bad/raw] the server's answer cannot be read: "), (kind, text)
        text = await workbench.failure("bad", "raw", {"latin1": f"Loading... {OK}\n"})
        assert "cannot be read: not a JSON object" in text
        assert await workbench.value("bad", "count") == {"count": 1}
        await _client_may_do_the_same(workbench)


async def _client_may_do_the_same(workbench: RunningWorkbench) -> None:
    """In the other direction: a client's arguments pass as they are, or its request is refused."""
    shown = {"toolbox": "box", "server": "bad", "tool": "echo"}
    meta = json.dumps(workbench.client._meta) if workbench.client._meta else "{}"
    for number, value in enumerate([*PASSED.values(), *REFUSED.values()]):
        arguments = f'{{"tool":{json.dumps(shown)},"arguments":{{"x":{value}}}}}'
        request = f'{{"name":"use_tool","arguments":{arguments},"_meta":{meta}}}'
        line = f'{{"jsonrpc":"2.0","id":"odd-{number}","method":"tools/call","params":{request}}}\n'
        before = len(workbench.client.unmatched) + len(workbench.client.garbage)
        await workbench.client.send_bytes(line.encode("latin-1"))
        await workbench.client.wait_for(
            lambda seen=before: len(workbench.client.unmatched) + len(workbench.client.garbage) > seen,  # type: ignore[misc]
            f"answer to {value[:40]}",
        )
    assert await workbench.value("bad", "count") == {"count": 2}


async def test_only_the_first_answer_counts_and_the_rest_is_dropped_and_counted(faults: Faults) -> None:
    progress = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":1}}'
    rest = {
        "twice": (f"{OK}\n{LATE}\n{LATE}\n", 2),
        "an unknown id": (LATE.replace("$ID", "4711") + f"\n{OK}\n", 1),
        "the id as text": (LATE.replace("$ID", '"$ID"') + f"\n{OK}\n", 1),
        "the id as a float": (LATE.replace("$ID", "$ID.0") + f"\n{OK}\n", 1),
        "no id": (LATE.replace("$ID", "null") + f"\n{OK}\n", 1),
        "a list as id": (LATE.replace("$ID", "[$ID]") + f"\n{OK}\n", 1),
        "an error after the result": (
            f'{OK}\n{{"jsonrpc":"2.0","id":$ID,"error":{{"code":1,"message":"m"}}}}\n',
            1,
        ),
        "two ids, of which the last counts": (LATE.replace("$ID", '$ID,"id":4711') + f"\n{OK}\n", 1),
        "two results, of which the last counts": (OK.replace('"result"', '"result":{"content":[]},"result"') + "\n", 0),
        "progress after the end": (f"{OK}\n{progress}\n", 0),
        "progress for a stranger": (progress.replace("$ID", "4711") + f"\n{OK}\n", 0),
    }
    async with faults.serving({"bad": bad_entry()}) as workbench:
        for kind, (latin1, _) in rest.items():
            result = await workbench.call("bad", "raw", {"latin1": latin1}, _meta={"progressToken": "mine"})
            assert result.get("structuredContent") == {"ok": 1}, (kind, result)
        assert await workbench.value("bad", "count") == {"count": 1}
        assert (await workbench.server_status())["unmatchedAnswers"] == sum(count for _, count in rest.values())
        assert (workbench.client.unmatched, workbench.client.notifications) == ([], [])


async def test_the_answer_to_a_cancelled_call_is_dropped(faults: Faults) -> None:
    async with faults.serving({"bad": bad_entry()}) as workbench:
        await workbench.value("bad", "count")
        calls = [await workbench.start("bad", "late", {"seconds": 0.3}) for _ in range(10)]
        for call in calls:
            await workbench.client.cancel(call)
        while (await workbench.server_status())["unmatchedAnswers"] < 10:
            assert (await workbench.value("good", "echo", {})) == {}
        assert len((await workbench.value("bad", "cancelled"))["cancelled"]) == 10
        assert not any(call.answered for call in calls) and workbench.client.unmatched == []
