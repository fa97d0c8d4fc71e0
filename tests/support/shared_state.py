"""State that several instances share within one process, without a server: for owners of state, not for the state."""

from __future__ import annotations

from collections.abc import Callable

from mcp_workbench.engine.lasting_state import LastingState, StateKind, StateUnavailable

_Place = tuple[StateKind, str, str]


class SharedServer:
    """What all instances see. Like the real one, it is written to later: in `settle`."""

    def __init__(self) -> None:
        self.values: dict[_Place, bytes] = {}
        self.is_away = False
        self.instances: list[SharedState] = []

    def instance(self) -> SharedState:
        made = SharedState(self)
        self.instances.append(made)
        return made

    def settle(self) -> None:
        """Write and show everything to everybody, until nobody keeps anything more."""
        while not self.is_away:
            for each in self.instances:
                each.show()
            if not sum(each.flush() for each in self.instances):
                return

    def come_back(self, *, is_empty: bool = False) -> None:
        self.is_away = False
        if is_empty:
            self.values.clear()
        self.settle()


class SharedState(LastingState):
    is_shared = True

    def __init__(self, server: SharedServer) -> None:
        self._server = server
        self.instance = f"instance {len(server.instances)}"
        self._pending: dict[_Place, bytes | None] = {}
        self._followers: list[tuple[StateKind, Callable[[dict[str, bytes]], None]]] = []
        self._heard: dict[str, list[Callable[[bytes], None]]] = {}

    @property
    def is_in_doubt(self) -> bool:
        return self._server.is_away

    def keep(self, kind: StateKind, principal: str, name: str, value: bytes) -> None:
        if len(value) <= kind.max_bytes:
            self._put((kind, principal, name), value)

    def drop(self, kind: StateKind, principal: str, name: str) -> None:
        self._put((kind, principal, name), None)

    def _put(self, place: _Place, value: bytes | None) -> None:
        self._pending[place] = value

    def flush(self) -> bool:
        pending, self._pending = self._pending, {}
        for place, value in pending.items():
            if value is None:
                self._server.values.pop(place, None)
            else:
                self._server.values[place] = value
        return bool(pending)

    async def find(self, kind: StateKind, principal: str, name: str, *, is_patient: bool = False) -> bytes | None:
        if self._server.is_away:
            raise StateUnavailable("it is away")
        return self._server.values.get((kind, principal, name))

    async def find_all(self, kind: StateKind, principal: str, *, is_patient: bool = False) -> dict[str, bytes]:
        if self._server.is_away:
            raise StateUnavailable("it is away")
        return self._all(kind, principal)

    def _all(self, kind: StateKind, principal: str) -> dict[str, bytes]:
        return {name: value for (of, who, name), value in self._server.values.items() if (of, who) == (kind, principal)}

    def follow(self, kind: StateKind, changed: Callable[[dict[str, bytes]], None]) -> None:
        self._followers.append((kind, changed))

    def show(self) -> None:
        for kind, changed in self._followers:
            changed(self._all(kind, ""))

    def tell(self, subject: str, body: bytes) -> None:
        for each in self._server.instances:
            if each is not self and not self._server.is_away:
                for heard in each._heard.get(subject, ()):
                    heard(body)

    def on_told(self, subject: str, heard: Callable[[bytes], None]) -> None:
        self._heard.setdefault(subject, []).append(heard)
