"""What it costs to look at a workbench: `top`, a page that is open, with and without what it keeps of calls, a
Prometheus that asks for figures, traces, and all of that together. In instructions of a call, counted by valgrind, and
in CPU time, with what the kernel does for a call.

Owns who looks. Knows nothing about how instructions are counted (`instructions`).
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from bench.calls import Effort
from bench.client import BenchError
from bench.findings import COUNTING, UNCOUNTED, WORKBENCH, Finding, Verdict, share_in_rounds, values_of
from bench.http_client import HttpCaller
from bench.http_sessions import processor_seconds
from bench.http_subjects import Listener, make_key
from bench.instructions import (
    COUNTING_TIMES,
    UNCOUNTING,
    VALGRIND_START_DEADLINE,
    Between,
    Ready,
    Run,
    compared,
    count,
    environment,
    flat_call,
    http_command,
    make_calls,
    make_some,
    ready_stdio,
    stdio_workbench,
    with_script,
    write_config,
)

# With everything that looks at calls.
SEEN_TIMES: Final = 1.10
# Beyond what counting takes.
TRACED_TIMES: Final = 1.05
KEYED: Final = "workbench with a key"
OPEN_PAGE: Final = "the same with an open page that keeps nothing of calls"
CAPTURING_PAGE: Final = "the same with an open page that keeps arguments and results"
# Prometheus asks every 15 s by default; this is as often as for 67 calls a second. A call takes milliseconds under
# valgrind, so the real interval would say as little as none.
CALLS_PER_SCRAPE: Final = 1000
SCRAPED: Final = f"the same, asked for its metrics after every {CALLS_PER_SCRAPE:,} calls"
# `top` asks every second; this is as often as at 1,000 calls a second.
CALLS_PER_LOOK: Final = 1000
TOPPED: Final = f"the same, shown by `top` after every {CALLS_PER_LOOK:,} calls"
TOPPED_EACH_SECOND: Final = "the same, shown by `top` each second"
LOOK_INTERVAL: Final = 1.0
# How often it is asked whether a second has passed.
CALLS_PER_GLANCE: Final = 100
TRACED_PART: Final = 0.1
EVERYTHING: Final = "the same with metrics, a tenth of calls traced, and an open page that keeps content"
SOCKET_INTERVAL: Final = 0.1
ROUNDS_OF_A_PAIR: Final = 5
# A round lasts longer than the second after which an open page looks at everything.
SEQUENCES_OF_A_ROUND: Final = 4
# Two or three looks of `top`.
SEQUENCES_WITH_LOOKS: Final = 12
_KEY_OF_PAGE: Final = re.compile(rb'name="page-key" content="([^"]+)"')

Looking = Callable[[str, str], AbstractContextManager[Callable[[], None]]]
Opening = Callable[[Path], AbstractContextManager[Ready]]


def top_instructions(folder: Path) -> Finding:
    """Over stdio, where calls are counted only while somebody looks."""
    counted = [count(WORKBENCH, stdio_workbench(), folder), count(TOPPED, stdio_workbench(looker=_top), folder)]
    title = f"instructions of a call while `top` runs, with one look in {CALLS_PER_LOOK:,} calls"
    return compared("top-instructions", title, counted, "against the same without", SEEN_TIMES)


def everything_instructions(folder: Path) -> Finding:
    """All that a workbench can show of calls, against one that does not even count them."""
    with _collector() as address:
        everything = _watched(_open_page, metrics=True, traces=(address, TRACED_PART))
        counted = [
            count(f"{UNCOUNTED}, with a key", _watched(_nobody, is_counting=False), folder),
            count(EVERYTHING, everything, folder),
        ]
    title = "instructions of a call while everything is shown"
    return compared("everything-instructions", title, counted, "against the same without counting", SEEN_TIMES)


def page_instructions(folder: Path) -> Finding:
    counted = [
        count(KEYED, _watched(_nobody), folder),
        count(CAPTURING_PAGE, _watched(_open_page), folder),
        count(OPEN_PAGE, _watched(_open_page, capture="none"), folder),
    ]
    return compared(
        "page-instructions", "instructions of a call while a page is open", counted, "against the same", SEEN_TIMES
    )


def scrape_instructions(folder: Path) -> Finding:
    counted = [count(KEYED, _watched(_nobody), folder), count(SCRAPED, _watched(_scraping), folder)]
    title = f"instructions of a call, with one request for metrics in {CALLS_PER_SCRAPE:,} calls"
    return compared("scrape-instructions", title, counted, "against the same without", SEEN_TIMES)


def tracing_instructions(folder: Path) -> Finding:
    """Over stdio, where nothing else is counted; the thread that sends spans is included."""
    with _collector() as address:
        counted = [count(COUNTING, stdio_workbench(is_counting=True), folder)]
        for part in (TRACED_PART, 0.0, 1.0):
            run = stdio_workbench(is_counting=True, traces=(address, part))
            counted.append(count(f"the same, {part:.0%} of calls traced", run, folder))
    title = "instructions of a call with traces"
    return compared("tracing-instructions", title, counted, "10 % traced, against counting alone", TRACED_TIMES)


# ── the same in CPU time ──


def counting_cpu(folder: Path, effort: Effort) -> Finding:
    """With the kernel's part of a call, which counting does not touch."""
    openings: dict[str, Opening] = {WORKBENCH: ready_stdio, COUNTING: partial(ready_stdio, is_counting=True)}
    return _timed("counting-cpu", "CPU time of a call that is counted", openings, COUNTING_TIMES, folder, effort)


