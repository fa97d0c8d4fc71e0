"""The value of `programs`: whether agents may send programs, and what one may use. Loaded if a file has it."""

from __future__ import annotations

from typing import Final, Literal

from mcp_workbench.engine.config.kinds import Seconds, Whole, one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.setting import Declared, setting

ProgramWrites = Literal["ask", "never", "allow"]


class ProgramsConfig(Declared, frozen=True, kw_only=True):
    """What one program may use."""

    calls: int = setting(Whole("calls", 1, 10_000), "How many calls a program may make.", 100)
    seconds: float = setting(
        Seconds(), "How long a program may take, in seconds, without the time in which a user is asked.", 60.0
    )
    memory: int = setting(
        Whole("MiB", 8, 512), "How much memory its values may take, in MiB.", 64, name="memoryMiB", title="Memory"
    )
    writes: ProgramWrites = setting(
        one_of("ask", "never", "allow"),
        "What happens when a program calls a tool that does not say that it only reads: the user is asked, it is "
        "refused, or it is called like any other. With `useTool: split` it is refused.",
        "ask",
    )


PROGRAMS: Final = Members(
    ProgramsConfig,
    "`true`, or an object with `calls`, `seconds`, `memoryMiB` and `writes`",
    switch=lambda is_on: ProgramsConfig() if is_on else None,
)
