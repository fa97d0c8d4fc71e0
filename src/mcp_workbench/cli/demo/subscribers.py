"""Which clients are notified when resources change, in both eras.

Owns the subscriptions: legacy `resources/subscribe`, modern `subscriptions/listen`. Knows nothing about what changes or
how notifications are written.
"""

from __future__ import annotations

# As in `typing`, without importing it: these servers start as fast as they can.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_workbench.cli.demo.offerings import Json

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


class Subscribers:
    def __init__(self, notify: Callable[[str, Json], None]) -> None:
        self._notify = notify
        # Set by `initialize`: legacy clients are notified of list changes without a subscription.
        self.legacy_session = False
        self.legacy_uris: set[str] = set()
        self._listening: dict[str | int, Json] = {}

    def listen(self, request_id: str | int, wanted: Json) -> None:
        """Acknowledge the supported subscriptions; the request stays open until it is cancelled."""
        honoured: Json = {}
        if wanted.get("resourcesListChanged") is True:
            honoured["resourcesListChanged"] = True
        if isinstance(uris := wanted.get("resourceSubscriptions"), list):
            honoured["resourceSubscriptions"] = uris
        # What is not among them the client knows it will not get.
        params = {"_meta": {SUBSCRIPTION_ID: request_id}, "notifications": honoured}
        self._notify("notifications/subscriptions/acknowledged", params)
        self._listening[request_id] = honoured

    def stop(self, request_id: str | int) -> None:
        self._listening.pop(request_id, None)

    def updated(self, uri: str) -> None:
        if uri in self.legacy_uris:
            self._notify("notifications/resources/updated", {"uri": uri})
        for subscription, honoured in self._listening.items():
            if uri in honoured.get("resourceSubscriptions", ()):
                self._notify("notifications/resources/updated", {"_meta": {SUBSCRIPTION_ID: subscription}, "uri": uri})

    def list_changed(self) -> None:
        if self.legacy_session:
            self._notify("notifications/resources/list_changed", {})
        for subscription, honoured in self._listening.items():
            if honoured.get("resourcesListChanged"):
                self._notify("notifications/resources/list_changed", {"_meta": {SUBSCRIPTION_ID: subscription}})
