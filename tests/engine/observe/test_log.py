"""Logs stay readable and bounded, whatever is provoked."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.observe.log import (
    MAX_LINES_PER_MINUTE,
    MAX_SIMILAR_LINES,
    MAX_SIMILAR_TRACEBACKS,
    RepetitionLimit,
    set_up,
)


def _record(
    moment: float, text: str = "went %s", *args: object, line: int = 1, level: int = logging.ERROR, defect: bool = False
) -> logging.LogRecord:
    try:
        raise RuntimeError("a defect")
    except RuntimeError:
        trace = sys.exc_info() if defect else None
    record = logging.LogRecord("mcp_workbench", level, "x.py", line, text, args or ("wrong",), trace)
    record.created = moment
    return record


def _passed(limit: RepetitionLimit, records: Iterator[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if limit.filter(record)]


def test_tracebacks_are_logged_so_many_a_minute_and_the_others_counted() -> None:
    limit = RepetitionLimit()
    # Of different places in the code: what is alike has a limit of its own.
    many = (_record(1000.0 + number / 100, line=number, defect=True) for number in range(MAX_SIMILAR_TRACEBACKS + 5))
    assert _passed(limit, many) == ["went wrong"] * MAX_SIMILAR_TRACEBACKS
    later = _record(1100.0, defect=True)
    assert limit.filter(later)
    assert later.getMessage() == "went wrong (5 lines were not logged before this one)"
    after = _record(1101.0, defect=True)
    assert limit.filter(after) and after.getMessage() == "went wrong"


def test_a_line_that_repeats_is_logged_so_often_a_minute_and_says_that_it_stops() -> None:
    limit = RepetitionLimit()
    lines = _passed(limit, (_record(1000.0 + number / 1000) for number in range(10_000)))
    assert len(lines) == MAX_SIMILAR_LINES
    assert lines[-1] == "went wrong (more like this are not logged within this minute)"
    other = _passed(limit, iter([_record(1020.0, "[%s] %s", "box/other", "went wrong")]))
    assert other == [f"[box/other] went wrong ({10_000 - MAX_SIMILAR_LINES} lines were not logged before this one)"]
    assert _passed(limit, iter([_record(1061.0)])) == ["went wrong"]


def test_lines_about_different_servers_are_not_alike_but_bounded_in_all() -> None:
    limit = RepetitionLimit()
    records = (_record(1000.0, "[%s] %s", f"box/{number}", "failed") for number in range(2 * MAX_LINES_PER_MINUTE))
    assert len(_passed(limit, records)) == MAX_LINES_PER_MINUTE


def test_a_clock_that_jumps_back_begins_a_new_minute() -> None:
    limit = RepetitionLimit()
    assert len(_passed(limit, (_record(1e9) for _ in range(100)))) == MAX_SIMILAR_LINES
    assert len(_passed(limit, (_record(10.0) for _ in range(100)))) == MAX_SIMILAR_LINES


def test_debug_records_are_not_limited() -> None:
    limit = RepetitionLimit()
    assert len(_passed(limit, (_record(1.0, level=logging.DEBUG) for _ in range(5000)))) == 5000


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    loggers = [logging.getLogger(name) for name in ("mcp_workbench", "asyncio")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    path = tmp_path / "log"
    set_up(debug=False, file=str(path), format="text", redactor=Redactor(()))
    handler = loggers[0].handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    yield path
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
    handler.stream.close()
    handler.close()


def test_a_line_of_text_has_its_date_and_time(log_file: Path) -> None:
    logging.getLogger("mcp_workbench.somewhere").info("hello")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO    hello\n", log_file.read_text())


def test_event_loop_errors_go_to_the_same_log_within_the_limit(log_file: Path) -> None:
    """A callback that raises is logged by asyncio itself, which would write to stderr for ever."""
    for _ in range(1000):
        logging.getLogger("asyncio").error("Exception in callback", exc_info=MemoryError())
    text = log_file.read_text()
    assert text.count("Exception in callback") == MAX_SIMILAR_TRACEBACKS
    assert text.startswith("20")
