"""Following the log of a process."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.observe.log import set_up
from mcp_workbench.engine.observe.log_tail import MAX_FOLLOWED_LINES, LogTail

log = logging.getLogger("mcp_workbench.somewhere")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    loggers = [logging.getLogger(name) for name in ("mcp_workbench", "asyncio")]
    before = [(each, list(each.handlers), each.propagate, each.level) for each in loggers]
    stream = io.StringIO()
    set_up(debug=False, file=None, format="text", redactor=Redactor(["a-long-secret"]), stream=stream)
    yield stream
    for each, handlers, propagate, level in before:
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


def test_lines_are_those_of_the_log_with_secrets_redacted(written: io.StringIO) -> None:
    log.warning("before")
    tail = LogTail()
    log.warning("one")
    seen = tail.count
    log.warning("the a-long-secret")
    log.debug("not in the log")
    assert tail.since(seen) == [written.getvalue().splitlines()[-1]] and "a-long-secret" not in tail.since(0)[-1]
    assert len(tail.since(0)) == 2 and tail.since(tail.count) == [] and tail.since(99) == []
    tail.end()
    log.warning("after")
    assert tail.count == 2


def test_only_the_latest_lines_are_kept(written: io.StringIO) -> None:
    tail = LogTail()
    for number in range(MAX_FOLLOWED_LINES + 5):
        log.info("line %d", number)
    assert tail.count == MAX_FOLLOWED_LINES + 5 and len(tail.since(0)) == MAX_FOLLOWED_LINES
    assert tail.since(0)[0].endswith(" line 5") and tail.since(MAX_FOLLOWED_LINES)[0].endswith(f" {MAX_FOLLOWED_LINES}")
    tail.end()
