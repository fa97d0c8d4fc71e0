"""`bwrap`: a file system of its own, made of what is granted, and namespaces for processes and the network.

For what a thread cannot give up: folders that stay read-only inside of granted ones, single hosts and Unix sockets, and
kernels without Landlock. It starts a program more, and what is not granted is not there at all.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final

from mcp_workbench.engine.sandbox.resource_limits import limiting
from mcp_workbench.engine.sandbox.sandbox import PROXY_PORT, Capabilities, OnRefused, Sandbox
from mcp_workbench.engine.sandbox.thread_backend import families_of, is_in, make_private_folders, outermost
from mcp_workbench.engine.transport import landlock, seccomp
from mcp_workbench.engine.transport.confinement import ROOT_CAPABILITIES, UNCONFINED, Companion, Confinement, Launch
from mcp_workbench.engine.transport.open_files import high_descriptor

log = logging.getLogger(__name__)

BWRAP: Final = "bwrap"
# What root needs to be root in a user namespace, where it has no capabilities: SETFCAP.
_MAPPING_ROOT: Final = frozenset({31})
# The first kernel that counts the processes of a user namespace by themselves.
_COUNTING_KERNEL: Final = (5, 14)
_HELP_TIMEOUT: Final = 5.0
# Our own within it: its first process, and the shell that sets limits.
_OWN_PROCESSES: Final = 2


# The first program in a sandbox that may reach some hosts: makes the one listener there is in its network, hands it to
# us and becomes the server.
_HANDING_OVER: Final = f"""
import os, socket, sys
listener = socket.create_server(("127.0.0.1", {PROXY_PORT}), backlog=64)
with socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"."], [listener.fileno()])
listener.close()
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{{sys.argv[2]}}: {{error.strerror}}")
"""


class BwrapBackend:
    name = "bwrap"

    def trouble(self, machine: Capabilities) -> str | None:
        return machine.why_no_bwrap()

    def missing(self, sandbox: Sandbox, machine: Capabilities) -> list[str]:
        if sandbox.profile == "off":
            return []
        found = []
        if not machine.has_filters:
            found.append("cannot filter its system calls (seccomp, on x86-64 and aarch64)")
        if sandbox.unix_sockets and sandbox.network == "all" and machine.landlock_abi < landlock.SCOPES_ABI:
            found.append("cannot keep it from abstract Unix sockets (Landlock ABI 6, Linux 6.12)")
        return found

    def keeps_read_only(self) -> bool:
        return True

    def launch(self, sandbox: Sandbox, refused: OnRefused) -> Launch:
        make_private_folders(sandbox)
        if sandbox.profile == "off":
            return Launch(UNCONFINED)
        with contextlib.ExitStack() as undoing:
            launch = _launch(sandbox, refused, undoing)
            undoing.pop_all()
        return launch


def _launch(sandbox: Sandbox, refused: OnRefused, undoing: contextlib.ExitStack) -> Launch:
    """`undoing` gets what is to be done if it fails half-way."""

    def passed(descriptor: int) -> str:
        undoing.callback(os.close, descriptor)
        descriptors.append(descriptor)
        return str(descriptor)

    descriptors: list[int] = []
    words = list(_namespaces(sandbox))
    if seccomp.is_supported():
        filters = seccomp.filter_program(families_of(sandbox), has_own_ipc=True)
        words += ("--seccomp", passed(memory_file(filters)))
    if (high := high_descriptor()) is not None:
        # bwrap starts the server from a process of its own, which needs this descriptor for the server to get room.
        words += ("--sync-fd", passed(high))
    own_program: tuple[str, ...] = ()
    companion: Companion | None = None
    if isinstance(sandbox.network, tuple):
        from mcp_workbench.engine.sandbox.egress_proxy import EgressProxy
        from mcp_workbench.engine.sandbox.egress_rules import EgressRules

        ours, theirs = socket.socketpair()
        undoing.callback(ours.close)
        channel = passed(theirs.detach())
        companion = EgressProxy(ours, EgressRules(sandbox.network), refused)
        python = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
        own_program = (python, "-I", "-S", "-c", _HANDING_OVER, channel)
        sandbox = sandbox._replace(read=(*sandbox.read, *interpreter_files(python)))
    if sandbox.read_only:
        from mcp_workbench.engine.sandbox.created_paths import hold_created

        if (held := hold_created(sandbox.read_only, sandbox.created)) is not None:
            undoing.callback(held.abandon)
            companion = held.beside(companion)
    words += files_of(sandbox, passed) if sandbox.limits_files else ("--dev-bind", "/", "/", "--proc", "/proc")
    if sandbox.folder is not None:
        words += ("--chdir", sandbox.folder)
    # Not on its command line, which everything in the sandbox can read.
    arguments = passed(memory_file(b"".join(os.fsencode(word) + b"\0" for word in words)))
    return Launch(
        # What it gives up by itself is not taken before: a filter or rules for files would keep it from mounting.
        # The scopes add to the namespaces: abstract sockets belong to the network, which it may share with us.
        Confinement(
            root_capabilities=ROOT_CAPABILITIES | _MAPPING_ROOT,
            is_apart=landlock.abi() >= landlock.SCOPES_ABI,
            filters_calls=False,
        ),
        (_program(), "--args", arguments, *own_program, *limiting(sandbox, _limit_of_processes(sandbox))),
        tuple(descriptors),
        companion,
    )


def _program() -> str:
    import shutil

    return shutil.which(BWRAP) or BWRAP


def interpreter_files(python: str) -> list[str]:
    """The folders of our own interpreter and its library."""
    folders = (os.path.dirname(python), os.path.dirname(os.__file__), os.path.join(sys.base_prefix, "lib"))
    return [os.path.realpath(folder) for folder in folders]


def _namespaces(sandbox: Sandbox) -> Iterable[str]:
    yield from ("--unshare-user", "--unshare-pid", "--cap-drop", "ALL")
    if sandbox.limits_files:
        yield from ("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if sandbox.limits_files and sandbox.network != "all":
        yield "--unshare-net"


def files_of(sandbox: Sandbox, passed: Callable[[int], str]) -> list[str]:
    """What the server finds, as arguments. What was replaced by a link since it was decided is left out. `passed` has a
    descriptor inherited, and returns it as an argument. Raises `OSError` if what has to stay read-only was replaced: it
    could be written through the folder that it is in."""

    def bound(option: str, path: str, *, is_grant: bool = True) -> tuple[str, ...]:
        if not _binds_descriptors():
            if os.path.realpath(path) == path:
                return (f"{option}-try" if is_grant else option, path, path)
            return left_out(path, is_grant)
        # `bwrap` looks paths up later, when another server may have put a link there. With a descriptor, it compares
        # what it has mounted.
        descriptor = landlock.opened_itself(path)
        return left_out(path, is_grant) if descriptor is None else (f"{option}-fd", passed(descriptor), path)

    def left_out(path: str, is_grant: bool) -> tuple[()]:
        if not is_grant:
            raise _not_kept(path)
        return ()

    write, read = outermost_mounts(sandbox)
    mounts = dict.fromkeys(write, "--bind") | dict.fromkeys(read, "--ro-bind")
    words = ["--tmpfs", "/tmp"] if "/tmp" not in mounts and "/" not in mounts else []
    for path in sorted(mounts, key=lambda each: each.count("/") if each != "/" else 0):
        words += bound(mounts[path], path)
    for path, is_written in kept_read_only(sandbox, write):
        is_grant = is_written and is_in(path, sandbox.read_only)
        words += bound("--bind" if is_written else "--ro-bind", path, is_grant=is_grant)
    # Read-only, as with Landlock: the kernel's settings in it belong to root, who needs no capability to change them.
    words += ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for path in sandbox.write:
        if path.startswith("/dev/") and not is_in(path, _BWRAP_DEVICES) and os.path.realpath(path) == path:
            words += ("--dev-bind-try", path, path)
    for path in sandbox.unix_sockets:
        if not is_in(path, mounts):
            words += bound("--ro-bind", path)
    for link, target in sandbox.links:
        if not is_in(os.path.dirname(link), (*mounts, "/dev", "/proc")):
            words += ("--symlink", target, link)
    home = sandbox.environment.get("HOME", "")
    if os.path.isabs(home) and not is_in(home, mounts):
        # There, and empty.
        words += ("--dir", home)
    # What is written outside of what is granted fails, instead of being lost.
    return [*words, "--remount-ro", "/"]


def outermost_mounts(sandbox: Sandbox) -> tuple[list[str], list[str]]:
    """What is mounted to be written, and to be read alone, without what is in another one."""
    write = outermost(path for path in sandbox.write if not path.startswith("/dev/"))
    read = outermost(sandbox.read)
    return list(write), [path for path in read if not is_in(path, write) and not is_in(path, ("/proc", "/dev"))]


def kept_read_only(sandbox: Sandbox, roots: Sequence[str]) -> list[tuple[str, bool]]:
    """Mounts over what stays read-only, each with whether it can be written. The folders on the way to it are mounts as
    well: those cannot be moved away, to put others in their place. Raises `OSError` if one was replaced by a link."""
    mounts: list[tuple[str, bool]] = []
    pinned: dict[str, None] = {}
    kept: list[str] = []
    for path in sorted(sandbox.read_only):
        is_replaced = os.path.realpath(path) != path
        if is_replaced and path not in sandbox.created:
            raise _not_kept(path)
        if is_replaced or not os.path.exists(path):
            # A link that led nowhere, or what could not be created.
            continue
        if is_in(path, kept):
            # A way to it would make that folder writable again.
            continue
        folder = os.path.dirname(path)
        on_the_way = []
        while folder not in pinned and folder not in roots and len(folder) > 1:
            on_the_way.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(on_the_way):
            pinned[each] = None
            mounts.append((each, True))
        mounts.append((path, False))
        kept.append(path)
    for path in sandbox.write:
        # What was named is meant, even there.
        if path not in roots and is_in(path, sandbox.read_only) and os.path.realpath(path) == path:
            mounts.append((path, True))
    return mounts


def _not_kept(path: str) -> OSError:
    return OSError(errno.ESTALE, "cannot be kept read-only", path)


# What `bwrap` has in its own `/dev`.
_BWRAP_DEVICES: Final = tuple(f"/dev/{name}" for name in "null zero full random urandom tty shm pts fd".split())


def _limit_of_processes(sandbox: Sandbox) -> int | None:
    """The limit where the system counts those in the sandbox alone; None: where it counts all of the user's."""
    if sandbox.processes is None:
        return None
    release = os.uname().release.split(".")
    is_counted = tuple(int(each) for each in release[:2] if each.isdecimal()) >= _COUNTING_KERNEL
    return sandbox.processes + _OWN_PROCESSES if is_counted else None


