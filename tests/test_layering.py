"""The house has rooms, and a request walks through them in one direction: imports point the same way.

`docs/design.md` draws the house; the table below is its exact form. A new room, or a new door between two, is a
decision about the architecture: change the table and its reason together with the design, not to silence this test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
MOST_LINES = 500
# Everything in Python that is ours to maintain.
FOLDERS = ("src", "tests", "scripts", "bench", "conformance", "soak")

# room: (rooms that it may import, why these and no others)
DOORS: dict[str, tuple[set[str], str]] = {
    "errors": (set(), "everybody raises them, so they know nobody"),
    "nearest": (set(), "a function of words"),
    "printable": (set(), "a function of text"),
    "json_schema": (set(), "a function of schemas"),
    "slices": (set(), "a function of bytes"),
    "faces": (set(), "a table that settings, help and the composition root read; names modules, imports none"),
    "run": (set(), "chooses the event loop; what runs on it is the caller's"),
    "economy": (
        {"errors", "nearest", "slices", "json_schema"},
        "searches, shortens and describes tools as values; does not know where they come from or who asks",
    ),
    "config": (
        {"errors", "nearest", "protocol", "faces"},
        "what the user wrote, and nothing that runs; a revision that can be written is one that `protocol` knows",
    ),
    "jsonrpc": ({"errors"}, "messages and ids; does not know MCP"),
    "observe": (
        {"errors", "config", "jsonrpc", "printable"},
        "writes down what others decided, in the encoding of the wire; the secrets to hide are in the config",
    ),
    "transport": (
        {"errors", "jsonrpc", "printable", "protocol", "json_schema"},
        "how messages travel, not what they mean; of `protocol` the names and what the HTTP binding of a revision has, "
        "and schemas for the parameters in them that travel as headers",
    ),
    "protocol": ({"errors", "jsonrpc"}, "the two eras of MCP, whoever is behind and however it is reached"),
    "catalog": (
        {"errors", "nearest", "config", "jsonrpc", "protocol", "economy"},
        "what is offered and under which name; no connections, so what is remembered works without them",
    ),
    "downstream": (
        {"errors", "config", "jsonrpc", "transport", "protocol", "catalog", "observe", "slices"},
        "one connection and its life; does not know who is calling, so neither face nor session",
    ),
    "face": (
        {"errors", "nearest", "config", "jsonrpc", "protocol", "catalog", "economy", "slices"},
        "turns a request into a decision; does no I/O, so no sockets, processes or connections",
    ),
    "steps": ({"jsonrpc"}, "values in and out: policy, audit and metrics will import it, and it none of them"),
    "router": (
        {"errors", "jsonrpc", "protocol", "catalog", "downstream", "face", "steps"},
        "the one way to a server: has a face decide, and carries the decision out: through the steps, to a connection",
    ),
    "signin": (
        {"errors", "config", "transport"},
        "signs in to servers over our own HTTP client; does not know who asks for it",
    ),
    "session": (
        {
            *("errors", "config", "jsonrpc", "transport", "protocol", "catalog", "downstream", "face"),
            *("router", "observe", "steps"),
        },
        "one client; sends only through the router, and hears from a connection when its server asks something",
    ),
    "gateway": (
        {
            *("errors", "config", "faces", "jsonrpc", "observe", "transport", "protocol", "catalog"),
            *("downstream", "face", "router", "session", "economy", "run", "steps", "signin"),
        },
        "the composition root: builds the rooms; is used by commands, does not know them",
    ),
    "serving": (
        {"errors", "config", "gateway", "session", "transport", "observe"},
        "serves clients until the end: knows the links to them and the gateway, nothing behind it",
    ),
    "demo": (set(), "servers that run as processes of their own, as foreign as anybody's"),
    "cli": (
        {
            *("errors", "nearest", "printable", "config", "faces", "jsonrpc", "observe", "transport", "protocol"),
            "catalog",
            *("downstream", "face", "router", "session", "economy", "run", "gateway", "serving", "demo"),
            "signin",
            "json_schema",
        },
        "commands for people: at the very front, nobody imports it",
    ),
    "__main__": ({"cli"}, "`python -m mcp_workbench` is the command"),
}

# Rooms that decide, or that hold what was said, and leave doing to others.
WITHOUT_IO = (
    "config",
    "catalog",
    "economy",
    "face",
    "faces",
    "errors",
    "nearest",
    "printable",
    "slices",
    "json_schema",
)
IO_MODULES = {"asyncio", "httptools", "multiprocessing", "select", "selectors", "socket", "ssl", "subprocess", "uvloop"}

# Names that say nothing about what a module owns.
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def dotted(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room that a dotted module name belongs to; None for the package itself and for everything foreign."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] or None if top == PACKAGE.name else None


def imported(path: Path, package: Path = PACKAGE) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a module imports, also in functions and for types only."""
    name = dotted(path, package)
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            # `from mcp_workbench import errors` names a room by its last part.
            yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)


