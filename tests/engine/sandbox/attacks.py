"""What a hostile server tries, each as a function that ends quietly if it succeeds. A program: it prints as JSON which
attacks succeeded. Imports nothing of ours, because its sandbox may not let it read that."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable

library = ctypes.CDLL(None, use_errno=True)
told = json.loads(sys.argv[1])
home, victim = told["home"], told["victim"]
# `CLONE_NEWUSER`, and what Python has no name for.
NEW_USER = 0x10000000
CLONE3 = 435
F_SETSIG = 10
# x86-64 and aarch64.
NUMBERS = {
    "x86_64": {"pidfd_getfd": 438, "pidfd_open": 434, "io_uring_setup": 425, "add_key": 248, "keyctl": 250},
    "aarch64": {
        "pidfd_getfd": 438,
        "pidfd_open": 434,
        "io_uring_setup": 425,
        "add_key": 217,
        "bpf": 280,
        "keyctl": 219,
    },
}[os.uname().machine]


def system(name: str, *args: object) -> int:
    result = int(library.syscall(NUMBERS[name], *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def called(name: str, *args: object) -> None:
    if getattr(library, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)


def read(path: str, count: int = 100) -> bytes:
    with open(path, "rb") as file:
        return file.read(count)


def write(path: str, flags: int = os.O_WRONLY | os.O_APPEND) -> None:
    descriptor = os.open(path, flags)
    os.write(descriptor, b"#\n")
    os.close(descriptor)


def by_symlink() -> None:
    os.symlink(f"{home}/.bashrc", f"{os.environ['TMPDIR']}/link")
    write(f"{os.environ['TMPDIR']}/link")


def by_hard_link() -> None:
    os.link(f"{home}/.bashrc", f"{os.environ['TMPDIR']}/hard")
    write(f"{os.environ['TMPDIR']}/hard")


def connect(family: int, kind: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family, kind) as found:
        found.settimeout(5)
        found.connect(address)


def udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.sendto(b"secret", ("127.0.0.1", told["port"]))


def netlink() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, told["netlink_protocol"]) as found:
        found.sendto(b"secret", (told["netlink_port"], 0))


def without_its_tag() -> None:
    hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    # Not `resource.setrlimit`, which raises another error than the others.
    called("setrlimit", resource.RLIMIT_RTTIME, (ctypes.c_ulong * 2)(hard % 2**64, hard % 2**64))


def listen() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()


def datagram_of_a_pair() -> None:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"secret", told["datagrams"])


def datagram_of_a_raw_pair() -> None:
    with socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)[0] as one:
        one.sendto(b"x", told["datagrams"])


def signalled() -> None:
    os.kill(victim, 0)
    os.kill(victim, signal.SIGCONT)


def signalled_by_descriptor() -> None:
    """It is to be signalled when something can be read: the kernel sends it, whoever writes."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reading, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")


def traced() -> None:
    # PTRACE_SEIZE: it runs on, and is let go when this process ends.
    called("ptrace", 0x4206, victim, 0, 0)


def vector() -> None:
    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    buffer = ctypes.create_string_buffer(8)
    with open("/proc/self/maps") as file:
        start = int(file.readline().split("-")[0], 16)
    here = Piece(ctypes.addressof(buffer), 8)
    there = Piece(start, 8)
    called("process_vm_readv", victim, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


def stolen_descriptor() -> None:
    system("pidfd_getfd", os.pidfd_open(victim), 1, 0)


def setuid_program() -> None:
    if b"NoNewPrivs:\t1" in read("/proc/self/status", 10_000):
        raise PermissionError


def namespace() -> None:
    called("unshare", NEW_USER)


def namespace_by_clone() -> None:
    pid = library.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], NEW_USER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def in_child(attack: Callable[[], int]) -> None:
    """What might return twice."""
    pid = os.fork()
    if pid == 0:
        os._exit(attack() < 0)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError


def namespace_by_clone3() -> None:
    arguments = struct.pack("11Q", NEW_USER, 0, 0, 0, signal.SIGCHLD, *(0,) * 6)
    in_child(lambda: int(library.syscall(CLONE3, arguments, len(arguments))))


