"""`python -m mcp_workbench`."""

from mcp_workbench.cli.main import main

raise SystemExit(main())
