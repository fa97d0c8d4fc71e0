"""Filters of system calls, as programs for the kernel. Pure: bytes from a description.

Owns which calls are refused, and how the filter is written. Knows nothing about who is filtered, or when it is applied
(`confinement`). Numbers are those of Linux for x86-64 and aarch64; other machines have no filter.

A refused call fails with an error, as a missing permission does: killing the program would tell its user nothing.
"""

from __future__ import annotations

import platform
import struct
from functools import cache
from typing import Final, NamedTuple

EPERM: Final = 1
EACCES: Final = 13
ENOSYS: Final = 38

AF_UNIX: Final = 1
AF_INET: Final = 2
AF_INET6: Final = 10
# Which interfaces and addresses there are: `getaddrinfo` asks, by the first protocol. With that one nothing can be sent
# to other processes; another one is made for it.
AF_NETLINK: Final = 16
NETLINK_ROUTE: Final = 0

# Offsets in `struct seccomp_data`. Arguments have 64 bits; all that we look at fit into the lower half.
_CALL_OFFSET: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENT: Final = 16
_LOAD: Final = 0x20
_AND: Final = 0x54
_JUMP_EQUAL: Final = 0x15
_JUMP_ANY_BIT: Final = 0x45
_JUMP_AT_LEAST: Final = 0x35
_RETURN: Final = 0x06
_RET_ALLOW: Final = 0x7FFF0000
_RET_ERRNO: Final = 0x00050000
# Calls of the x32 ABI have this bit, and numbers of their own.
_X32: Final = 0x40000000

# Namespaces, as flags of `clone`: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
NEW_NAMESPACES: Final = 0x7E020000
# Types characters into a terminal as if the user had, and the same for the console.
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
# What tells the processes of a server from all others (`process_tag`). `RLIMIT_RTTIME`, which no other program uses.
_TAG_RESOURCE: Final = 15
_SOCK_TYPE_MASK: Final = 0xF
_SOCK_DGRAM: Final = 2
_SOCK_RAW: Final = 3
_ALL_BITS: Final = 0xFFFFFFFF


class Architecture(NamedTuple):
    audit: int
    # Of the call that applies a filter.
    seccomp: int
    calls: dict[str, int]


# Reaching into other processes, namespaces, keys, the kernel and its mounts.
REFUSED_CALLS: Final = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise", "kcmp"),
    *("unshare", "setns"),
    *("add_key", "request_key", "keyctl"),
    *("bpf", "perf_event_open", "userfaultfd"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "open_by_handle_at"),
    *("swapon", "swapoff", "reboot", "kexec_load", "init_module", "finit_module", "delete_module", "acct"),
)
# Programs that find these missing go another way: `clone3` has its flags in memory, where a filter cannot see them.
MISSING_CALLS: Final = ("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register")
# What processes of one user share without files, by numbers that can be guessed.
_IPC: Final = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
# Numbers from 424 on are the same everywhere.
_COMMON_CALLS: Final = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
}
ARCHITECTURES: Final = {
    "x86_64": Architecture(
        0xC000003E,
        317,
        {
            **_COMMON_CALLS,
            "ioctl": 16,
            "shmget": 29,
            "shmat": 30,
            "shmctl": 31,
            "socket": 41,
            "socketpair": 53,
            "clone": 56,
            "semget": 64,
            "semop": 65,
            "semctl": 66,
            "msgget": 68,
            "msgsnd": 69,
            "msgrcv": 70,
            "msgctl": 71,
            "ptrace": 101,
            "pivot_root": 155,
            "chroot": 161,
            "acct": 163,
            "mount": 165,
            "umount2": 166,
            "swapon": 167,
            "swapoff": 168,
            "reboot": 169,
            "init_module": 175,
            "delete_module": 176,
            "semtimedop": 220,
            "mq_open": 240,
            "mq_unlink": 241,
            "kexec_load": 246,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "perf_event_open": 298,
            "open_by_handle_at": 304,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "kcmp": 312,
            "setrlimit": 160,
            "prlimit64": 302,
            "finit_module": 313,
            "bpf": 321,
            "userfaultfd": 323,
        },
    ),
    "aarch64": Architecture(
        0xC00000B7,
        277,
        {
            **_COMMON_CALLS,
            "ioctl": 29,
            "umount2": 39,
            "mount": 40,
            "pivot_root": 41,
            "chroot": 51,
            "acct": 89,
            "unshare": 97,
            "kexec_load": 104,
            "init_module": 105,
            "delete_module": 106,
            "ptrace": 117,
            "reboot": 142,
            "mq_open": 180,
            "mq_unlink": 181,
            "msgget": 186,
            "msgctl": 187,
            "msgrcv": 188,
            "msgsnd": 189,
            "semget": 190,
            "semctl": 191,
            "semtimedop": 192,
            "semop": 193,
            "shmget": 194,
            "shmctl": 195,
            "shmat": 196,
            "socket": 198,
            "socketpair": 199,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "clone": 220,
            "swapon": 224,
            "swapoff": 225,
            "perf_event_open": 241,
            "open_by_handle_at": 265,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "kcmp": 272,
            "setrlimit": 164,
            "prlimit64": 261,
            "finit_module": 273,
            "bpf": 280,
            "userfaultfd": 282,
        },
    ),
}