def namespace_by_32_bit_call() -> None:
    if os.uname().machine != "x86_64":
        raise NotImplementedError
    # Saves what the caller needs, calls `unshare` as programs for i386 do, and returns.
    code = b"\x53\xb8" + struct.pack("<I", 310) + b"\xbb" + struct.pack("<I", NEW_USER) + b"\xcd\x80\x5b\xc3"
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    in_child(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory))))


def io_uring() -> None:
    os.close(system("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def keyring() -> None:
    # The descriptor of the session's keyring, or a new one.
    system("keyctl", 0, -3, 1)


def memory() -> None:
    limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if limit != resource.RLIM_INFINITY:
        bytearray(limit + 1)


def many_processes() -> None:
    children = []
    try:
        for _ in range(200):
            children.append(subprocess.Popen(["/bin/sleep", "60"]))
    finally:
        for child in children:
            child.kill()
            child.wait()


ATTACKS: dict[str, Callable[[], object]] = {
    "read the user's key": lambda: read(f"{home}/.ssh/id_ed25519"),
    "read the home of another server": lambda: read(f"{told['other']}/secret"),
    "read our sign-ins": lambda: read(f"{home}/.local/share/mcp-workbench/tokens"),
    "write .bashrc": lambda: write(f"{home}/.bashrc"),
    "write .bashrc by a symbolic link": by_symlink,
    "write .bashrc by a hard link": by_hard_link,
    "truncate .bashrc": lambda: os.truncate(f"{home}/.bashrc", 0),
    "create a file in the home folder": lambda: write(f"{home}/planted", os.O_WRONLY | os.O_CREAT),
    "remove a file": lambda: os.unlink(f"{home}/removable"),
    "see that the key exists": lambda: os.stat(f"{home}/.ssh/id_ed25519"),
    "change the mode of the key": lambda: os.chmod(f"{home}/.ssh/id_ed25519", 0o600),
    "read the file it was given": lambda: read(told["given"]),
    "write the folder it was given": lambda: write(f"{os.path.dirname(told['given'])}/new", os.O_WRONLY | os.O_CREAT),
    "write its own home": lambda: write(f"{os.environ['HOME']}/own", os.O_WRONLY | os.O_CREAT),
    "connect by TCP": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", told["port"])),
    "listen": listen,
    "send by UDP": udp,
    "connect to a Unix socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, told["socket"]),
    "connect to an abstract socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + told["abstract"]),
    "send a datagram from a pair": datagram_of_a_pair,
    "send a datagram from a raw pair": datagram_of_a_raw_pair,
    "send by netlink": netlink,
    "take off the tag of its workbench": without_its_tag,
    "read the user's terminal": lambda: os.close(os.open(told["terminal"], os.O_RDONLY | os.O_NOCTTY)),
    "read the environment of a sibling": lambda: read(f"/proc/{victim}/environ"),
    "read the memory of a sibling": lambda: os.close(os.open(f"/proc/{victim}/mem", os.O_RDONLY)),
    "read the command line of a sibling": lambda: read(f"/proc/{victim}/cmdline"),
    "signal a sibling": signalled,
    "signal a sibling by its descriptor": lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGCONT),
    "list the root of a sibling": lambda: os.listdir(f"/proc/{victim}/root/"),
    "set limits of a sibling": lambda: resource.prlimit(victim, resource.RLIMIT_CORE, (0, 0)),
    "trace a sibling": traced,
    "copy memory of a sibling": vector,
    "take a descriptor of a sibling": stolen_descriptor,
    "gain privileges by a setuid program": setuid_program,
    "enter a user namespace": namespace,
    "enter a user namespace by clone": namespace_by_clone,
    "enter a user namespace by clone3": namespace_by_clone3,
    "enter a user namespace by a 32-bit call": namespace_by_32_bit_call,
    "use io_uring": io_uring,
    "use the keyring": keyring,
    "start 200 processes": many_processes,
    "exceed its memory": memory,
    # Ends it, so it is the last.
    "end a sibling by a descriptor of its own": signalled_by_descriptor,
}


def attempt(attack: Callable[[], object]) -> bool:
    try:
        attack()
    except (OSError, MemoryError, NotImplementedError):
        return False
    return True


print(json.dumps({name: attempt(attack) for name, attack in ATTACKS.items()}))
