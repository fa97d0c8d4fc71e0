"""What the machine lacks is told apart from what is wrong with us."""

from __future__ import annotations

import errno

import pytest

from mcp_workbench.errors import NO_FILES, NO_MEMORY, shortage


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError(), NO_MEMORY),
        (SystemError("error return without exception set"), NO_MEMORY),
        (RuntimeError("can't start new thread"), NO_MEMORY),
        (RuntimeError("no running event loop"), None),
        (ImportError("x.so: failed to map segment from shared object"), NO_MEMORY),
        (OSError(errno.EMFILE, "Too many open files"), NO_FILES),
        (ExceptionGroup("two", [ValueError(), MemoryError()]), NO_MEMORY),
        (SystemError("bad argument to internal function"), None),
        (ImportError("no module named x"), None),
        (ValueError("x"), None),
    ],
)
def test_a_shortage_is_known_by_whatever_python_raises_for_it(error: Exception, what: str | None) -> None:
    assert shortage(error) == what