def memory_file(content: bytes) -> int:
    """A descriptor with this content."""
    descriptor = os.memfd_create("mcp-workbench-sandbox")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _binds_descriptors() -> bool:
    """Whether it takes descriptors in place of paths. Without an answer, no, until it is asked again."""
    import subprocess

    try:
        return _takes_descriptors()
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("bwrap did not say whether it takes descriptors, so it gets paths: %s", error)
        return False


@cache
def _takes_descriptors() -> bool:
    """Since 0.10, and where a distribution has added it. Raises what keeps it from answering."""
    import subprocess

    said = subprocess.run((_program(), "--help"), capture_output=True, timeout=_HELP_TIMEOUT, check=True)
    return b"--ro-bind-fd" in said.stdout + said.stderr


def why_not(seconds: float = 5.0) -> str | None:
    """Try it as it will be used. Returns what is in the way."""
    import shutil
    import subprocess

    program = shutil.which(BWRAP)
    if program is None:
        return "bwrap is not installed"
    words = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--ro-bind", "/", "/")
    try:
        tried = subprocess.run(
            (program, *words, "--proc", "/proc", "--dev", "/dev", "/bin/sh", "-c", ":"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"bwrap did not start within {seconds:g} s"
    except OSError as error:
        return f"bwrap: {error.strerror}"
    if not tried.returncode:
        return None
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return said[-1] if said else f"bwrap exited with status {tried.returncode}"
