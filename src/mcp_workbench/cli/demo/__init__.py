"""Two small real MCP servers that ship with the package, for the demo, for trying things out, and for manual tests.

Each is a separate program: `python -m mcp_workbench.cli.demo.notes`, which keeps state, and `.clock`, which shows
progress and crashes on request. They are built on `stdio_server`, need only the standard library and import nothing
from the rest of the package: to the workbench they are third-party servers.
"""
