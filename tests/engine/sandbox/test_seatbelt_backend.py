"""The profile for macOS, as text: no Mac has tried it."""

from __future__ import annotations

from mcp_workbench.engine.sandbox.sandbox import Sandbox
from mcp_workbench.engine.sandbox.seatbelt_backend import profile_text


def test_guard_limits_neither_files_nor_the_network() -> None:
    text = profile_text(Sandbox("guard"))
    assert "(deny signal (target others))" in text and "file-read" not in text and "network" not in text


def test_contained_denies_files_before_it_grants_some() -> None:
    text = profile_text(Sandbox("contained", limits_files=True, read=("/usr",), write=('/a "b"\\c',)))
    lines = text.splitlines()
    assert lines.index("(deny file-read* file-write*)") < lines.index('(allow file-read* (subpath "/usr"))')
    assert '(allow file-write* (subpath "/a \\"b\\"\\\\c"))' in lines
    assert not any("file-write" in line and "/usr" in line for line in lines)
    assert "(deny network* (remote ip) (local ip))" not in lines


def test_sealed_has_no_network() -> None:
    assert "(deny network* (remote ip) (local ip))" in profile_text(Sandbox("sealed", True, network="none"))
