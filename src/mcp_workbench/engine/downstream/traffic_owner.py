"""The interface through which traffic reports what concerns its connection as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.engine.downstream.traffic import Traffic


class TrafficOwner(Protocol):
    """The owner of a traffic."""

    def on_link_closed(self, traffic: Traffic, reason: str) -> None: ...

    def on_trouble(self, error: DownstreamError) -> None:
        """A request got no response, although the link is still open."""

    def on_list_changed(self, kind: str) -> None:
        """The server announced that its tools, prompts or resources have changed."""

    def on_resource_updated(self, params: Raw) -> None:
        """A resource with subscribers has changed."""

    def on_acknowledged(self, params: Raw | None) -> None:
        """The server has accepted a subscription."""

    def on_task_changed(self, params: Raw) -> bool:
        """A task has changed. Returns whether subscribers have been notified."""

    def on_asked(self) -> None:
        """The server has asked something, and only our own records tell whose question it is."""
