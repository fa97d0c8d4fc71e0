"""The benchmark's HTTP tools give right answers and find wrong ones out. How fast they are is not tested here."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.client import BenchError, Call
from bench.http_client import HttpCaller, parse_response, whole_length
from bench.http_sessions import processor_seconds
from bench.http_subjects import HttpWorkshop, Listener, Reached, in_rounds, reached

pytest.importorskip("uvloop")
pytest.importorskip("orjson")

TEXT = 'Grüße, 你好, \\ " \u2028 and a tab\t'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"


def echo_call(text: str = TEXT) -> Call:
    return Call.of("echo", {"text": text}, text=text)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[HttpWorkshop]:
    with ExitStack() as stack:
        yield HttpWorkshop(tmp_path, stack)


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """`answering(data)` is the address of a server that says just that to the first request, and hangs up."""
    with ExitStack() as stack:

        def start(data: bytes) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(data)

            thread = threading.Thread(target=serve)
            thread.start()
            stack.callback(thread.join)
            return f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"

        yield start


@pytest.mark.parametrize("downstream", ["stdio", "http"])
class TestForwarder:
    @pytest.fixture
    def caller(self, downstream: str, workshop: HttpWorkshop) -> Iterator[HttpCaller]:
        echo = workshop.echo() if downstream == "http" else None
        with HttpCaller(workshop.forwarder(echo).url) as caller:
            yield caller

    def test_sequential_calls_are_all_answered_with_their_text(self, caller: HttpCaller) -> None:
        assert len(caller.latencies(echo_call(), 20)) == 20

    def test_calls_in_flight_are_all_answered_with_their_own_text(self, caller: HttpCaller) -> None:
        assert caller.calls_per_second(echo_call(), 200, 16) > 0
        assert caller.calls_per_second(echo_call(), 3, 16) > 0

    def test_large_arguments_and_results_come_whole(self, caller: HttpCaller) -> None:
        assert len(caller.latencies(echo_call(TEXT * 20_000), 2)) == 2

    def test_errors_come_back_as_errors(self, caller: HttpCaller) -> None:
        with pytest.raises(BenchError, match="-32601"):
            caller.request("no/such/method", {})


@pytest.mark.parametrize("downstream", ["stdio", "http"])
def test_every_subject_answers_rightly_in_every_round(downstream: str, tmp_path: Path) -> None:
    order: list[str] = []

    def measure(each: Reached) -> float:
        order.append(each.name)
        assert each.caller.calls_per_second(each.echo(TEXT), 10, 4 if each.name != "direct" else 1) > 0
        return sum(each.caller.latencies(each.echo(TEXT), 2))

    with reached(tmp_path, "http" if downstream == "http" else "stdio") as running:
        samples = in_rounds(running, 2, measure)
    names = ["direct", "forwarder", "workbench", "workbench, legacy client"]
    assert order == [*names, *reversed(names)]
    assert {name: len(numbers) for name, numbers in samples.items()} == dict.fromkeys(names, 2)


class TestSessions:
    def test_a_session_with_its_stream_is_alive_until_the_workbench_ends(self, workshop: HttpWorkshop) -> None:
        workbench = workshop.workbench(None)
        with HttpCaller(workbench.url, modern=False) as caller:
            caller.initialize()
            caller.open_stream()
            caller.check_session()
            workbench.close()
            with pytest.raises(BenchError, match="closed"):
                caller.check_session()

    def test_no_stream_is_opened_without_a_session(self, workshop: HttpWorkshop) -> None:
        with HttpCaller(workshop.workbench(None).url, modern=False) as caller:
            with pytest.raises(BenchError, match="no stream was opened"):
                caller.open_stream()

    @pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs the counters of Linux")
    def test_processor_time_grows_with_work_and_is_that_of_all_threads(self) -> None:
        readings = [processor_seconds(os.getpid())]

        def work() -> None:
            sum(range(300_000))
            readings.append(processor_seconds(os.getpid()))

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        assert readings[1] > readings[0]

    def test_a_process_that_is_gone_has_no_processor_time(self) -> None:
        with pytest.raises(BenchError, match="processor time"):
            processor_seconds(2**30)


class TestClient:
    def test_a_wrong_text_is_found_out(self, workshop: HttpWorkshop) -> None:
        call = Call.of("echo", {"text": "this"}, text="that")
        with HttpCaller(workshop.echo().url) as caller:
            with pytest.raises(BenchError, match="answered wrongly"):
                caller.latencies(call, 1)
            with pytest.raises(BenchError, match="answered wrongly"):
                caller.calls_per_second(call, 4, 2)

    @pytest.mark.parametrize(
        ("data", "complaint"),
        [
            (b"", "closed"),
            (b"HTTP/1.1 200 OK\r\nContent-Le", "closed"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "without a length"),
            (OK % (2, b"{}{}"), "more than one answer"),
            (OK % (9, b'{"id":99}'), "nothing we asked"),
            (OK % (19, b'{"id":1,"error":{}}'), "a call failed"),
            (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "a call failed"),
        ],
    )
    def test_wrong_answer_is_detected(self, data: bytes, complaint: str, answering: Callable[[bytes], str]) -> None:
        with HttpCaller(answering(data)) as caller, pytest.raises(BenchError, match=complaint):
            caller.latencies(echo_call(), 1)

    @given(st.binary(max_size=200), st.integers(min_value=0, max_value=300))
    def test_the_length_of_an_answer_is_known_as_soon_as_its_head_is_there(self, body: bytes, cut: int) -> None:
        whole = OK % (len(body), body)
        head = len(whole) - len(body)
        assert whole_length(whole[:cut]) == (len(whole) if cut >= head else 0)
        assert parse_response(whole).body == body

    def test_modern_requests_carry_their_headers_and_legacy_ones_do_not(self) -> None:
        modern = HttpCaller("http://127.0.0.1:1/mcp").post("tools/call", "echo", b"{}").decode()
        for line in ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"):
            assert line in modern.split("\r\n")
        legacy = HttpCaller("http://127.0.0.1:1/mcp", modern=False).post("tools/call", "echo", b"{}").decode()
        assert "Mcp-Method" not in legacy
        assert "MCP-Protocol-Version: 2025-11-25" in legacy.split("\r\n")


def test_listener_that_fails_to_start_is_reported_with_its_output() -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no such flavour')")
    with pytest.raises(BenchError, match=r"did not begin to serve\nno such flavour"):
        Listener(command, os.environ)
