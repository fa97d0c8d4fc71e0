"""The members of `page`: what the page keeps of calls, or that there is none. Loaded only for a file that has it."""

from __future__ import annotations

from typing import Final, Literal, get_args

from mcp_workbench.engine.config.kinds import one_of
from mcp_workbench.engine.config.members import Members
from mcp_workbench.engine.config.setting import Declared, setting

Capture = Literal["none", "shape", "redacted", "full"]
# From the least to the most.
CAPTURES: Final = get_args(Capture)


class PageConfig(Declared, frozen=True, kw_only=True):
    """What the page shows."""

    capture: Capture = setting(
        one_of(*CAPTURES),
        "What is kept of arguments and results while a page shows calls, in memory alone: nothing, the types of their "
        "values, the values without secrets, or everything (`full`, not with named keys or an identity provider).",
        "redacted",
    )
    # `"page": false`
    is_served: bool = True


PAGE: Final = Members(
    PageConfig,
    '`false`, or an object such as `{"capture": "shape"}`',
    switch=lambda is_served: PageConfig(is_served=is_served),
)
