"""The errors of the house, classified by who is to blame.

A class exists only where a caller acts differently. `hint` says what to do next. `failure_text` in `face/wording.py`
makes words of them, `on_failure` in `session/call.py` an `isError` result or a JSON-RPC error of these, and
`cli/complain.py` what a person reads. What a client asked wrongly is no exception but a decision (`Reject`).
"""

from __future__ import annotations


class WorkbenchError(Exception):
    """Base of everything we raise on purpose. `str(error)` is the message, `hint` the next step."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(WorkbenchError):
    """The user's configuration is at fault: nothing was started, exit status 2."""


class DownstreamError(WorkbenchError):
    """A server behind us failed: did not start, crashed, timed out, or cannot be reached."""


class DownstreamTimeout(DownstreamError):
    """A server did not answer in time; the request was cancelled there and is not repeated."""


class ServerGone(DownstreamError):
    """The server ended while it was being met; with a legacy server that dies of the probe, that is no failure yet."""
