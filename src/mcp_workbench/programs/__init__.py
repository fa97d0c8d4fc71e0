"""Programs: an agent sends a few lines of Python that call many tools, and gets one answer.

- `program_run`: one program, from its code to its answer; makes its calls and enforces its limits.
- `program_pool`: the processes that programs run in, contained like servers; none before the first program.
- `worker`: what runs in such a process: the interpreter, `pydantic-monty`, which knows no files, network or processes.

Loaded with the first program. Every call of a program is a `use_tool` of its client, and passes all that one does.
"""

from __future__ import annotations

from typing import Final

NO_INTERPRETER: Final = "`programs` is on, and the package `pydantic-monty`, which runs them, is not installed"


def is_installed() -> bool:
    """Whether the interpreter is there. Loads nothing of it."""
    from importlib.util import find_spec

    return find_spec("pydantic_monty") is not None
