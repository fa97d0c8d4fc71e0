"""Podman's filter of system calls, without what no server may do."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.sandbox.container_filter import narrowed
from mcp_workbench.engine.transport import seccomp

ENGINES = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "archMap": [{"architecture": "SCMP_ARCH_X86_64"}],
    "syscalls": [
        {"names": ["bdflush", "bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
        {"names": ["read", "clone", "clone3", "unshare", "keyctl", "ptrace"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "op": "SCMP_CMP_NE", "value": 16}]},
        {"names": ["setns"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
    ],
}


def allowed(profile: dict[str, object]) -> list[tuple[str, object]]:
    rules: list[dict[str, object]] = profile["syscalls"]  # type: ignore[assignment]
    return [
        (name, rule.get("args"))
        for rule in rules
        if rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]  # type: ignore[attr-defined]
    ]


def test_calls_denied_by_guard_leave_the_engines_seccomp_profile() -> None:
    found = narrowed(ENGINES)
    names = {name for name, _ in allowed(found)}
    assert names == {"read", "clone", "socket"}
    assert found["archMap"] == ENGINES["archMap"] and found["defaultAction"] == "SCMP_ACT_ERRNO"


def test_processes_can_be_started_but_not_in_namespaces_of_their_own() -> None:
    ((conditions),) = [args for name, args in allowed(narrowed(ENGINES)) if name == "clone"]
    assert conditions == [
        {"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": seccomp.NEW_NAMESPACES, "valueTwo": 0},
    ]


def test_only_ordinary_sockets_can_be_made() -> None:
    conditions = [args for name, args in allowed(narrowed(ENGINES)) if name == "socket"]
    families = [each[0]["value"] for each in conditions]  # type: ignore[index]
    assert families == [seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK]
    assert conditions[-1][1] == {  # type: ignore[index]
        "index": 2,
        "op": "SCMP_CMP_EQ",
        "value": seccomp.NETLINK_ROUTE,
        "valueTwo": 0,
    }


@pytest.mark.parametrize(("usual", "other"), [(38, 1), (1, 38), (None, 38)])
def test_an_error_is_named_where_it_is_not_the_usual_one(usual: int | None, other: int) -> None:
    """libseccomp refuses rules that do what happens anyway."""
    profile = ENGINES if usual is None else {**ENGINES, "defaultErrnoRet": usual}
    (rule,) = [each for each in narrowed(profile)["syscalls"] if "keyctl" in each["names"] or "clone3" in each["names"]]
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", other)
    assert rule["names"] == sorted(seccomp.REFUSED_CALLS if other == 1 else seccomp.MISSING_CALLS)


@pytest.mark.parametrize("text", [{}, {"syscalls": 3}, {"syscalls": [{}]}, {"syscalls": ["x"]}])
def test_invalid_seccomp_profile_is_refused(text: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        narrowed(text)
