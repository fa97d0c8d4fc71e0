"""What the machine lacks is told apart from what is wrong with us."""

from __future__ import annotations

import errno
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcp_workbench import errors
from mcp_workbench.errors import NO_FILES, NO_MEMORY, NO_PROCESSES, distribution, package_hint, shortage


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError(), NO_MEMORY),
        (SystemError("error return without exception set"), NO_MEMORY),
        (RuntimeError("can't start new thread"), NO_PROCESSES),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), NO_PROCESSES),
        (RuntimeError("no running event loop"), None),
        (ImportError("x.so: failed to map segment from shared object"), NO_MEMORY),
        (OSError(errno.EMFILE, "Too many open files"), NO_FILES),
        (ExceptionGroup("two", [ValueError(), MemoryError()]), NO_MEMORY),
        (SystemError("bad argument to internal function"), None),
        (ImportError("no module named x"), None),
        (ValueError("x"), None),
    ],
)
def test_every_exception_for_a_shortage_is_recognised(error: Exception, what: str | None) -> None:
    assert shortage(error) == what


def test_a_thread_without_room_for_its_stack_lacks_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than any machine can address.
    monkeypatch.setattr(errors, "_STACK_BYTES", 1 << 60)
    assert shortage(RuntimeError("can't start new thread")) == NO_MEMORY


def test_the_name_of_our_package_is_that_of_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]["name"]
    assert distribution() == own and f"`pipx inject {own} keyring`" in package_hint("keyring")
    renamed = SimpleNamespace(dist=SimpleNamespace(name="another-workbench"))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [renamed])
    assert "`pipx inject another-workbench keyring`" in package_hint("keyring")


def test_documents_do_not_have_the_package_of_somebody_else_installed() -> None:
    root = Path(__file__).parents[1]
    installs = re.compile(r"(?:uvx|uv tool install|pipx (?:install|run)|pip install) '?mcp-workbench(?![-\w])")
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        assert not installs.search(path.read_text("utf-8")), path
