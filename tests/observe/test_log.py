"""Logs stay readable and bounded, whatever is provoked."""

from __future__ import annotations

import logging
import sys

from mcp_workbench.observe.log import MOST_TRACEBACKS, _FewTracebacks


def _record(moment: float, *, is_defect: bool = True) -> logging.LogRecord:
    try:
        raise RuntimeError("a defect")
    except RuntimeError:
        trace = sys.exc_info() if is_defect else None
    record = logging.LogRecord("mcp_workbench", logging.ERROR, "x.py", 1, "went %s", ("wrong",), trace)
    record.created = moment
    return record


def test_tracebacks_are_logged_so_many_a_minute_and_the_others_counted() -> None:
    few = _FewTracebacks()
    passed = [few.filter(_record(1000.0 + number / 100)) for number in range(MOST_TRACEBACKS + 5)]
    assert passed == [True] * MOST_TRACEBACKS + [False] * 5
    assert few.filter(_record(1001.0, is_defect=False)), "what has no traceback is short"
    later = _record(1100.0)
    assert few.filter(later)
    assert later.getMessage() == "went wrong (5 more like this were not logged)"
    after = _record(1101.0)
    assert few.filter(after) and after.getMessage() == "went wrong"