def is_supported(machine: str = platform.machine()) -> bool:
    return machine in ARCHITECTURES


def call_number(machine: str = platform.machine()) -> int:
    """Of the call that applies a filter."""
    return ARCHITECTURES[machine].seccomp


@cache
def filter_program(
    families: frozenset[int] | None = None, machine: str = platform.machine(), *, has_own_ipc: bool = False
) -> bytes:
    """The filter for this kind of machine. `families`: the only kinds of socket that can be created; None: all, and
    nothing else that processes of one user share is refused. `has_own_ipc`: it shares that with nobody."""
    architecture = ARCHITECTURES[machine]
    calls = architecture.calls
    code = [
        *_load(_ARCHITECTURE),
        # Another ABI has other numbers: a program for it, or one that changes to it, gets nowhere.
        *_unless(_JUMP_EQUAL, architecture.audit, ENOSYS),
        *_load(_CALL_OFFSET),
    ]
    if machine == "x86_64":
        code += _when(_JUMP_AT_LEAST, _X32, [_error(ENOSYS)])
    for name in MISSING_CALLS if families is None or has_own_ipc else (*MISSING_CALLS, *_IPC):
        code += _when(_JUMP_EQUAL, calls[name], [_error(ENOSYS)])
    for name in REFUSED_CALLS:
        code += _when(_JUMP_EQUAL, calls[name], [_error(EPERM)])
    code += _when(
        _JUMP_EQUAL, calls["clone"], [*_argument(0), *_when(_JUMP_ANY_BIT, NEW_NAMESPACES, [_error(EPERM)]), _allow()]
    )
    typing = [each for request in (_TIOCSTI, _TIOCLINUX) for each in _when(_JUMP_EQUAL, request, [_error(EPERM)])]
    code += _when(_JUMP_EQUAL, calls["ioctl"], [*_argument(1), *typing, _allow()])
    # A limit of processor time or open files that has been reached ends another process as a signal does.
    new_limits = [
        each
        for half in (0, 4)
        for each in (*_load(_ARGUMENT + 8 * 2 + half), *_when(_JUMP_ANY_BIT, _ALL_BITS, [_error(EPERM)]))
    ]
    tag = _when(_JUMP_EQUAL, _TAG_RESOURCE, [*new_limits, _allow()])
    of_others = [*_argument(1), *tag, *_argument(0), *_when(_JUMP_EQUAL, 0, [_allow()]), *new_limits, _allow()]
    code += _when(_JUMP_EQUAL, calls["prlimit64"], of_others)
    tag = _when(_JUMP_EQUAL, _TAG_RESOURCE, [_error(EPERM)])
    code += _when(_JUMP_EQUAL, calls["setrlimit"], [*_argument(0), *tag, _allow()])
    if families is not None:
        addresses = [*_argument(2), *_when(_JUMP_EQUAL, NETLINK_ROUTE, [_allow()]), _error(EACCES)]
        allowed = [
            each
            for family in sorted(families)
            for each in _when(_JUMP_EQUAL, family, addresses if family == AF_NETLINK else [_allow()])
        ]
        code += _when(_JUMP_EQUAL, calls["socket"], [*_argument(0), *allowed, _error(EACCES)])
        if AF_UNIX not in families:
            # A pair is connected to itself alone, but datagrams of one can be sent to any other address.
            # Raw ones are datagrams by another name.
            kinds = (_SOCK_DGRAM, _SOCK_RAW)
            datagrams = [each for kind in kinds for each in _when(_JUMP_EQUAL, kind, [_error(EACCES)])]
            masked = [*_argument(1), (_AND, 0, 0, _SOCK_TYPE_MASK)]
            code += _when(_JUMP_EQUAL, calls["socketpair"], [*masked, *datagrams, _allow()])
    code.append(_allow())
    return b"".join(struct.pack("=HBBI", *each) for each in code)


_Instruction = tuple[int, int, int, int]


def _load(offset: int) -> list[_Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _argument(index: int) -> list[_Instruction]:
    return _load(_ARGUMENT + 8 * index)


def _when(jump: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(jump, 0, len(then), value), *then]


def _unless(jump: int, value: int, number: int) -> list[_Instruction]:
    return [(jump, 1, 0, value), _error(number)]


def _error(number: int) -> _Instruction:
    return (_RETURN, 0, 0, _RET_ERRNO | number)


def _allow() -> _Instruction:
    return (_RETURN, 0, 0, _RET_ALLOW)