def http_counting_cpu(folder: Path, effort: Effort) -> Finding:
    openings: dict[str, Opening] = {UNCOUNTED: partial(_ready_http, is_counting=False), KEYED: _ready_http}
    title = "CPU time of a call over HTTP that is counted"
    return _timed("http-counting-cpu", title, openings, COUNTING_TIMES, folder, effort)


def top_cpu(folder: Path, effort: Effort) -> Finding:
    """As `top` looks: each second. Rounds are longer, so that each has some looks."""
    looked_at = partial(ready_stdio, looker=_top_each_second)
    openings: dict[str, Opening] = {WORKBENCH: ready_stdio, TOPPED_EACH_SECOND: looked_at}
    title = "CPU time of a call while `top` runs"
    return _timed("top-cpu", title, openings, SEEN_TIMES, folder, effort, SEQUENCES_WITH_LOOKS)


def tracing_cpu(folder: Path, effort: Effort) -> Finding:
    with _collector() as address:
        counted = partial(ready_stdio, is_counting=True)
        traced = partial(ready_stdio, is_counting=True, traces=(address, TRACED_PART))
        openings = {COUNTING: counted, f"the same, {TRACED_PART:.0%} of calls traced": traced}
        return _timed("tracing-cpu", "CPU time of a call with traces", openings, TRACED_TIMES, folder, effort)


def everything_cpu(folder: Path, effort: Effort) -> Finding:
    with _collector() as address:
        everything = partial(_ready_http, looking=_open_page, metrics=True, traces=(address, TRACED_PART))
        openings = {f"{UNCOUNTED}, with a key": partial(_ready_http, is_counting=False), EVERYTHING: everything}
        title = "CPU time of a call while everything is shown"
        return _timed("everything-cpu", title, openings, SEEN_TIMES, folder, effort)


