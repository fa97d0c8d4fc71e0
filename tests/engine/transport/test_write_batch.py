"""Writers that are flushed together."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.engine.transport.write_batch import WriteBatch


class Noted:
    """A writer that writes down when it was flushed."""

    def __init__(self, name: str, flushed: list[str], *, fails: bool = False) -> None:
        self.name = name
        self.flushed = flushed
        self.fails = fails

    def flush(self) -> None:
        self.flushed.append(self.name)
        if self.fails:
            raise RuntimeError("a defect")


async def test_writers_are_flushed_once_in_the_order_they_came(caplog: pytest.LogCaptureFixture) -> None:
    flushed: list[str] = []
    batch = WriteBatch()
    for name in "abc":
        batch.add(Noted(name, flushed, fails=name == "b"))
    assert flushed == []
    await asyncio.sleep(0)
    assert flushed == ["a", "b", "c"], "also behind one that failed"
    assert "could not be sent" in caplog.text
    batch.add(Noted("d", flushed))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert flushed == ["a", "b", "c", "d"]


async def test_writes_caused_by_a_read_are_flushed_after_it() -> None:
    flushed: list[str] = []
    batch = WriteBatch()

    def handle(data: bytes) -> None:
        for name in data.decode():
            batch.add(Noted(name, flushed))
        assert flushed == []

    batch.run(handle, b"ab")
    assert flushed == ["a", "b"]
    await asyncio.sleep(0)
    assert flushed == ["a", "b"]
