"""`python -m mcp_workbench`."""

from mcp_workbench.entry_point import main

raise SystemExit(main())
