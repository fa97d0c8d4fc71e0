"""The connection to the state server: commands in one round trip, bounded, and whether it is there.

Owns the health of the state. While the server is away nobody waits for it: `run` fails at once, and one probe a second
finds out when it is back. Knows nothing about what the commands mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

from mcp_workbench.engine.lasting_state import StateUnavailable
from mcp_workbench.errors import ConfigError, package_hint

if TYPE_CHECKING:
    from valkey.asyncio import Valkey

log = logging.getLogger(__name__)

# For a whole round trip, connecting included. Calls never wait for it, and whoever does wait is a user who has just
# arrived from another instance.
STATE_TIMEOUT: Final = 0.2
MAX_CONNECTIONS_TO_STATE: Final = 8
# A subscription without any message for this long is made again: our own heartbeat would have come back.
SILENCE_LIMIT: Final = 5.0
Argument = str | bytes | int


class StateAway(StateUnavailable):
    """The state server cannot be used now; the message says why."""


class ValkeyLink:
    def __init__(self, url: str, password: str | None = None) -> None:
        """Raises `ConfigError`."""
        try:
            from valkey.asyncio import Valkey
            from valkey.asyncio.retry import Retry
            from valkey.backoff import NoBackoff
        except ImportError:
            raise ConfigError(
                "`cluster` needs the Python package `valkey`, which is not installed", hint=package_hint("valkey")
            ) from None
        self.address = without_password(url)
        never = Retry(NoBackoff(), 0)
        options: dict[str, Any] = {"retry": never, "single_connection_client": False, "protocol": 2}
        if password is not None:
            options["password"] = password
        try:
            self._client: Valkey = Valkey.from_url(
                url, socket_timeout=STATE_TIMEOUT, socket_connect_timeout=STATE_TIMEOUT, **options
            )
            # Reads for as long as there is nothing to read.
            self._listening: Valkey = Valkey.from_url(url, socket_connect_timeout=STATE_TIMEOUT, **options)
        except ValueError as error:
            raise ConfigError(f"the address of the cluster's state cannot be used: {error}") from None
        # Many users may arrive at once: they share a few connections.
        self._turns = asyncio.Semaphore(MAX_CONNECTIONS_TO_STATE)
        # Why it cannot be used now; None while it can, and before it was first used.
        self.problem: str | None = None
        # Seconds of the last round trip; None before the first.
        self.latency: float | None = None
        # How often it went away.
        self.outages = 0

    @property
    def is_away(self) -> bool:
        return self.problem is not None

    async def run(self, commands: Sequence[tuple[Argument, ...]], *, is_probe: bool = False) -> list[Any]:
        """Run these in one round trip and return their replies. Raises `StateAway`."""
        if self.problem is not None and not is_probe:
            raise StateAway(self.problem)
        began = time.monotonic()
        try:
            async with asyncio.timeout(STATE_TIMEOUT), self._turns:
                pipeline = self._client.pipeline(transaction=False)
                for command in commands:
                    pipeline.execute_command(*command)
                replies = cast("list[Any]", await pipeline.execute(raise_on_error=False))
            # Full, read-only, or not for us: what was to be written is not.
            if (refused := next((each for each in replies if isinstance(each, Exception)), None)) is not None:
                raise refused
        except (OSError, TimeoutError, _errors()) as error:
            _raise_if_cancelled()
            problem = _why(error)
            self._note(problem)
            raise StateAway(problem) from None
        _raise_if_cancelled()
        self.latency = time.monotonic() - began
        self._note(None)
        return replies

    def _note(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None and before is None:
            self.outages += 1
            log.warning(
                "the cluster's state at %s is away: %s; calls go on, and what is new is written when it is back",
                self.address,
                problem,
            )
        elif problem is None and before is not None:
            log.info("the cluster's state at %s is back", self.address)

    async def messages(self, channel: str) -> AsyncIterator[bytes]:
        """What is published on a channel, until the subscription breaks."""
        async with self._listening.pubsub(ignore_subscribe_messages=True) as subscription:
            try:
                async with asyncio.timeout(STATE_TIMEOUT):
                    await subscription.subscribe(channel)
                silent_since = time.monotonic()
                while time.monotonic() - silent_since < SILENCE_LIMIT:
                    message = await subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
                    _raise_if_cancelled()
                    if message is not None:
                        silent_since = time.monotonic()
                        yield message["data"]
            except (OSError, TimeoutError, _errors()):
                _raise_if_cancelled()

    async def close(self) -> None:
        for client in (self._client, self._listening):
            with contextlib.suppress(OSError, TimeoutError, _errors()):
                async with asyncio.timeout(STATE_TIMEOUT):
                    await client.aclose()


def _raise_if_cancelled() -> None:
    """The library loses a cancellation that arrives while it connects or disconnects; whoever waits for our end would
    wait forever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _errors() -> type[Exception]:
    from valkey.exceptions import ValkeyError

    return cast("type[Exception]", ValkeyError)


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
        return f"no answer within {STATE_TIMEOUT * 1000:.0f} ms"
    # The library's own messages end with the address, which we say ourselves.
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username
    return urlunsplit((parts.scheme, f"{user}@{host}" if user else host, parts.path, "", ""))
