"""The raw echo server over HTTP: the same answers as over stdio, each a plain JSON response.

python -m bench.http_echo_server [--legacy]
"""

from __future__ import annotations

import sys

import uvloop

from bench.echo_server import EchoServer
from bench.http_wire import Incoming, listen


def main(arguments: list[str]) -> int:
    server = EchoServer(modern="--legacy" not in arguments)

    def handle(connection: Incoming, body: bytes) -> None:
        connection.respond(server.answer(body))

    uvloop.run(listen(handle))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
