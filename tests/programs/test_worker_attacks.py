"""Attacks on the interpreter of programs: none reaches a file, the environment, the network, a process or an object of
ours, and each ends within its limits.

They run in the worker as `program_pool` starts it, but for its sandbox, which must not be what stops them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Json

pytestmark = pytest.mark.processes
pytest.importorskip("pydantic_monty", reason="the extra `programs` is not installed")

SECRET = "workbench-secret-of-this-test"
# More than an attack takes that is stopped at its limit of a second, on a busy machine.
PATIENCE = 60.0
LIMITS: Json = {"printed": 4096, "cpu": 1.0, "memory": 64 << 20, "calls": 50, "seconds": 5.0, "value": 16 << 20}

# Each must fail, unless it is in `HARMLESS`.
ATTACKS = {
    # without end
    "loop": "while True: pass",
    "comprehension": "[x for x in range(10**12)]",
    "nested comprehension": "[[y for y in range(10**6)] for x in range(10**6)]",
    "caught limit": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "finally": "try:\n    while True: pass\nfinally:\n    while True: pass",
    "sum of range": "sum(range(10**12))",
    "sort": "sorted(range(10**9), key=lambda x: -x)",
    "recursion": "def f(n): return f(n + 1)\nf(0)",
    "mutual recursion": "def f(): return g()\ndef g(): return f()\nf()",
    "regular expression": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
    "backreference": "import re\nre.search(r'(a*)*\\1b', 'a' * 5000)",
    # without bound
    "integer": "10 ** 2 ** 40",
    "shift": "1 << 10 ** 12",
    "factorial": "import math\nmath.factorial(10 ** 7)",
    "string": "'a' * 10 ** 10",
    "doubling": "x = 'a'\nwhile True: x += x",
    "list": "x = [0] * 10 ** 10",
    "growing list": "x = []\nwhile True: x.append('x' * 1000)",
    "nesting": "x = []\nfor _ in range(10 ** 7): x = [x]\nx",
    "dict": "{n: str(n) for n in range(10 ** 9)}",
    "format": "'{:>10000000000}'.format(1)",
    "percent": "'%10000000000d' % 1",
    "printing": "while True: print('x' * 1000)",
    "calls": "while True: call('a/b/c')",
    "sleep": "import time\nwhile True: time.sleep(10)",
    "shared value": "x = []\nfor _ in range(60): x = [x, x]\nx",
    "shared argument": "x = []\nfor _ in range(60): x = [x, x]\ncall('a/b/c', value=x)",
    "shared need": "x = []\nfor _ in range(60): x = [x, x]\nfind(x)",
    "shared key": "x = ()\nfor _ in range(22): x = (x, x)\n{x: 1}",
    "shared set": "x = ()\nfor _ in range(22): x = (x, x)\n{x, 1}",
    "shared text": "['a' * 1_000_000] * 1_000_000",
    "brackets": "(" * 100_000,
    "long source": "x = 1\n" * 400_000,
    # out of the sandbox
    "classes": "().__class__.__bases__[0].__subclasses__()",
    "globals": "call.__globals__",
    "code": "call.__code__",
    "format walk": "'{0.__class__.__mro__}'.format(call)",
    "import": "__import__('os').system('id')",
    "eval import": "eval(\"__import__('os')\")",
    "read file": "open('/etc/passwd').read()",
    "path": "from pathlib import Path\nPath('/etc/passwd').read_text()",
    "write file": "open('/tmp/workbench-attack', 'w').write('x')",
    "environment": "import os\nstr(os.environ)",
    "getenv": "import os\nos.getenv('WORKBENCH_SECRET')",
    "socket": "import socket\nsocket.create_connection(('127.0.0.1', 22))",
    "process": "import subprocess\nsubprocess.run(['id'])",
}

# The interpreter's regular expressions find out in no time that there is no match.
HARMLESS = {"regular expression"}


class Worker:
    """One worker, spoken to as the workbench does."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mcp_workbench.programs.worker", ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "WORKBENCH_SECRET": SECRET},
        )
        self.calls = 0
        self.read()

    def read(self) -> Json:
        assert self._process.stdout is not None
        message: Json = json.loads(self._process.stdout.readline())
        return message

    def send(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def run(self, code: str) -> Json:
        self.send({"code": code, **LIMITS})
        printed = ""
        while "end" not in (message := self.read()):
            if "printed" in message:
                printed += message["printed"]
                continue
            if "limit" in message:
                # Upon which the workbench ends the worker.
                continue
            self.calls += 1
            self.send({"value": None})
        return {**message, "printed": printed}

    def children(self) -> list[str]:
        return Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_contained(worker: Worker, attack: str) -> None:
    ended: Any = worker.run(ATTACKS[attack])
    told = json.dumps(ended)
    # Refused, or stopped at a limit. What an attack got hold of would be a value.
    assert "error" in ended["end"] or attack in HARMLESS, told
    assert SECRET not in told and "root:" not in told and "uid=" not in told and "object at" not in told
    assert len(told) < 20_000 and len(ended["printed"]) <= LIMITS["printed"]
    assert not os.path.exists("/tmp/workbench-attack")
    assert worker.run("1 + 1")["end"] == {"value": 2}, "the next program is not affected"
    # The interpreter of the attack is killed, which takes a moment; one more is ready for the next program.
    ended_by = time.monotonic() + PATIENCE
    while len(worker.children()) > 1:
        assert time.monotonic() < ended_by, "the interpreter of the attack is left"


def test_calls_of_a_program_are_counted_by_the_workbench_and_stopped_by_the_interpreter(worker: Worker) -> None:
    before = worker.calls
    assert "error" in worker.run("while True: call('a/b/c')")["end"]
    assert worker.calls - before <= 5_000
