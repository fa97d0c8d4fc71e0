"""`mcp-workbench serve --http` with the patience of a test: the same server, with limits that need no minutes to show.

Run as a script: `impatient_workbench.py CONFIG`.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.app.gateway import Gateway, Options
from mcp_workbench.app.serving import serve_http
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.observe.log import set_up
from mcp_workbench.engine.run import run
from mcp_workbench.engine.transport.http.server.http_server import HttpOptions
from mcp_workbench.engine.transport.http.server.limits import Limits

LIMITS = Limits(
    message_bytes=4 * 1024 * 1024,
    head_seconds=1.0,
    body_seconds=1.0,
    keep_alive_seconds=2.0,
    comment_seconds=1.0,
    resume_seconds=1.0,
    unread_bytes=1024 * 1024,
    unread_seconds=1.0,
)


def main() -> None:
    set_up(debug=False, file=None, format="text", redactor=Redactor(frozenset()))
    gateway = Gateway(load(sys.argv[1], os.environ), Options())
    options = HttpOptions(host="127.0.0.1", port=0, limits=LIMITS)
    run(serve_http(gateway, options, lambda url: print(f"serving MCP at {url}", file=sys.stderr, flush=True)))


if __name__ == "__main__":
    main()
