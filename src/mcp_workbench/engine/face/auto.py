"""The face `auto`: each client gets the face that suits it.

Clients that load tool definitions only when needed get all tools (`flat`), under names that they accept: they would
defer the two tools of `proxy` as well, and every call would take two searches. All other clients get `proxy`. The table
of clients is in `engine.face.client_behaviour`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.config.model import DEFAULT_SEPARATOR
from mcp_workbench.engine.face.base import Face, FaceSettings
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.proxy import make as make_proxy
from mcp_workbench.engine.face.view import View

if TYPE_CHECKING:
    from mcp_workbench.engine.face.client_behaviour import Behaviour
    from mcp_workbench.engine.face.kept_results import KeptResults

# How tools are named and marked: separator, maximum length of names, marks.
_Style = tuple[str, int, tuple[str, ...]]


class AutoFace(Face):
    """Chooses a face for each client, and resolves no requests itself."""

    name = "auto"
    tells_clients_apart = True

    def __init__(self, catalog: Catalog, settings: FaceSettings) -> None:
        super().__init__(catalog, settings)
        self._proxy = make_proxy(catalog, settings)
        self._flat: dict[_Style, FlatFace] = {}
        # One for all faces: links are a principal's, whose clients may see different ones.
        self._proxy.links = self.links
        self.tool_index = self._proxy.tool_index

    def configure(self, settings: FaceSettings) -> None:
        super().configure(settings)
        for face in self._shown():
            # How names are made stays: clients have seen them.
            own = face.settings
            face.configure(replace(settings, separator=own.separator, longest_name=own.longest_name, marks=own.marks))

    def give_notice(self, notice: str | None) -> None:
        super().give_notice(notice)
        for face in self._shown():
            face.give_notice(notice)

    def kept_results(self) -> KeptResults | None:
        return self._proxy.kept_results()

    def share_state_of(self, whole: Face) -> None:
        super().share_state_of(whole)
        for face in self._shown():
            face.share_state_of(whole)

    def _shown(self) -> list[Face]:
        return [self._proxy, *self._flat.values()]

    def for_client(self, view: View) -> Face:
        """Decided once, when the client sends its `clientInfo`, so that its face never changes while it is
        connected."""
        client = self.client_of(view)
        if client.face == FlatFace.name and self._has_room(client):
            return self._flat_for(client)
        return self._proxy

    def _has_room(self, client: Behaviour) -> bool:
        """Whether the client accepts this many tools. Unless all are known, assume that it does not."""
        if not client.flat_up_to:
            return True
        entries = list(self.catalog.entries())
        return all(entry.offer is not None for entry in entries) and (
            sum(len(entry.tools) for entry in entries) <= client.flat_up_to
        )

    def _flat_for(self, client: Behaviour) -> FlatFace:
        # The user's separator takes precedence; clients refuse the default one.
        own = self.settings.separator
        style = (client.separator if own == DEFAULT_SEPARATOR else own, client.longest_name, client.marks)
        face = self._flat.get(style)
        if face is None:
            separator, longest, marks = style
            settings = replace(self.settings, separator=separator, longest_name=longest, marks=marks)
            face = self._flat[style] = FlatFace(self.catalog, settings)
            face.links, face.notice, face.reports = self.links, self.notice, self.reports
        return face

    # ── for no particular client ──

    def entries(self, view: View) -> list[ServerEntry]:
        return self._proxy.entries(view)

    def needed_first(self) -> Iterable[ServerEntry]:
        """The first client may be one that sees all tools."""
        return self.catalog.entries()

    def exposed(self, entry: ServerEntry, name: str) -> str:
        return self._proxy.exposed(entry, name)

    def tools(self, view: View) -> Sequence[bytes]:
        """What an unknown client sees."""
        return self._proxy.tools(view)

    def own_names(self) -> list[str]:
        return self._proxy.own_names()

    def definition_of(self, tool: str) -> Raw | None:
        return next((found for face in self._shown() if (found := face.definition_of(tool)) is not None), None)

    def instructions(self, view: View) -> str:
        return self._proxy.instructions(view)

    def remarks(self) -> list[str]:
        return self._proxy.remarks()


def make(catalog: Catalog, settings: FaceSettings) -> Face:
    """The factory for the table in `engine/faces.py`."""
    return AutoFace(catalog, settings)
