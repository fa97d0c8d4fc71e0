"""`mcp-workbench` that lets little wait for those who do not read, and not for long: a busy machine gets there in seconds.

What is bounded, and how, is the same. Run as a script: `small_workbench.py serve --config FILE`.
"""

from __future__ import annotations

from mcp_workbench.engine.transport import backlog, stdio

SCALE = 8
DROP_ABOVE = stdio.DROP_ABOVE // SCALE
MAX_UNSENT_BYTES = backlog.MAX_UNSENT_BYTES // SCALE


def main() -> int:
    stdio.DROP_ABOVE = DROP_ABOVE
    stdio.CLIENT_READ_TIMEOUT = 2.0  # type: ignore[misc]
    # Before the modules are imported that take it over.
    backlog.MAX_UNSENT_BYTES = MAX_UNSENT_BYTES  # type: ignore[misc]
    from mcp_workbench.cli.main import main

    return main()


if __name__ == "__main__":
    raise SystemExit(main())
