"""The audit's other destinations: stdout, and the system's log. Each process begins a new chain, and each line contains
the hash of the previous one, because collectors may drop lines."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Final

from msgspec.json import encode

from mcp_workbench.team.audit.audit_file import ChainedLine, group_hash, on_one_line

# Facility `authpriv`, severity `info`: for messages that only administrators should read.
PRIORITY: Final = 10 * 8 + 6
# A log that does not read must not block the thread forever.
STREAM_SEND_TIMEOUT: Final = 2.0


class Stdout:
    """Lines on descriptor 1. A reader that does not read blocks only this thread, and lines are lost."""

    def __init__(self) -> None:
        self._seq = 0
        self._previous = ""

    def append(self, lines: Sequence[ChainedLine]) -> int:
        for count, line in enumerate(lines):
            line.seq, line.prev = self._seq + 1, self._previous
            text = on_one_line(encode(line))
            try:
                self._send(text)
            except OSError:
                if count:
                    return count
                raise
            self._seq += 1
            self._previous = group_hash(text)
        return len(lines)

    def _send(self, line: bytes) -> None:
        data = memoryview(line + b"\n")
        while data:
            data = data[os.write(1, data) :]

    def close(self) -> None:
        """Nothing is buffered."""


class Syslog(Stdout):
    """Datagrams to a Unix socket such as `/dev/log`, or to `host:port`. Connects with the first line, and again after a
    failure, because the log may be started after us."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._socket: socket.socket | None = None
        self._head = b"<%d>mcp-workbench[%d]: " % (PRIORITY, os.getpid())

    def _send(self, line: bytes) -> None:
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._socket.send(self._head + line)
        except OSError:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        if self._address.startswith("/"):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            target: str | tuple[str, int] = self._address
        else:
            host, _, port = self._address.rpartition(":")
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            made = socket.socket(found[0], socket.SOCK_DGRAM)
            target = (str(found[4][0]), int(port))
        try:
            made.settimeout(STREAM_SEND_TIMEOUT)
            made.connect(target)
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
