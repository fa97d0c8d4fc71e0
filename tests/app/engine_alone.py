"""Serves a configuration in a process where the other parts of the program do not exist: `stdio` or `http`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

ABSENT = ("team", "signin", "sharing", "seeing", "cluster", "programs", "setup", "cli")
TOKEN = "s3cret-of-this-test"


class Absent:
    """Refuses the imports of absent parts (`importlib.abc.MetaPathFinder`)."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        package, _, rest = name.partition(".")
        if package == "mcp_workbench" and rest.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"`{name}` is absent", name=name)


def main(transport: str, path: str) -> None:
    from mcp_workbench.app.gateway import Gateway, Options
    from mcp_workbench.app.serving import serve_http, serve_stdio
    from mcp_workbench.engine.config.load import load
    from mcp_workbench.engine.run import run

    gateway = Gateway(load(path, os.environ), Options())
    if transport == "stdio":
        run(serve_stdio(gateway))
        return
    from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions

    callers = HttpCallers(gateway, CallerOptions(token=TOKEN))
    options = HttpOptions(port=0, authenticator=callers.authenticator, watched=callers.watched(None))
    run(
        serve_http(gateway, options, lambda url: print(url, flush=True), callers=callers.started, pages=callers.pages())
    )


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())
    main(*sys.argv[1:])
