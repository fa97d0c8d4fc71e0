"""`python -m mcp_workbench`."""

from mcp_workbench.entry import main

raise SystemExit(main())
