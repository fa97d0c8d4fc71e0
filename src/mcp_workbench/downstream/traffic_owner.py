"""Whom a traffic tells what concerns its connection as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Raw

from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from mcp_workbench.downstream.traffic import Traffic


class TrafficOwner(Protocol):
    """Whose traffic it is."""

    def on_link_closed(self, traffic: Traffic, reason: str) -> None:
        """The link is gone."""

    def on_trouble(self, error: DownstreamError) -> None:
        """A request got no answer, though the link lives on."""

    def on_list_changed(self, kind: str) -> None:
        """The server says that its tools, prompts or resources have changed."""

    def on_resource_updated(self, params: Raw) -> None:
        """A resource that somebody watches has changed."""

    def on_acknowledged(self) -> None:
        """The server has accepted a subscription."""

    def on_asked(self) -> None:
        """The server has asked something, and nothing but our bookkeeping says whose question that is."""