def _timed(
    name: str,
    title: str,
    openings: Mapping[str, Opening],
    bound: float,
    folder: Path,
    effort: Effort,
    sequences: int = SEQUENCES_OF_A_ROUND,
) -> Finding:
    """The second against the first, each by its quickest round: others on the machine only add to the time that a call
    takes. A process is quicker or slower than its twin for as long as it lives, so the median of several pairs is
    judged. What the kernel and our threads do for calls is included."""
    samples: dict[str, list[float]] = {subject: [] for subject in openings}
    quickest: dict[str, list[float]] = {subject: [] for subject in openings}
    calls = effort.sequential * sequences
    for pair in range((effort.rounds + 1) // 2):
        with ExitStack() as stack:
            running: dict[str, Ready] = {}
            for subject, opening in openings.items():
                own = folder / f"{name}-{pair}-{len(running)}"
                own.mkdir()
                running[subject] = stack.enter_context(opening(own))
                _cpu_of_calls(running[subject], effort.sequential)
            for number in range(ROUNDS_OF_A_PAIR):
                for subject in list(running)[:: 1 if number % 2 == 0 else -1]:
                    samples[subject].append(_cpu_of_calls(running[subject], calls))
        for subject, found in samples.items():
            quickest[subject].append(min(found[-ROUNDS_OF_A_PAIR:]))
    first, second = openings
    measured = share_in_rounds(quickest, second, first)
    verdict = Verdict("CPU time of a call, against the same without", measured, bound, False, "×")
    return Finding(name, title, values_of(samples, "s"), verdict)


def _cpu_of_calls(ready: Ready, calls: int) -> float:
    """Of one of so many calls."""
    before = processor_seconds(ready.pid)
    make_some(ready.caller, ready.call, calls, ready.between)
    return (processor_seconds(ready.pid) - before) / calls


# ── what is run ──


def _watched(
    looking: Looking,
    capture: str = "redacted",
    *,
    is_counting: bool = True,
    metrics: bool = False,
    traces: tuple[str, float] | None = None,
) -> Run:
    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        options = {"is_counting": is_counting, "metrics": metrics}
        with _ready_http(folder, prefix, looking, capture, **options, traces=traces) as ready:
            return make_calls(*ready[:3], calls, least_seconds, ready.between)

    return run


@contextmanager
def _ready_http(
    folder: Path,
    prefix: tuple[str, ...] = (),
    looking: Looking | None = None,
    capture: str = "redacted",
    *,
    is_counting: bool = True,
    metrics: bool = False,
    traces: tuple[str, float] | None = None,
) -> Iterator[Ready]:
    own = environment(folder)
    token = make_key(own)
    config = write_config(folder, in_toolbox=False, page={"capture": capture}, metrics=metrics, traces=traces)
    command = http_command(prefix, config)
    if not is_counting:
        command = with_script(command, UNCOUNTING)
    with Listener(command, own, VALGRIND_START_DEADLINE) as listener:
        with HttpCaller(listener.url, token=token) as caller, (looking or _nobody)(listener.url, token) as look:
            yield Ready(caller, listener.pid, flat_call(), (CALLS_PER_SCRAPE, look))


# ── who looks ──


def _nobody(url: str, token: str) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


@contextmanager
def _top(pid: int, folder: Path) -> Iterator[Between]:
    """Asks what `top` asks."""
    path = folder / f"mcp-workbench-{os.getuid()}" / f"{pid}.watch.sock"
    deadline = time.monotonic() + VALGRIND_START_DEADLINE
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(VALGRIND_START_DEADLINE)
        # On a busy machine a while passes between the socket's file and its first connection.
        while link.connect_ex(str(path)):
            if time.monotonic() > deadline:
                raise BenchError("`top` finds no workbench")
            time.sleep(SOCKET_INTERVAL)
        with link.makefile("rwb") as stream:

            def look() -> int:
                """How many calls it shows."""
                stream.write(b'{"do":"look"}\n')
                stream.flush()
                return sum(each["calls"] for each in json.loads(stream.readline())["figures"].values())

            look()
            yield CALLS_PER_LOOK, look
            if not look():
                raise BenchError("`top` saw no call")


@contextmanager
def _top_each_second(pid: int, folder: Path) -> Iterator[Between]:
    due = time.monotonic()

    def look_if_due() -> None:
        nonlocal due
        if time.monotonic() >= due:
            look()
            due = time.monotonic() + LOOK_INTERVAL

    with _top(pid, folder) as (_, look):
        yield CALLS_PER_GLANCE, look_if_due


@contextmanager
def _scraping(url: str, token: str) -> Iterator[Callable[[], None]]:
    connection = _connect(url)

    def scrape() -> None:
        connection.request("GET", "/metrics", headers={"authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        if answer.status != 200 or b"workbench_" not in answer.read():
            raise BenchError(f"no metrics: {answer.status}")

    try:
        scrape()
        yield scrape
    finally:
        connection.close()


@contextmanager
def _open_page(url: str, token: str) -> Iterator[Callable[[], None]]:
    """A signed-in page as its browser keeps it open: a stream of events, which is read."""
    connection = _connect(url)
    origin = "http://" + urlsplit(url).netloc
    headers = {"origin": origin, "sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/login", f"key={quote(token)}", headers)
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.headers["set-cookie"] or "").partition(";")[0]
    connection.request("GET", "/", headers={"cookie": cookie})
    found = _KEY_OF_PAGE.search(connection.getresponse().read())
    if found is None:
        raise BenchError("the page could not be opened")
    connection.request("GET", "/api/events", headers={"cookie": cookie, "x-csrf": found[1].decode()})
    stream = connection.getresponse()
    if stream.status != 200:
        raise BenchError(f"the page shows nothing: {stream.status}")
    seen = [0]

    def read() -> None:
        try:
            while event := stream.readline():
                seen[0] += event.startswith(b"event:")
        except (OSError, ValueError, http.client.HTTPException):
            # The workbench has ended.
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield lambda: None
        if not seen[0]:
            raise BenchError("no event came to the page")
    finally:
        if connection.sock is not None:
            connection.sock.close()


@contextmanager
def _collector() -> Iterator[str]:
    """Takes all spans and forgets them."""

    class Taking(BaseHTTPRequestHandler):
        # Collectors keep connections open.
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=VALGRIND_START_DEADLINE)