def room_exists(room: str) -> bool:
    return (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").is_file()


def test_every_room_of_the_table_exists() -> None:
    named = DOORS.keys() | {room for allowed, _ in DOORS.values() for room in allowed} | set(WITHOUT_IO)
    missing = sorted(room for room in named if not room_exists(room))
    assert not missing, f"rooms that are only in the tables: {missing}"


def test_every_module_lives_in_a_room_of_the_table() -> None:
    homeless = {room for path in modules() if (room := room_of(dotted(path, PACKAGE))) and room not in DOORS}
    assert not homeless, f"rooms without an entry in DOORS: {sorted(homeless)}"


@pytest.mark.requirement("project.rooms")
def test_imports_go_only_through_the_doors_of_the_table() -> None:
    trespassing = []
    for path in modules():
        own = room_of(dotted(path, PACKAGE))
        for line, target in imported(path):
            room = room_of(target)
            if own is None or room is None or room == own or not room_exists(room):
                continue
            allowed, reason = DOORS[own]
            if room not in allowed:
                trespassing.append(f"{path.relative_to(ROOT)}:{line} imports {target}; {own}: {reason}")
    assert not trespassing, "\n".join(trespassing)


def test_the_package_itself_imports_no_room() -> None:
    """Whatever `import mcp_workbench` loads, every start pays for."""
    assert [target for _, target in imported(PACKAGE / "__init__.py") if room_of(target)] == []


def test_the_doors_form_no_circle() -> None:
    placed: set[str] = set()
    while placed != DOORS.keys():
        ready = {room for room, (allowed, _) in DOORS.items() if room not in placed and allowed <= placed}
        assert ready, f"these rooms import each other in a circle: {sorted(DOORS.keys() - placed)}"
        placed |= ready


@pytest.mark.parametrize("room", WITHOUT_IO)
def test_rooms_that_decide_do_no_io(room: str) -> None:
    doing = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for path in modules()
        if room_of(dotted(path, PACKAGE)) == room
        for line, target in imported(path)
        if target.partition(".")[0] in IO_MODULES
    ]
    assert not doing, "\n".join(doing)


def test_no_module_exceeds_500_lines() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert {path.relative_to(ROOT).parts[0] for path in files} == set(FOLDERS)
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = [f"{path.relative_to(ROOT)}: {lines} lines" for path, lines in sizes.items() if lines > MOST_LINES]
    assert not long, "split by owner of state:\n" + "\n".join(long)


@pytest.mark.requirement("project.rooms")
def test_every_module_says_what_it_owns() -> None:
    silent = []
    for path in modules():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and ast.get_docstring(tree) is None:
            silent.append(str(path.relative_to(ROOT)))
    assert not silent, f"modules without a docstring: {silent}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [str(path.relative_to(ROOT)) for path in modules() if path.stem in EMPTY_NAMES] == []


def test_every_form_of_import_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "mcp_workbench"
    (package / "face").mkdir(parents=True)
    module = package / "face" / "proxy.py"
    module.write_text(
        "import mcp_workbench.downstream.pool\n"
        "from mcp_workbench.transport import stdio\n"
        "from mcp_workbench import session\n"
        "from mcp_workbench import __version__\n"
        "from ..router import Router\n"
        "from .. import gateway\n"
        "from .names import exposed\n"
        "def late():\n"
        "    from mcp_workbench.observe.log import setup\n"
    )
    assert sorted(imported(module, package)) == [
        (1, "mcp_workbench.downstream.pool"),
        (2, "mcp_workbench.transport.stdio"),
        (3, "mcp_workbench.session"),
        (4, "mcp_workbench.__version__"),
        (5, "mcp_workbench.router.Router"),
        (6, "mcp_workbench.gateway"),
        (7, "mcp_workbench.face.names.exposed"),
        (9, "mcp_workbench.observe.log.setup"),
    ]
    rooms = [room_of(target) for _, target in sorted(imported(module, package))]
    assert rooms == ["downstream", "transport", "session", "__version__", "router", "gateway", "face", "observe"]
