"""The table of all faces. A new face is a module under `engine/face/` and an entry here; settings, help and the
composition root read this table. Imports none of them: only the face in use is loaded at start."""

from __future__ import annotations

from typing import Final, NamedTuple


class FaceEntry(NamedTuple):
    name: str
    # Has `make(catalog, settings) -> Face`.
    module: str
    # What a client sees.
    shows: str
    # The sentence that `init` offers it with.
    choice: str
    # Command-line flags that it supports, and most others do not.
    flags: tuple[str, ...] = ()
    # Whether what is shown depends on the client.
    by_client: bool = False
    # Whether its names are made of those of toolboxes and servers, which must fit together.
    joins_names: bool = False


FACES: Final = {
    entry.name: entry
    for entry in (
        FaceEntry(
            name="proxy",
            module="mcp_workbench.engine.face.proxy",
            shows="two tools that open everything",
            choice="Two tools, open_toolbox and use_tool, however many servers you have.",
        ),
        FaceEntry(
            name="flat",
            module="mcp_workbench.engine.face.flat",
            shows="every tool at once",
            choice="Every tool of every server, in every conversation.",
            flags=("separator", "no-prefix", "list-timeout"),
        ),
        FaceEntry(
            name="dynamic",
            module="mcp_workbench.engine.face.dynamic",
            shows="the tools of each opened toolbox",
            choice="open_toolbox, and then the tools of each toolbox that the agent opens.",
            joins_names=True,
        ),
        FaceEntry(
            name="auto",
            module="mcp_workbench.engine.face.auto",
            shows="every tool for clients that defer them themselves, two tools for all others",
            choice="Every tool for clients that load definitions only when they need them, two tools for all others.",
            flags=("separator", "list-timeout"),
            by_client=True,
        ),
    )
}
JOINING_FACES: Final = tuple(name for name, entry in FACES.items() if entry.joins_names)
DEFAULT_FACE: Final = "proxy"
# What commands look through, whatever clients see: only there can every tool be named.
FACE_OF_COMMANDS: Final = "proxy"
# What `auto` chooses between: for clients that defer tool definitions themselves, and for all others.
FACES_OF_CLIENTS: Final = ("flat", "proxy")
# For a file without toolboxes, in the format of other clients, which list all tools.
DEFAULT_FACE_OF_PLAIN_FILES: Final = "flat"


def names_of_faces() -> str:
    """`proxy, flat, dynamic or auto`, for texts."""
    *others, last = FACES
    return f"{', '.join(others)} or {last}"
