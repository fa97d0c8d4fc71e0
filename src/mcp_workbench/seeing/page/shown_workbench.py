"""What the page needs of the workbench that it shows (`app.page_workbench`), as the given user may see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mcp_workbench.engine.config.page_settings import Capture
from mcp_workbench.engine.observe.ended_calls import EndedCalls
from mcp_workbench.engine.steps import AnyPassage
from mcp_workbench.seeing.page.sign_in import PageUser

Json = dict[str, Any]
# Toolbox, server, and which copy of it.
LogPlace = tuple[str, str, int]


class Unavailable(Exception):
    """Why something cannot be done, with the status of the response."""

    def __init__(self, status: int, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.more = more


class PageWorkbench(Protocol):
    """Methods raise `Unavailable`."""

    @property
    def capture(self) -> Capture: ...

    async def load(self, user: PageUser) -> None:
        """Read what servers offered when they last ran, if that was not needed before."""

    def state(self, user: PageUser) -> Json:
        """Without what belongs to the session of a browser."""

    def collect(self, collector: EndedCalls) -> Callable[[], None]:
        """Add all calls that end, whosoever they are, until the returned function is called."""

    def running(self) -> list[AnyPassage]:
        """All calls that have not ended."""

    def measure(self) -> None:
        """Measure what changes without being told. Returns at once."""

    def redact(self, text: str) -> str: ...

    def log_lines(self) -> dict[LogPlace, list[str]]:
        """The last lines that each copy of a server wrote, with secrets, which `redact` takes out."""

    async def tools(self, user: PageUser) -> list[Json]: ...

    async def call(self, user: PageUser, wanted: Json) -> Json: ...

    def approval(self, user: PageUser, id: str) -> Json:
        """The whole arguments of a call that waits for approval."""

    async def decide(self, user: PageUser, id: str, decision: str) -> Json: ...

    def server(self, user: PageUser, toolbox: str, server: str) -> Json: ...

    def decide_host(self, user: PageUser, toolbox: str, server: str, host: str, decision: str) -> Json:
        """Whether a server may reach a host that its sandbox refuses: `allow` or `refuse`, until the process ends."""

    async def act_on_server(self, user: PageUser, toolbox: str, server: str, do: str) -> Json: ...

    async def sign_in(self, user: PageUser, toolbox: str, server: str) -> Json: ...

    async def lock_changes(self, user: PageUser) -> Json: ...

    async def accept_lock(self, user: PageUser, toolbox: str, server: str, item: str, seen: str | None) -> Json:
        """`seen`: the hash of the definition that the user was shown; None if it is gone."""

    async def tokens(self, user: PageUser) -> Json: ...

    async def audit(self, user: PageUser, query: str, before: list[int], limit: int) -> Json:
        """`before`: which lines the user has seen, as the answer with these had it; empty for the last ones."""

    async def connect(self, user: PageUser) -> list[Json]: ...
