"""The yardsticks of the benchmark answer rightly and completely; how fast they do it is not a test's business."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import forwarder
from bench.client import BenchError, Call, StdioCaller, decode, encode
from bench.echo_server import EchoServer, definition_bytes, serve, tool_definitions
from bench.forwarder import Forwarder, Lines

BENCH = Path(forwarder.__file__).resolve().parent
ECHO = (sys.executable, str(BENCH / "echo_server.py"))
# Without site-packages there is no orjson, and the server falls back to the standard library.
ECHO_WITHOUT_ORJSON = (sys.executable, "-I", "-S", str(BENCH / "echo_server.py"))
FORWARDER = str(BENCH / "forwarder.py")
needs_yardstick = pytest.mark.skipif(
    find_spec("uvloop") is None or find_spec("orjson") is None, reason="uvloop and orjson are not both installed"
)

TEXT = 'Grüße, 你好, \\ " \u2028 and a tab\t'
IDS = st.one_of(st.integers(min_value=-(2**53), max_value=2**53), st.text(max_size=20))


def echo_call(text: str = TEXT) -> Call:
    return Call.of("echo", {"text": text}, text=text)


def sized_call(size: int) -> Call:
    return Call.of("echo", {"size": size}, text="x" * size)


def answer(server: EchoServer, message: object) -> dict[str, Any]:
    line = server.answer(encode(message))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    decoded: dict[str, Any] = decode(line)
    return decoded


def request(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.fixture(
    params=[
        pytest.param(ECHO, id="direct"),
        pytest.param(ECHO_WITHOUT_ORJSON, id="direct-without-orjson"),
        pytest.param((sys.executable, FORWARDER, "--", *ECHO), id="forwarder", marks=needs_yardstick),
        pytest.param((sys.executable, FORWARDER, "--plain", "--", *ECHO), id="plain-forwarder"),
    ]
)
def caller(request: pytest.FixtureRequest) -> Iterator[StdioCaller]:
    with StdioCaller(request.param) as connected:
        connected.initialize()
        yield connected


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Any]:
    """Starts a server from a few lines of Python that see `read()` and `write(message)`."""
    running: list[StdioCaller] = []

    def start(body: str) -> StdioCaller:
        path = tmp_path / "server.py"
        path.write_text(
            "import json, sys\n"
            "def read(): return json.loads(sys.stdin.readline() or sys.exit(0))\n"
            "def write(**m): print(json.dumps({'jsonrpc': '2.0', **m}), flush=True)\n"
            "def result(text): return {'content': [{'type': 'text', 'text': text}]}\n" + body
        )
        running.append(StdioCaller([sys.executable, str(path)]))
        return running[-1]

    yield start
    for each in running:
        each.close()


class TestEchoServer:
    def test_the_legacy_server_shakes_hands_and_does_not_know_discovery(self) -> None:
        server = EchoServer()
        result = answer(server, request("initialize", protocolVersion="2025-06-18"))["result"]
        assert result["protocolVersion"] == "2025-06-18"
        assert result["capabilities"] == {"tools": {}}
        assert answer(server, request("ping"))["result"] == {}
        assert answer(server, request("server/discover"))["error"]["code"] == -32601

    def test_the_modern_server_is_discovered_and_does_not_shake_hands(self) -> None:
        server = EchoServer(modern=True)
        result = answer(server, request("server/discover"))["result"]
        assert result["supportedVersions"] == ["2026-07-28"]
        for cacheable in (result, answer(server, request("tools/list"))["result"]):
            assert cacheable["resultType"] == "complete"
            assert cacheable["cacheScope"] == "public"
            assert cacheable["ttlMs"] >= 0
        called = answer(server, request("tools/call", name="echo", arguments={"text": TEXT}))["result"]
        assert called == {"content": [{"type": "text", "text": TEXT}], "resultType": "complete"}
        assert answer(server, request("initialize"))["error"]["code"] == -32601

    def test_notifications_and_answers_are_not_answered_and_noise_is(self) -> None:
        server = EchoServer()
        assert server.answer(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == b""
        assert server.answer(b'{"jsonrpc":"2.0","id":1,"result":{}}') == b""
        assert decode(server.answer(b"hello"))["error"]["code"] == -32700

    def test_tool_definitions_are_as_many_as_asked_for_and_as_large_as_real_ones(self) -> None:
        assert [tool["name"] for tool in tool_definitions(1)] == ["echo"]
        tools = tool_definitions(1000)
        assert len({tool["name"] for tool in tools}) == 1000
        assert tools[0]["name"] == "echo"
        assert 1400 <= definition_bytes(tools) / 1000 <= 1600

    @given(st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=30))
    def test_requests_are_answered_however_their_bytes_arrive(self, cuts: list[int]) -> None:
        lines = b"".join(echo_call(f"{TEXT}{number}").line(number) for number in range(5)) + b"\n"
        source, feed = os.pipe()
        drain, sink = os.pipe()
        server = threading.Thread(target=serve, args=(EchoServer(), source, sink))
        server.start()
        position = 0
        for cut in cuts:
            if position < len(lines):
                os.write(feed, lines[position : position + cut])
            position += cut
        os.write(feed, lines[position:])
        os.close(feed)
        server.join()
        answers = [decode(line) for line in os.read(drain, 1 << 16).splitlines()]
        for descriptor in (source, drain, sink):
            os.close(descriptor)
        assert [each["id"] for each in answers] == [0, 1, 2, 3, 4]
        assert answers[4]["result"]["content"][0]["text"] == f"{TEXT}4"


class TestEachSubject:
    """The same calls, directly and through either forwarder: `Caller` raises when an answer is missing or wrong."""

    def test_sequential_calls_are_all_answered_with_their_text(self, caller: StdioCaller) -> None:
        assert len(caller.latencies(echo_call(), 50)) == 50

    def test_calls_in_flight_are_all_answered_with_their_text(self, caller: StdioCaller) -> None:
        assert caller.calls_per_second(echo_call(), 1000, 32) > 0
        assert caller.calls_per_second(echo_call(), 3, 32) > 0

    def test_a_result_of_a_mebibyte_comes_whole(self, caller: StdioCaller) -> None:
        assert len(caller.latencies(sized_call(1 << 20), 2)) == 2

    def test_arguments_and_results_that_fill_both_pipes_at_once_do_not_deadlock(self, caller: StdioCaller) -> None:
        assert caller.calls_per_second(echo_call(TEXT * 10_000), 12, 4) > 0

    def test_errors_come_back_as_errors(self, caller: StdioCaller) -> None:
        with pytest.raises(BenchError, match="-32601"):
            caller.request("server/discover", {})


class TestClient:
    def test_a_wrong_text_is_found_out(self) -> None:
        with StdioCaller(ECHO) as caller:
            call = Call.of("echo", {"text": "this"}, text="that")
            with pytest.raises(BenchError, match="answered wrongly"):
                caller.latencies(call, 1)
            with pytest.raises(BenchError, match="answered wrongly"):
                caller.calls_per_second(call, 4, 2)

    def test_an_error_result_is_found_out(self, scripted: Any) -> None:
        caller = scripted("while 1: write(id=read()['id'], result={**result('a'), 'isError': True})")
        with pytest.raises(BenchError, match="a call failed"):
            caller.latencies(echo_call("a"), 1)

    def test_a_second_answer_to_one_call_is_found_out(self, scripted: Any) -> None:
        caller = scripted(
            "for _ in range(2): write(id=1, result=result('a'))\nread()\nwhile 1: write(id=read()['id'], result={})"
        )
        with pytest.raises(BenchError, match="nothing we asked"):
            caller.calls_per_second(echo_call("a"), 2, 1)

    def test_as_many_calls_are_in_flight_as_asked_for_and_their_order_does_not_matter(self, scripted: Any) -> None:
        caller = scripted(
            "while 1:\n"
            "    held = [read()['id'] for _ in range(8)]\n"
            "    for each in reversed(held): write(id=each, result=result('a'))\n"
        )
        assert caller.calls_per_second(echo_call("a"), 40, 8) > 0

    def test_notifications_and_pings_between_answers_are_not_taken_for_answers(self, scripted: Any) -> None:
        caller = scripted(
            "while 1:\n"
            "    asked = read()['id']\n"
            "    write(method='notifications/message', params={})\n"
            "    write(id='ours', method='ping')\n"
            "    assert read() == {'jsonrpc': '2.0', 'id': 'ours', 'result': {}}\n"
            "    write(id=asked, result=result('a'))\n"
        )
        assert len(caller.latencies(echo_call("a"), 5)) == 5

    def test_notifications_do_not_make_the_count_of_answers_come_up_short(self, scripted: Any) -> None:
        caller = scripted(
            "while 1:\n"
            "    asked = read()['id']\n"
            "    write(method='notifications/message', params={})\n"
            "    write(id=asked, result=result('a'))\n"
        )
        assert caller.calls_per_second(echo_call("a"), 10, 10) > 0
        assert len(caller.latencies(echo_call("a"), 2)) == 2

    def test_ended_process_is_reported_with_its_output(self) -> None:
        command = [sys.executable, "-c", "import sys; sys.exit('no such flavour')"]
        with StdioCaller(command) as caller, pytest.raises(BenchError, match=r"ended early\nno such flavour"):
            caller.initialize()


class TestForwarder:
    @given(st.lists(st.binary(max_size=30), max_size=20))
    def test_lines_are_the_same_however_the_stream_is_cut(self, chunks: list[bytes]) -> None:
        splitter = Lines()
        lines = [line for chunk in chunks for line in splitter.feed(chunk)]
        assert lines == b"".join(chunks).split(b"\n")[:-1]

    @given(st.lists(IDS, max_size=20))
    def test_the_server_sees_each_id_once_and_the_client_its_own_again(self, ids: list[int | str]) -> None:
        _, decode_line, encode_line = forwarder.plain()
        between = Forwarder(decode_line, encode_line)
        asked = [{"id": each, "method": "tools/call", "params": {"x": {"y": [each]}}} for each in ids]
        seen = [decode(line) for line in between.down(b"".join(map(encode_line, asked))).splitlines()]
        assert len({each["id"] for each in seen}) == len(ids)
        assert [each["params"] for each in seen] == [each["params"] for each in asked]
        answers = b"".join(encode_line({"id": each["id"], "result": each["params"]}) for each in reversed(seen))
        returned = [decode(line) for line in between.up(answers).splitlines()]
        assert [each["id"] for each in returned] == ids[::-1]
        assert [each["result"] for each in returned] == [each["params"] for each in asked[::-1]]

    def test_requests_of_the_server_and_their_answers_keep_their_ids(self) -> None:
        _, decode_line, encode_line = forwarder.plain()
        between = Forwarder(decode_line, encode_line)
        assert decode(between.up(b'{"id":5,"method":"ping"}\n')) == {"id": 5, "method": "ping"}
        assert decode(between.down(b'{"id":5,"result":{}}\n')) == {"id": 5, "result": {}}

    def test_it_ends_with_the_client(self) -> None:
        command = [sys.executable, FORWARDER, "--plain", "--", *ECHO]
        ended = subprocess.run(command, input=echo_call().line(3), capture_output=True, timeout=30, check=True)
        assert decode(ended.stdout)["id"] == 3
        assert ended.stderr == b""

    def test_it_says_how_it_is_used(self) -> None:
        ended = subprocess.run([sys.executable, FORWARDER], capture_output=True, timeout=30, check=False)
        assert ended.returncode == 2
        assert b"usage:" in ended.stderr
