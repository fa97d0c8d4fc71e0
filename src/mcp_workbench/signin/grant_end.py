"""When a grant expires for good, however often its token is refreshed, and when to warn the user. Pure.

Some authorization servers say so with each token; for others it is only documented (`grantDays` in `profiles.json`). A
grant without a refresh token expires with its access token.
"""

from __future__ import annotations

import time
from typing import Final

from mcp_workbench.signin.store import SignInRecord

DAY: Final = 86400.0
# Warn this long before the end, enough to cover a weekend, but never in the first nine tenths of the grant's life.
GRANT_END_WARNING_MARGIN: Final = 3 * DAY
WARN_SHARE: Final = 0.1


def ends_at(record: SignInRecord) -> float | None:
    """When the user has to sign in again, in seconds since 1970; None if that is unknown."""
    if record.grant != "authorization_code" or record.ended or not record.access_token:
        return None
    if record.refresh_token is None:
        return record.expires_at
    known = [each for each in (record.grant_limit_at, record.refresh_ends_at) if each is not None]
    return min(known, default=None)


def is_near(record: SignInRecord, now: float) -> bool:
    """Whether it is time to sign in again."""
    end = ends_at(record)
    if end is None:
        return False
    began = record.obtained_at if end == record.refresh_ends_at else record.signed_in_at
    return now >= end - min(GRANT_END_WARNING_MARGIN, WARN_SHARE * max(end - began, 0.0))


def note(record: SignInRecord, command: str, now: float) -> str:
    """The warning for the user; "" while there is time."""
    end = ends_at(record)
    if end is None or not is_near(record, now):
        return ""
    verb = "ended" if now >= end else "ends"
    return f"the sign-in {verb} on {shown(end)}; run `{command} --again` to sign in for another term"


def shown(moment: float) -> str:
    """A date and a time for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
