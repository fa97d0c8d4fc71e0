"""What callers of a server wait on: that it is ready, that it has listed what it offers."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future


def quiet_future(loop: AbstractEventLoop) -> Future[None]:
    """A future that may fail while nobody waits for it; that is not an error of its own."""
    future: Future[None] = loop.create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
    return future
