"""Small real MCP servers that ship with the package, for the demo, for trying things out, and for manual tests.

Each is a program of its own: `python -m mcp_workbench.demo.notes`, `.clock`, `.calculator`, `.files`. `stdio_server` is
what they are built on, `offerings` how they declare tools, prompts and resources, `subscribers` whom they notify. They
need nothing but the standard library and know nothing of the rest of the package: to the workbench they are somebody
else's servers.
"""
