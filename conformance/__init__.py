"""The official conformance suite, run through the workbench. `python -m conformance` prints the table.

A development tool beside the package, like `bench`: nothing in `mcp_workbench` knows of it.
"""
