"""What surrounds us fails: a port in use, no descriptors left, a disk that is full or cannot be written, no home.

One clear line, or it works without.
"""

from __future__ import annotations

import ast
import asyncio
import compileall
import contextlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.cli.main import MIN_FREE_FILES
from mcp_workbench.engine.transport.open_files import MAX_OPEN_FILES
from tests.faults.bad_client import PATIENCE
from tests.faults.running_workbench import Faults, bad_entry, port_of
from tests.faults.vitals import descriptors_by_kind, processor_seconds
from tests.support.client import RawClient
from tests.support.processes import descendants, eventually
from tests.support.workbench import workbench_command

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mcp_workbench"


# Ports


@pytest.mark.parametrize("form", ["127.0.0.1:{port}", "{port}", "localhost:{port}"])
def test_a_port_in_use_is_one_clear_line_and_exit_2(faults: Faults, form: str) -> None:
    config = faults.write_config({})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = workbench_command(config, "--http", form.format(port=port))
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=faults.environment())
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.strip().splitlines()
    assert f"port {port}" in first and "is in use by another program" in first
    assert any(line.startswith("hint: choose another port") for line in rest)
    faults.nothing_left_on_disk()


# Descriptors


async def test_without_descriptors_left_new_servers_are_refused_clearly_and_running_ones_go_on(faults: Faults) -> None:
    servers = {f"bad{number}": bad_entry(name=f"bad{number}") for number in range(10)}
    async with faults.serving(servers) as workbench:
        # Room for one or two servers more.
        soft = sum(descriptors_by_kind(workbench.pid).values()) + 12
        _, hard = resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (soft, hard))
        reasons = await workbench.unavailable()
        assert 8 <= len(reasons) < 10
        assert all("Too many open files" in reason or "too many open files" in reason for reason in reasons.values())
        await workbench.others_work()
        working = next(name for name in servers if name not in reasons)
        assert await workbench.value(working, "count") == {"count": 1}
        text = await workbench.failure(next(iter(reasons)), "count")
        assert "oo many open files" in text
        # When there is room again, they work.
        resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert await workbench.unavailable() == {}
        for name in servers:
            assert not (await workbench.call(name, "echo", {})).get("isError")
        assert "defect" not in workbench.process.stderr and "Traceback" not in workbench.process.stderr


async def test_whichever_descriptor_is_the_one_too_many_nothing_is_left_of_the_start(faults: Faults) -> None:
    """A start takes its descriptors one after the other; it may fail at any of them."""
    async with faults.serving({"bad": bad_entry()}) as workbench:
        used = sum(descriptors_by_kind(workbench.pid).values())
        below = descendants(workbench.pid)
        _, hard = resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE)
        outcomes = []
        for room in range(14):
            resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (used + room, hard))
            reason = (await workbench.unavailable()).get("bad")
            outcomes.append(reason is None)
            if reason is not None:
                assert "too many open files" in reason.lower(), (room, reason)
                await eventually(
                    lambda: descendants(workbench.pid) == below, what=f"as many processes, with {room} to spare"
                )
            else:
                resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (hard, hard))
                await workbench.failure("bad", "crash")
                await eventually(lambda: descendants(workbench.pid) == below, what="the end of the server")
                await eventually(
                    lambda: sum(descriptors_by_kind(workbench.pid).values()) == used, what="as many descriptors"
                )
        assert not outcomes[0] and outcomes[-1]
        resource.prlimit(workbench.pid, resource.RLIMIT_NOFILE, (hard, hard))
        await workbench.others_work()
        assert "defect" not in workbench.process.stderr and "Traceback" not in workbench.process.stderr


async def test_serving_many_clients_raises_the_limit_on_open_files(faults: Faults) -> None:
    serving = [*workbench_command(faults.write_config({"bad": bad_entry()})), "--http", "127.0.0.1:0", "--no-token"]
    command = ["/bin/sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh", *serving]
    async with RawClient.spawn(command, env=faults.environment()) as process:
        await port_of(process)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == (MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)) > 200
        process.process.terminate()
        assert await process.wait_exit() == 0


