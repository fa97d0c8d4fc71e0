"""What is said about a server that failed in a sandbox."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.sandbox.decide import NPM_REGISTRY
from mcp_workbench.engine.sandbox.denials import denied, denied_paths, explanation, hidden_paths
from mcp_workbench.engine.sandbox.sandbox import Sandbox

SEALED = Sandbox("sealed", limits_files=True, network="none", memory=1 << 30)


@pytest.mark.parametrize(
    ("said", "paths"),
    [
        ("Error: EACCES: permission denied, open '/home/me/my notes/a.json'", ["/home/me/my notes/a.json"]),
        ("PermissionError: [Errno 13] Permission denied: '/tmp/x'", ["/tmp/x"]),
        ("cat: /etc/shadow: Permission denied\nreads /usr/lib/a", ["/etc/shadow"]),
        ("mkdir: cannot create directory ‘/srv/y’: Read-only file system", ["/srv/y"]),
        ("cannot find /srv/z", []),
    ],
)
def test_the_paths_that_it_was_denied_are_found_in_its_output(said: str, paths: list[str]) -> None:
    assert denied_paths(said) == paths


def test_explanation_names_profile_and_denial() -> None:
    told = explanation(
        Sandbox("contained", limits_files=True), "open '/a'\nEACCES: permission denied, open '/b c'", "box/s"
    )
    assert told is not None and "`contained`" in told and "`/b c`" in told and "`/a`" not in told
    assert "`mcp-workbench doctor --sandbox try box/s`" in told


def test_missing_network_and_memory_are_named() -> None:
    told = explanation(SEALED, "getaddrinfo EAI_AGAIN example.org\nArray buffer allocation failed", "box/s")
    assert told is not None and "no network" in told and "1024 MiB" in told
    assert "no network" in str(explanation(SEALED, "hint: Packages may only be read from the cache.", "box/s"))
    assert "network" not in str(explanation(SEALED._replace(network="all"), "getaddrinfo EAI_AGAIN", "box/s"))


def test_refused_hosts_are_named_and_prepare_where_it_helps() -> None:
    hosts = Sandbox("contained", limits_files=True, network=("api.example.org",))
    told = explanation(hosts, "403 Forbidden", "box/s", refused=["refused `elsewhere.test`"])
    assert told is not None and "refused `elsewhere.test`" in told and "sandbox prepare" not in told
    told = explanation(hosts, "403 Forbidden", "box/s", refused=[f"refused `{NPM_REGISTRY}`"])
    assert told is not None and "`mcp-workbench doctor --sandbox prepare box/s`" in told


@pytest.mark.parametrize(
    ("said", "is_about_it"),
    [
        ('sudo: The "no new privileges" flag is set, which prevents sudo from running as root.', True),
        ('cannot set up namespace using "/usr/bin/newuidmap": exit status 1', True),
        ("FATAL:zygote_host_impl_linux.cc(126)] No usable sandbox!", True),
        ("starting\nunshare: unshare failed: Operation not permitted", True),
        ("strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted", True),
        ("bwrap: Creating new namespace failed: Operation not permitted", True),
        ("bwrap: No permissions to create new namespace, likely because the kernel does not allow it", True),
        ("cannot clone: Operation not permitted", True),
        ("Error: EPERM: operation not permitted, io_uring_setup", True),
        ("tools: gdb, ptrace, strace\nError: Cannot find module './ptrace'", False),
        ("using io_uring for files\nError: no API key", False),
        ("bwrap: version 0.8.0\nTypeError: x is undefined", False),
        ("ptrace is off\nEACCES: permission denied, open '/etc/shadow'", False),
        ("kernel has no_new_privs and user namespaces", False),
        ("sudo: a password is required", False),
        ("", False),
    ],
)
def test_failure_under_guard_is_explained_with_a_remedy(said: str, is_about_it: bool) -> None:
    told = explanation(Sandbox("guard"), said, "box/s")
    assert (told is not None) == is_about_it
    assert told is None or '`"sandbox": "off"`' in told
    assert explanation(Sandbox("off"), said, "box/s") is None


def test_missing_files_were_hidden_unless_granted() -> None:
    sandbox = Sandbox("contained", limits_files=True, read=("/usr",), write=("/srv/work",))
    said = "ENOENT: no such file or directory, open '/home/me/.aws'\ncat: /srv/work/a: No such file or directory"
    assert hidden_paths(said, sandbox) == ["/home/me/.aws"]
    assert "it was not shown `/home/me/.aws`;" in (explanation(sandbox, said, "box/s", hides=True) or "")
    assert "not shown" not in (explanation(sandbox, said, "box/s") or "")


def test_a_list_of_hosts_is_mentioned_if_it_seems_to_miss_the_network() -> None:
    sandbox = Sandbox("contained", limits_files=True, network=("a.com", "b.com"))
    assert "only through the proxy" in (explanation(sandbox, "getaddrinfo ENOTFOUND c.com", "box/s") or "")
    assert "proxy" not in (explanation(sandbox, "SyntaxError", "box/s") or "")


def test_denials_can_be_listed_alone() -> None:
    contained = Sandbox("contained", limits_files=True, network=("a.test",))
    told = explanation(
        contained, "EACCES: open '/b'", "box/s", refused=["its sandbox refused a host: x; to allow it, y"]
    )
    assert told is not None
    assert denied(told) == "it was denied `/b`; its sandbox refused a host: x; to allow it, y"
    nothing, guard = (
        explanation(contained, "", "box/s"),
        explanation(Sandbox("guard"), "ptrace: Operation not permitted", "box/s"),
    )
    assert nothing is not None and denied(nothing) == ""
    assert guard is not None and denied(guard) == "" and denied("install it; or not") == ""
