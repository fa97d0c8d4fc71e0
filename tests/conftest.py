"""What every test gets: async tests, a cache of its own, and checks that it leaves nothing running or open behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mcp_workbench.engine.process_context import DEBUGGER
from tests.support import examples, processes, workbench

# Container images like to set this. Without cached bytecode every worker rewrites the assertions of every test file
# (17 s of CPU instead of 8), and every workbench that a test starts compiles itself (0.58 s instead of 0.17).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests look into processes of ours, and an ordinary user could not.
os.environ[DEBUGGER] = "1"

# `make quick` looks at fewer examples; the whole suite is thorough.
# A deadline is a stopwatch: on a busy machine it says nothing of the code.
hypothesis.settings.register_profile("thorough", max_examples=examples.THOROUGH, deadline=None)
hypothesis.settings.load_profile("thorough")
hypothesis.settings.register_profile("quick", max_examples=examples.QUICK, deadline=None)

# A test that takes longer hangs; tests that are meant to be long have a runner of their own.
TEST_TIMEOUT = 300.0
# What a process that was told to go may take to do so on a busy machine.
GOODBYE_TIMEOUT = 20.0
# What a thread of ours has open at the end of a test is closed by then.
CLOSE_TIMEOUT = 10.0


# Folders whose tests start programs or open sockets. Elsewhere such a test carries the mark itself, and one without it
# is stopped: `make quick` runs all that is left.
WITH_PROCESSES = (
    *(
        "bench",
        "cli",
        "conformance",
        "end_to_end",
        "engine/transport",
        "faults",
        "http_clients",
        "real_authorities",
        "real_clients",
    ),
    *("real_servers", "scripts", "sharing", "soak", "support"),
)
# Those of them whose tests close all that they open, in this process: they are looked at, too.
CLOSING = ("app", "engine/transport", "setup")
# How a file says it of all its tests.
WHOLE_FILE = b"\npytestmark = pytest.mark.processes\n"
STARTS_SOMETHING = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.connect"})
# Folders whose tests share what takes long to set up (installed packages, runs of a whole suite): one worker runs each.
SHARED_SETUP = ("conformance", "http_clients", "real_authorities", "real_clients", "real_servers")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Ten thousand tests are millions of objects, and none is garbage: the collector need never look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests without processes are asked for, files that have none are not even imported."""
    if config.option.markexpr != "not processes":
        return None
    if collection_path.is_dir():
        return _is_in(WITH_PROCESSES, collection_path) or None
    return (collection_path.suffix == ".py" and WHOLE_FILE in collection_path.read_bytes()) or None


# First, because `-m` looks at the marks when it runs.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_in(WITH_PROCESSES, item.path):
            item.add_marker(pytest.mark.processes)
    if hasattr(config, "workerinput"):
        # What takes longest first: no worker is left with it when the others have nothing more to do.
        waiting = {item.path for item in items if item.get_closest_marker("processes")}
        items.sort(key=lambda item: (not _is_in(SHARED_SETUP, item.path), item.path not in waiting))


def _is_in(folders: tuple[str, ...], path: Path) -> bool:
    here = Path(__file__).parent
    return not {here / folder for folder in folders}.isdisjoint((path, *path.parents))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who is given which tests; not where `--dist` asks for another way."""
    if config.getvalue("dist") != "load":
        return None
    from tests.support.distribution import FilesTogether

    return FilesTogether(config, log, {f"tests/{folder}" for folder in SHARED_SETUP})


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def test_...` on an event loop of its own."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    has_transports = pyfuncitem.get_closest_marker("processes") is not None

    async def run() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            await function(**arguments)
        # One iteration of the loop for tasks that have just been cancelled.
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        # One that goes off later finds what it was for long gone. Transports have timers of their own for a while.
        scheduled = [] if has_transports else asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        # Those that trim the memory of the process belong to it, not to what was tested.
        timers = [each for each in scheduled if not each.cancelled() and "_trim_to_kept" not in repr(each)]
        assert not timers, f"timers left behind: {timers}"

    with asyncio.Runner() as runner:
        runner.run(run())
    return True


class _Watchman:
    """An audit hook cannot be taken away again; it looks only while a test runs that must not start anything."""

    is_watching = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_watching and event in STARTS_SOMETHING:
            raise RuntimeError(f"`{event}` in a test without `pytest.mark.processes`")


_watchman = _Watchman()


def pytest_configure(config: pytest.Config) -> None:
    # Coverage installs a trace function in each thread, which is an audit event. On Python 3.11 no other thread may do
    # so meanwhile, and a hook written in Python lets others run: their threads would die before their first line.
    # Other runs of CI are without coverage.
    if not config.getoption("cov_source", None):
        sys.addaudithook(_watchman)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    _watchman.is_watching = item.get_closest_marker("processes") is None
    try:
        return (yield)
    finally:
        _watchman.is_watching = False


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_not_ignored() -> None:
    """A shell starts background jobs with SIGINT ignored, and every process that we start would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _orphans_come_to_us() -> None:
    if processes.available():
        processes.adopt_orphans()