@pytest.mark.parametrize("limit", range(6, 32, 2))
async def test_with_few_files_from_the_start_we_say_so_or_work(faults: Faults, limit: int) -> None:
    """Too few to run, enough to run but not for a server, enough: never a traceback, and never a wrong reason."""
    config = faults.write_config({"bad": bad_entry()})
    command = ["/bin/sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *workbench_command(config)]
    async with RawClient.spawn(command, env=faults.environment()) as client:
        if limit < MIN_FREE_FILES + 3:
            assert await client.wait_exit() == 1
            assert client.stderr == (
                "error: mcp-workbench cannot run: no more files can be opened\n\n"
                "hint: raise the limit on open files (ulimit -n)\n"
            )
            return
        await client.initialize()
        result = await client.use_tool("box", "bad", "count")
        if result.get("isError"):
            text = result["content"][0]["text"]
            assert "oo many open files" in text or "no more files can be opened" in text
            assert "hint: raise the limit on open files (ulimit -n)" in text
            assert "oo many open files" in client.stderr or "no more files can be opened" in client.stderr
        else:
            assert result["structuredContent"] == {"count": 1}
        assert "Traceback" not in client.stderr and "defect" not in client.stderr


async def test_a_background_shortage_of_files_is_logged_in_one_line(faults: Faults) -> None:
    """A moment after servers have spoken we work out how toolboxes are introduced, with modules not loaded before."""
    config = faults.write_config({"bad": bad_entry()})
    async with RawClient.spawn(workbench_command(config), env=faults.environment()) as client:
        await client.initialize()
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
        _, hard = resource.prlimit(client.pid, resource.RLIMIT_NOFILE)
        # What is open stays open.
        resource.prlimit(client.pid, resource.RLIMIT_NOFILE, (3, hard))
        await client.wait_for(lambda: "no more files can be opened" in client.stderr, "the one line")
        assert "an operation failed: no more files can be opened; raise the limit" in client.stderr
        assert "Traceback" not in client.stderr and "defect" not in client.stderr
        resource.prlimit(client.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 2}


# Memory


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("kibibytes", [8_000, 9_600, 10_000, 12_000])
def test_too_little_memory_to_start_is_one_clear_line(faults: Faults, kibibytes: int, is_compiled: bool) -> None:
    """Also while modules are compiled, because they have just been changed: the compiler has errors of its own."""
    environment = faults.environment()
    if is_compiled:
        assert compileall.compile_dir(SOURCE, quiet=1)
    else:
        environment |= {"PYTHONPYCACHEPREFIX": str(faults.folder / "nothing"), "PYTHONDONTWRITEBYTECODE": "1"}
    config = faults.write_config({"bad": bad_entry()})
    command = ["/bin/sh", "-c", f'ulimit -d {kibibytes}; exec "$@"', "sh", *workbench_command(config)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: mcp-workbench cannot run: there is not enough memory\n\nhint: raise the limit on memory\n"
    )


async def test_a_request_that_there_is_no_memory_for_does_not_end_in_success(faults: Faults) -> None:
    async with RawClient.spawn(workbench_command(faults.write_config({})), env=faults.environment()) as client:
        await client.initialize()
        _, hard = resource.prlimit(client.pid, resource.RLIMIT_DATA)
        data = int(re.findall(r"VmData:\s+(\d+) kB", Path(f"/proc/{client.pid}/status").read_text())[0]) * 1024
        resource.prlimit(client.pid, resource.RLIMIT_DATA, (data + 16 * 2**20, hard))
        with contextlib.suppress(ConnectionError):
            await client.send_bytes(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"x" * (100 * 2**20))
        assert await client.wait_exit() == 1
        assert "error: mcp-workbench cannot run: there is not enough memory" in client.stderr


async def test_an_answer_that_there_is_no_memory_for_ends_that_server_alone_and_costs_next_to_nothing(
    faults: Faults,
) -> None:
    """The pipe stays readable: whoever tries again in each iteration of the loop takes a whole processor."""
    async with faults.serving({"bad": bad_entry()}, large=True) as workbench:
        await workbench.value("bad", "count")
        _, hard = resource.prlimit(workbench.pid, resource.RLIMIT_DATA)
        data = int(re.findall(r"VmData:\s+(\d+) kB", Path(f"/proc/{workbench.pid}/status").read_text())[0]) * 1024
        resource.prlimit(workbench.pid, resource.RLIMIT_DATA, (data + 16 * 2**20, hard))
        text = await workbench.failure("bad", "large", {"bytes": 100 * 2**20})
        assert "there is not enough memory" in text
        await workbench.others_work()
        resource.prlimit(workbench.pid, resource.RLIMIT_DATA, (hard, hard))
        began = processor_seconds(workbench.pid)
        assert await workbench.value("bad", "count") == {"count": 1}
        await workbench.others_work()
        assert processor_seconds(workbench.pid) - began < 1.0
        assert workbench.process.stderr.count("Traceback") == 0, workbench.process.stderr


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB; only root can have one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_means_that_nothing_is_remembered_and_nothing_else(
    faults: Faults, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    async with faults.serving({"bad": bad_entry()}) as workbench:
        assert await workbench.value("bad", "count") == {"count": 1}
        fill(small_disk)
        assert await workbench.value("bad", "grow", {"to": 2000, "step": 2000}) == {"tools": 2000}
        async with asyncio.timeout(PATIENCE):
            while (await workbench.server_status())["tools"] <= 2000:
                await workbench.others_work(1)
        assert await workbench.value("bad", "extra_1999", {"n": 1}) == {"n": 1}
        workbench.kept_bytes = 2000 * 2048
    assert not list(small_disk.rglob("*.new")), "no half of a manifest stays"


def fill(folder: Path) -> None:
    """Until nothing fits any more, whoever else is writing."""
    with (folder / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


async def test_a_cache_and_a_log_that_cannot_be_written_are_done_without(
    faults: Faults, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    log = small_disk / "log"
    async with faults.serving({"bad": bad_entry()}, "--log-file", log) as workbench:
        fill(small_disk)
        for number in range(300):
            await workbench.value("bad", "raw", {"latin1": _noisy(number)})
        await workbench.others_work()


def _noisy(number: int) -> str:
    return f'noise {number}\n{{"jsonrpc":"2.0","id":$ID,"result":{{"content":[],"structuredContent":{{}}}}}}\n'


async def test_a_cache_folder_that_is_read_only_is_done_without(
    faults: Faults, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    async with faults.serving({"bad": bad_entry()}) as workbench:
        assert await workbench.value("bad", "count") == {"count": 1}
        assert await workbench.unavailable() == {}


async def test_a_file_where_the_cache_should_be_is_done_without(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.path("file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(faults.path("file")))
    async with faults.serving({"bad": bad_entry()}) as workbench:
        assert await workbench.value("bad", "count") == {"count": 1}


def test_a_log_file_that_cannot_be_opened_is_one_clear_line(faults: Faults) -> None:
    config = faults.write_config({})
    command = workbench_command(config, "--log-file", faults.path("no-such-folder") / "log")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be opened: No such file or directory" in done.stderr and "Traceback" not in done.stderr


# Home, temporary folder, standard streams


@pytest.mark.parametrize("home", [None, "", "/dev/null", "/dev/null/below"])
async def test_without_home_and_with_nothing_but_a_path_we_work(faults: Faults, home: str | None) -> None:
    config = faults.write_config({"bad": bad_entry()})
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(faults.temporary)}
    if home is not None:
        environment["HOME"] = home
    spawned = RawClient.spawn(workbench_command(config), env=environment, cwd=faults.temporary)
    async with spawned as client:
        await client.initialize()
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
    faults.nothing_left_on_disk()


def test_without_home_and_without_a_configuration_it_is_one_clear_line(faults: Faults) -> None:
    command = [sys.executable, "-m", "mcp_workbench", "serve"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        cwd=faults.folder,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no configuration found") and "Traceback" not in done.stderr


async def test_without_a_folder_for_temporary_files_we_work(faults: Faults) -> None:
    config = faults.write_config({"bad": bad_entry()})
    gone = str(faults.path("gone"))
    environment = {**os.environ, "TMPDIR": gone, "XDG_RUNTIME_DIR": gone}
    async with RawClient.spawn(workbench_command(config), env=environment) as client:
        await client.initialize()
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
        assert "Traceback" not in client.stderr


async def test_with_stderr_closed_we_work(faults: Faults) -> None:
    config = faults.write_config({"bad": bad_entry()})
    words = " ".join(f"'{word}'" for word in workbench_command(config))
    async with RawClient.spawn(["/bin/sh", "-c", f"exec {words} 2>&-"], env=faults.environment()) as client:
        await client.initialize()
        for number in range(20):
            assert (await client.use_tool("box", "bad", "echo", {"n": number}))["structuredContent"] == {"n": number}
        assert client.garbage == []
    faults.nothing_left_on_disk()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_without_the_streams_that_the_protocol_needs_we_end_at_once(faults: Faults, closed: str) -> None:
    config = faults.write_config({"bad": bad_entry()})
    words = " ".join(f"'{word}'" for word in workbench_command(config))
    command = ["/bin/sh", "-c", f"exec {words} {closed}"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=faults.environment()
    )
    assert done.returncode in (0, 2)
    assert done.stdout == "" and "Traceback" not in done.stderr
    faults.nothing_left_on_disk()


# Clocks

# The wall clock may be read for people, never to decide anything: it jumps.
MAY_TELL_THE_TIME = {
    "app/metrics_page.py": "tells monitoring since when it counts",
    "app/page_serving.py": "the age of a file, which outlives this process",
    "app/page_workbench.py": "tells people when something happened",
    "engine/observe/shown_calls.py": "tells people when a call was made",
    "app/use_memory.py": "the day on which something was learned, which outlives this process",
    "setup/client_changes.py": "when a backup was made, which outlives this process",
    "signin/dpop.py": "when a proof was signed, for the clock of whoever reads it",
    "signin/shared_sign_ins.py": "when a token ends, by its issuer's clock",
    "team/policy/shared_approvals.py": "when an approval ends that other machines know",
    "seeing/process_figures.py": "tells monitoring when the process began",
    "app/client_sign_ins.py": "when somebody signed in, which may have been elsewhere; if it is wrong, they are asked again",
    "engine/catalog/manifests.py": "the age of files; what is dropped too early is learnt again",
    "cli/commands/audit.py": "what was written down in the last hours",
    "cli/commands/auth.py": "tells people when a sign-in ends",
    "cli/commands/key.py": "when a key ends, which outlives this process",
    "engine/observe/call_figures.py": "tells people when a call arrived, and since when calls are counted",
    "team/identity/bearer_tokens.py": "when a token ends, by its issuer's clock",
    "team/identity/introspection.py": "the same",
    "team/identity/jwt_tokens.py": "the same",
    "team/identity/named_keys.py": "when a key was made and ends, which outlives this process",
    "team/identity/token_exchange.py": "when a token ends, by its issuer's clock",
    "team/identity/user_headers.py": "the same",
    "team/audit/audit_lines.py": "when something happened, for people",
    "team/audit/audit_step.py": "the same",
    "team/policy/approval.py": "tells people since when a call waits",
    "engine/session/parking.py": "when a state ends that a client keeps, also while the machine sleeps",
    "app/cluster_instance.py": "tells other machines since when this one runs",
    "app/watching.py": "tells `top` when a day began",
    "engine/face/kept_results.py": "when a result ends that another machine may read",
    "cli/result_output.py": "the age of images that were saved; one removed too early is saved again",
    "cli/commands/cluster.py": "tells people since when an instance runs",
    "cluster/examination.py": "compares the clocks of machines",
    "cluster/seal.py": "when something was said to other machines; what is old is refused",
    "cluster/state.py": "the same",
    "engine/transport/http/server/sessions.py": "numbers streams, so that those of another instance have other numbers",
    "seeing/tracing.py": "when a call began, for whoever reads traces",
    "seeing/span_sender.py": "when to try again, if a collector names a time of day",
    "signin/sign_ins.py": "when somebody signed in, which outlives this process",
    "signin/signed_in_headers.py": "when a token ends, by its issuer's clock; one that is refused is refreshed whatever it says",
    "signin/token_requests.py": "when an assertion was signed, for the clock of whoever reads it",
    "engine/transport/http/server/connections.py": "the `Date` of a response",
}
WALL_CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}


def test_no_deadline_depends_on_the_wall_clock() -> None:
    """A clock that jumps by a year changes nothing: everything that is timed is timed by the monotonic clock."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith("cli/demo/"):
            continue  # servers of their own, one of which is a clock
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in WALL_CLOCKS
            ):
                found.add(name)
            if isinstance(node, ast.ImportFrom) and node.module == "time":
                assert not {alias.name for alias in node.names} & {"time", "time_ns"}, name
    assert found == set(MAY_TELL_THE_TIME)


async def test_a_wall_clock_that_stands_still_or_jumps_changes_nothing(faults: Faults) -> None:
    """Fed to the process through a start-up hook: years pass between any two looks at the clock."""
    hook = faults.path("hook")
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import itertools, time\n"
        "jumps = itertools.cycle([0.0, 4e9, 1.0, 2e9])\n"
        "time.time = lambda: next(jumps)\n"
        "time.time_ns = lambda: int(next(jumps) * 1e9)\n"
    )
    config = faults.write_config({"bad": bad_entry(timeout=1, idleTimeout=1)})
    environment = {**faults.environment(), "PYTHONPATH": os.pathsep.join([str(hook), os.environ.get("PYTHONPATH", "")])}
    async with RawClient.spawn(workbench_command(config), env=environment) as client:
        await client.initialize()
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
        result = await client.use_tool("box", "bad", "hang")
        assert "did not answer within 1 s" in result["content"][0]["text"]
        await client.wait_for(lambda: "without a call" in client.stderr, "the end of an idle server")
        assert (await client.use_tool("box", "bad", "count"))["structuredContent"] == {"count": 1}
        status = await client.request("resources/read", {"uri": "workbench://status"})
        assert 0 < json.loads(status["contents"][0]["text"])["uptimeSeconds"] < 100
    faults.nothing_left_on_disk()
