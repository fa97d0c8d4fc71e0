"""What `top` shows at the moment, and what a key changes about it. Knows nothing about terminals and sockets."""

from __future__ import annotations

from typing import Any, Final, Literal

from mcp_workbench.cli.top_view import (
    LIST_KEYS,
    SERVER_KEYS,
    TABS,
    Line,
    ServerRow,
    Tab,
    fitted,
    help_picture,
    picture,
    rows_of,
    server_picture,
)

# A text that is longer finds nothing.
MAX_FILTER: Final = 60
# As the terminal sends them, apart from those that are their own name.
_KEY_NAMES: Final = {"k": "up", "j": "down", "\r": "enter", "\n": "enter", "\x1b": "q", "\t": "right"}
_BACKSPACES: Final = ("\x7f", "\b")

END_OF_INPUT: Final = "end of input"

Wish = Literal["quit", "stop", "restart"]


class TopState:
    """The view, the chosen server and the filter."""

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []
        self.memory: dict[int, int] = {}
        # By identity, because rows change places; and its last row, for when it is gone.
        self._chosen: tuple[int, str] | None = None
        self._place = 0
        self._is_looking = False
        self._is_helping = False
        self._tab: Tab = "calls"
        self._scroll = 0
        # How many lines a page is, as last drawn.
        self._page = 1
        self._filter = ""
        self._is_typing = False
        # Of the server that is looked at: its log.
        self.log: list[str] = []

    @property
    def looks_at(self) -> ServerRow | None:
        """The server whose log and day are wanted."""
        return self.chosen if self._is_looking else None

    def rows(self) -> list[ServerRow]:
        text = "" if self._is_looking else self._filter
        return [row for look in self.looks for row in rows_of(look, self.memory, text)]

    @property
    def chosen(self) -> ServerRow | None:
        """The chosen server, or its neighbour if it is gone."""
        rows = self.rows()
        if not rows:
            return None
        places = (place for place, row in enumerate(rows) if (row.pid, row.label) == self._chosen)
        self._place = next(places, max(0, min(self._place, len(rows) - 1)))
        return rows[self._place]

    def press(self, key: str) -> Wish | None:
        """Handle a key. Returns what is to be done, if that is more than showing something else."""
        if key == END_OF_INPUT:
            return "quit"
        if self._is_typing:
            self._type(key)
            return None
        key = _KEY_NAMES.get(key, key)
        if self._is_helping:
            self._is_helping = False
        elif key == "?":
            self._is_helping = True
        elif key == "/":
            self._is_typing, self._filter, self._scroll = True, "", 0
        elif key == "q":
            return self._leave()
        elif key in ("up", "down", "page up", "page down"):
            self._move((1 if "page" not in key else self._page) * (1 if key.endswith("down") else -1))
        else:
            return self._act(key)
        return None

    def _type(self, key: str) -> None:
        if key in ("\r", "\n", "\x1b"):
            self._is_typing = False
            self._filter = "" if key == "\x1b" else self._filter
        elif key in _BACKSPACES:
            self._filter = self._filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self._filter = (self._filter + key)[:MAX_FILTER]

    def _leave(self) -> Wish | None:
        if self._filter:
            self._filter = ""
        elif self._is_looking:
            self._is_looking = False
        else:
            return "quit"
        return None

    def _move(self, by: int) -> None:
        rows = self.rows()
        if self._is_looking:
            # Calls and logs are read from their end, copies from their beginning.
            self._scroll = max(0, self._scroll + (by if self._tab == "copies" else -by))
        elif rows and self.chosen is not None:
            self._place = max(0, min(self._place + by, len(rows) - 1))
            self._choose(rows[self._place])

    def _choose(self, row: ServerRow) -> None:
        self._chosen = (row.pid, row.label)

    def _act(self, key: str) -> Wish | None:
        row = self.chosen
        if row is None:
            return None
        if key in ("s", "r"):
            self._choose(row)
            return "stop" if key == "s" else "restart"
        if key in ("enter", "l") and not self._is_looking:
            self._choose(row)
            self._is_looking, self._filter, self._scroll, self.log = True, "", 0, []
            self._tab = "log" if key == "l" else "calls"
        elif self._is_looking and key in ("left", "right", "l"):
            step = 1 if key == "right" else -1
            self._tab = "log" if key == "l" else TABS[(TABS.index(self._tab) + step) % len(TABS)]
            self._scroll = 0
        return None

    def lines(self, width: int, height: int) -> list[Line]:
        """What the terminal shows."""
        row = self.chosen
        self._page = max(1, height - 8)
        if self._is_helping:
            shown, keys = help_picture(width, height), "any key goes back"
        elif self._is_looking and row is not None:
            look = next(each for each in self.looks if each["status"]["pid"] == row.pid)
            shown = server_picture(look, row, self._tab, self.log, width, height, self._scroll, self._filter)
            keys = SERVER_KEYS
        else:
            place = None if row is None else self._place
            shown, keys = picture(self.looks, self.memory, width, height, place, self._filter), LIST_KEYS
        if self._is_typing:
            keys = f"/{self._filter}_  enter keep  escape clear"
        elif self._filter and not self._is_helping:
            keys = f"only `{self._filter}`, q shows all  {keys}"
        return [*shown, fitted([(keys, "dim")], width)]
