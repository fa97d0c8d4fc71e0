"""What the filters decide, by running their programs as the kernel would."""

from __future__ import annotations

import re
import resource
import struct
from pathlib import Path

import pytest

from mcp_workbench.engine.transport import seccomp
from mcp_workbench.engine.transport.seccomp import ARCHITECTURES, EACCES, ENOSYS, EPERM, filter_program

ALLOWED = 0
NETLINK_USERSOCK = 2
NETLINK_SOCK_DIAG = 4
MACHINES = sorted(ARCHITECTURES)
# aarch64 has the numbers that are common to newer machines.
HEADERS = {
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
}


def decided(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """The error that a call gets; `ALLOWED` if it passes."""
    given = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number, audit, 0, *given)
    code = list(struct.iter_unpack("=HBBI", program))
    at = value = 0
    while True:
        operation, then, otherwise, operand = code[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif operation == 0x54:
            value &= operand
        elif operation == 0x06:
            return ALLOWED if operand == 0x7FFF0000 else operand & 0xFFFF
        else:
            holds = {0x15: value == operand, 0x45: bool(value & operand), 0x35: value >= operand}[operation]
            at += then if holds else otherwise


@pytest.mark.parametrize("machine", MACHINES)
def test_reaching_into_others_is_refused_and_ordinary_calls_pass(machine: str) -> None:
    audit, _, calls = ARCHITECTURES[machine]
    program = filter_program(None, machine)
    for name in ("ptrace", "process_vm_readv", "pidfd_getfd", "unshare", "setns", "bpf", "keyctl", "mount", "fsopen"):
        assert decided(program, audit, calls[name]) == EPERM, name
    for name in ("clone3", "io_uring_setup"):
        assert decided(program, audit, calls[name]) == ENOSYS, name
    # `clone` of a thread and of a process, and of one in a user namespace.
    assert decided(program, audit, calls["clone"], 0x3D0F00) == ALLOWED
    assert decided(program, audit, calls["clone"], 17) == ALLOWED
    assert decided(program, audit, calls["clone"], 0x10000000 | 17) == EPERM
    assert decided(program, audit, calls["ioctl"], 0, 0x5401) == ALLOWED
    assert decided(program, audit, calls["ioctl"], 0, 0x5412) == EPERM
    # The upper half of the argument is ignored by the kernel, and so it is here.
    assert decided(program, audit, calls["ioctl"], 0, 0x5412 | 1 << 32) == EPERM
    # Its own limits, those of another process read, and set: the address of the new ones in either half.
    assert decided(program, audit, calls["prlimit64"], 0, 7, 1) == ALLOWED
    assert decided(program, audit, calls["prlimit64"], 4711, 7, 0) == ALLOWED
    assert decided(program, audit, calls["prlimit64"], 4711, 7, 1) == EPERM
    assert decided(program, audit, calls["prlimit64"], 4711, 7, 1 << 32) == EPERM
    assert decided(program, audit, calls["socket"], seccomp.AF_UNIX, 1) == ALLOWED
    assert decided(program, audit, calls["socket"], seccomp.AF_NETLINK, 3, NETLINK_SOCK_DIAG) == ALLOWED
    assert decided(program, audit, 1) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    """Otherwise a filter would refuse another call than it names, on a machine that we may not have."""
    if not HEADERS[machine].exists():
        pytest.skip("needs the headers of the kernel (linux-libc-dev)")
    written = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    numbers = {name: int(number) for name, number in written}
    audit, own, calls = ARCHITECTURES[machine]
    assert own == numbers["seccomp"]
    assert calls == {name: numbers[name] for name in calls}
    program = filter_program(None, machine)
    refused = {name for name, number in numbers.items() if decided(program, audit, number) != ALLOWED}
    assert refused == {*seccomp.REFUSED_CALLS, *seccomp.MISSING_CALLS}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_limit_that_tells_whose_server_it_is_cannot_be_changed(machine: str) -> None:
    audit, _, calls = ARCHITECTURES[machine]
    program = filter_program(None, machine)
    for pid in (0, 4711):
        assert decided(program, audit, calls["prlimit64"], pid, resource.RLIMIT_RTTIME, 0) == ALLOWED
        assert decided(program, audit, calls["prlimit64"], pid, resource.RLIMIT_RTTIME, 1) == EPERM
    assert decided(program, audit, calls["setrlimit"], resource.RLIMIT_RTTIME, 1) == EPERM
    assert decided(program, audit, calls["setrlimit"], resource.RLIMIT_NOFILE, 1) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_do_not_exist(machine: str) -> None:
    audit, _, calls = ARCHITECTURES[machine]
    program = filter_program(None, machine)
    assert decided(program, 0x40000003, 1) == ENOSYS
    if machine == "x86_64":
        assert decided(program, audit, calls["ptrace"] | 0x40000000) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_only_the_families_that_are_named_can_be_created(machine: str) -> None:
    audit, _, calls = ARCHITECTURES[machine]
    program = filter_program(frozenset({seccomp.AF_INET, seccomp.AF_NETLINK}), machine)
    assert decided(program, audit, calls["socket"], seccomp.AF_INET, 2) == ALLOWED
    assert decided(program, audit, calls["socket"], seccomp.AF_INET6, 1) == EACCES
    assert decided(program, audit, calls["socket"], seccomp.AF_UNIX, 1) == EACCES
    # Which addresses there are, and nothing that reaches other processes.
    assert decided(program, audit, calls["socket"], seccomp.AF_NETLINK, 3, 0) == ALLOWED
    for protocol in (NETLINK_USERSOCK, NETLINK_SOCK_DIAG):
        assert decided(program, audit, calls["socket"], seccomp.AF_NETLINK, 3, protocol) == EACCES
    # A pair of streams, one of datagrams with flags, and raw ones, which are datagrams too.
    assert decided(program, audit, calls["socketpair"], seccomp.AF_UNIX, 1) == ALLOWED
    assert decided(program, audit, calls["socketpair"], seccomp.AF_UNIX, 2 | 0o2000000) == EACCES
    assert decided(program, audit, calls["socketpair"], seccomp.AF_UNIX, 3) == EACCES


@pytest.mark.parametrize("machine", MACHINES)
def test_system_v_shared_memory_and_queues_exist_only_where_they_are_its_own(machine: str) -> None:
    audit, _, calls = ARCHITECTURES[machine]
    families = frozenset({seccomp.AF_INET})
    for name in ("shmget", "shmat", "msgrcv", "semctl", "mq_open"):
        assert decided(filter_program(families, machine), audit, calls[name]) == ENOSYS, name
        assert decided(filter_program(families, machine, has_own_ipc=True), audit, calls[name]) == ALLOWED, name
        assert decided(filter_program(None, machine), audit, calls[name]) == ALLOWED, name


def test_other_machines_have_no_filter() -> None:
    assert not seccomp.is_supported("riscv64") and all(map(seccomp.is_supported, MACHINES))
