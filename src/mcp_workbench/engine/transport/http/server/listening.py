"""Listening: addresses as people write them, and sockets.

Owns the refusal to listen for other machines without authentication.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from typing import Final

from mcp_workbench.engine.transport.http.server.admission import is_loopback
from mcp_workbench.engine.transport.http.server.limits import LISTEN_BACKLOG, SHARE_OF_FILES
from mcp_workbench.errors import ConfigError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8420
# `unix:/run/mcp.sock`
UNIX_PREFIX: Final = "unix:"
# The longest path that fits into a Unix socket address on every system.
MAX_SOCKET_PATH_BYTES: Final = 103
# A client that vanished without closing its connection is detected after about two minutes.
KEEP_ALIVE_IDLE: Final = 60
KEEP_ALIVE_INTERVAL: Final = 15
KEEP_ALIVE_PROBES: Final = 4


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `[v6]:port`, `:port`, `port` or `host`; `unix:PATH` is returned whole as the host. Raises
    `ConfigError`."""
    if text.strip().startswith(UNIX_PREFIX):
        return text.strip(), 0
    host, port = text.strip(), ""
    if "/" in host:
        # A URL, as clients are given it.
        raise _unreadable(text)
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _unreadable(text)
        port = rest[1:]
    elif host.isdecimal():
        host, port = "", host
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise _unreadable(text)
    return host or DEFAULT_HOST, int(port) if port else DEFAULT_PORT


def _unreadable(text: str) -> ConfigError:
    return ConfigError(f"`{text}` is not an address", hint="write it as host:port, for example 127.0.0.1:8420")


def check_exposure(host: str, *, is_authenticated: bool) -> None:
    """Refuse to be reachable from other machines without authentication. Raises `ConfigError`."""
    if not is_authenticated and not is_loopback(host):
        raise ConfigError(
            f"`{host}` can be reached from other machines; without authentication all of them could use your servers",
            hint="create keys (mcp-workbench team key create), or set a token (WORKBENCH_TOKEN in the environment, or "
            "--token-file), or listen on 127.0.0.1",
        )


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on one port at all addresses of a host. Port 0 means any. Raises `ConfigError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a name"
        raise ConfigError(f"`{host}` is not an address of this machine: {reason}") from None
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        chosen = sockets[0].getsockname()[1] if sockets and not port else port
        try:
            sockets.append(_listen(family, kind, protocol, (address[0], chosen, *address[2:])))
        except OSError as error:
            # `localhost` often resolves to two addresses, of which the machine has only one.
            problem = error
            if error.errno == errno.EADDRINUSE:
                break
    if sockets and (problem is None or problem.errno != errno.EADDRINUSE):
        return sockets
    for each in sockets:
        each.close()
    assert problem is not None
    raise _why_not(host, port, problem)


def bind_unix(path: str, *, is_open_to_others: bool) -> list[socket.socket]:
    """Listen on a Unix socket. A socket whose server is gone is replaced. Raises `ConfigError`."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"the path of the socket is longer than {MAX_SOCKET_PATH_BYTES} bytes: `{path}`",
            hint="choose a shorter one",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _make_way(path)
        # No other user may connect before the mode has been set.
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        if is_open_to_others:
            os.chmod(path, 0o666)
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at `{path}`: {error.strerror}", hint="name a folder that you can write to"
        ) from None
    except BaseException:
        listener.close()
        raise
    return [listener]


def _make_way(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigError(f"`{path}` exists and is not a socket", hint="name another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.settimeout(1.0)
            if other.connect_ex(path) == 0:
                raise ConfigError(f"another program listens at `{path}`", hint="is another workbench running?")
        os.unlink(path)


def most_connections(wanted: int) -> int:
    """The wanted number of connections, or as many as the limit on open files allows."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return min(wanted, max(16, int(soft * SHARE_OF_FILES)))
    return wanted


def _listen(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` accepts IPv4 too, as people expect; `::1` is one address anyway.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        # Accepted connections inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_INTERVAL)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEP_ALIVE_PROBES)
        listener.bind(address)
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _why_not(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} of `{host}` is in use by another program",
            hint="choose another port, or 0 for any free one; is another workbench running?",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(f"no permission to listen on port {port}", hint="choose a port above 1023")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"`{host}` is not an address of this machine", hint="127.0.0.1 always works")
    return ConfigError(f"cannot listen on port {port} of `{host}`: {error.strerror}")
