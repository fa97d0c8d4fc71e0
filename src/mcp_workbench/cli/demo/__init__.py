"""Small real MCP servers that ship with the package, for the demo, for trying things out, and for manual tests.

Each is a separate program: `python -m mcp_workbench.cli.demo.notes`, `.clock`, `.calculator`, `.files`. They are built
on `stdio_server`, and declare tools, prompts and resources with `offerings`. They
need only the standard library and import nothing from the rest of the package: to the workbench they are third-party
servers.
"""
