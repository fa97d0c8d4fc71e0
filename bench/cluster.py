"""What a call costs where instances share state: the same endpoint, for the same user, with `cluster` and without.

Needs Valkey or Redis, which runs beside it and is not counted.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.client import BenchError
from bench.findings import WORKBENCH, Finding
from bench.http_client import HttpCaller
from bench.http_subjects import Listener, make_key
from bench.instructions import (
    UNPRIMED_VERSION,
    VALGRIND_START_DEADLINE,
    Run,
    compared,
    count,
    environment,
    flat_call,
    http_command,
    make_calls,
    with_script,
    write_config,
)

CLUSTER: Final = "with shared state"
CLUSTER_TIMES: Final = 1.05
CLUSTER_CALLS: Final = 2300
# Without heartbeats, which are no part of a call: under valgrind some dozens of calls fit between two, so that one more
# or less would decide. And with a state that is not away because everything takes 50 times as long.
STEADY: Final = (
    "import sys; from mcp_workbench.cluster import state, valkey_link as link;"
    "state.BEAT_INTERVAL = link.SILENCE_LIMIT = 3600.0; link.STATE_TIMEOUT = 60.0;"
    "from mcp_workbench.__main__ import main; sys.exit(main())"
)
STATE_SERVER: Final = shutil.which("valkey-server") or shutil.which("redis-server")
START_DEADLINE: Final = 30.0


def cluster_instructions(folder: Path) -> Finding:
    if STATE_SERVER is None:
        raise BenchError("neither valkey-server nor redis-server is installed")
    with _state_server() as address:
        counted = [
            count(subject, _workbench(state), folder, CLUSTER_CALLS)
            for subject, state in ((WORKBENCH, None), (CLUSTER, address))
        ]
    title = "instructions of a call over HTTP with a key, legacy client, with shared state"
    return compared("cluster-instructions", title, counted, "against the same without", CLUSTER_TIMES)


def _workbench(state: str | None) -> Run:
    def run(prefix: tuple[str, ...], folder: Path, calls: int, least_seconds: float) -> float:
        from mcp_workbench.cluster.seal import new_key

        own = environment(folder)
        token = make_key(own)
        config = write_config(folder, in_toolbox=False)
        if state is not None:
            key = folder / "cluster.key"
            key.write_text(new_key())
            key.chmod(0o600)
            settings = json.loads(config.read_text())
            # A name of its own: other runs use the same server.
            cluster = {"state": state, "name": folder.name, "key": {"file": str(key)}}
            config.write_text(json.dumps({**settings, "cluster": cluster}))
        command = with_script(http_command(prefix, config), STEADY)
        with Listener(command, own, VALGRIND_START_DEADLINE) as listener:
            with HttpCaller(listener.url, modern=False, token=token, legacy_version=UNPRIMED_VERSION) as caller:
                caller.initialize()
                return make_calls(caller, listener.pid, flat_call(), calls, least_seconds)

    return run


@contextmanager
def _state_server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert STATE_SERVER is not None
    command = [STATE_SERVER, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_DEADLINE
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise BenchError("the state server does not start") from None
                    time.sleep(0.05)
            yield f"valkey://127.0.0.1:{port}/0"
        finally:
            process.kill()
