"""A front end that waits less: `hurried_front_end.py START SILENCE serve …`, for tests of a workbench that hangs."""

from __future__ import annotations

import sys

from mcp_workbench.__main__ import main
from mcp_workbench.sharing.front import copying, joining

if __name__ == "__main__":
    joining.WORKBENCH_START_TIMEOUT = float(sys.argv[1])  # type: ignore[misc]
    copying.SILENCE_TIMEOUT = float(sys.argv[2])  # type: ignore[misc]
    sys.exit(main(sys.argv[3:]))