@pytest.fixture(autouse=True)
def _no_process_left_behind(_orphans_come_to_us: None, request: pytest.FixtureRequest) -> Iterator[None]:
    # To look at every process of the machine takes longer than most tests that cannot start one.
    if not processes.available() or request.node.get_closest_marker("processes") is None:
        yield
        return

    def running() -> set[int]:
        # To look through all processes of the machine takes milliseconds; most tests leave nothing to look for.
        return processes.descendants(os.getpid()) if processes.has_children() else set()

    before = running()
    yield

    def left() -> set[int]:
        return running() - before

    try:
        processes.wait_until(lambda: not left(), GOODBYE_TIMEOUT)
    except AssertionError:
        survivors = left()
        description = processes.describe(survivors)
        for pid in survivors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes left behind:\n{description}")
    finally:
        processes.reap_zombies()


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        # The one of the listing itself is gone by now.
        with suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _opened_since(before: dict[int, str]) -> dict[int, str]:
    return {number: path for number, path in _descriptors().items() if before.get(number) != path}


@pytest.fixture(scope="session", autouse=True)
def _pipe_of_the_process() -> None:
    """libuv opens it with the first event loop of a process, and keeps it."""
    with suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def _no_descriptor_left_behind(
    _orphans_come_to_us: None, _pipe_of_the_process: None, request: pytest.FixtureRequest
) -> Iterator[None]:
    is_looked_at = request.node.get_closest_marker("processes") is None or _is_in(CLOSING, request.node.path)
    if not processes.available() or not is_looked_at:
        yield
        return
    before = _descriptors()
    yield
    left = _opened_since(before)
    if left:
        # Python warns of those that only the collector closes.
        gc.collect()
        # A cache is written by a thread that may outlive its test by a moment; so do transports, and programs.
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while (left := _opened_since(before)) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not left, f"descriptors left behind: {left}"


_homes = itertools.count()


@pytest.fixture(autouse=True)
def cache_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty cache and an empty user configuration: what the person who runs the tests has must not matter."""
    if "tmp_path" in request.fixturenames:
        home: Path = request.getfixturevalue("tmp_path")
    else:
        # Most tests write nothing: for them no folder is made, which a later run would have to remove again.
        home = tmp_path_factory.getbasetemp() / f"home-{next(_homes)}"
    folder = home / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    monkeypatch.delenv("WORKBENCH_CONFIG", raising=False)
    return folder


@pytest.fixture(autouse=True)
def _log_level_stays() -> Iterator[None]:
    """A command with `--debug` that runs in this process must not make later tests log more."""
    logger = logging.getLogger("mcp_workbench")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def sockets_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where sockets lie: not with those of the person who runs the tests, and with a path that is short enough."""
    folder = Path(tempfile.gettempdir()) / f"wb-{os.getpid()}-{id(request.node):x}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def scripted() -> Callable[..., dict[str, Any]]:
    """`scripted("--era", "legacy", timeout=2)` is an entry of `mcpServers`."""
    return workbench.scripted_entry


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """`write_config({"box": {"server": scripted()}})` is the path of a config file with that toolbox."""
    return lambda toolboxes, **settings: workbench.write_config(tmp_path, toolboxes, **settings)
