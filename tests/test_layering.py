"""A request passes through the packages in one direction, and imports point the same way.

`docs/internals/design.md` draws it; the table below is its exact form, in both directions: what is not in it is not
imported, and what is in it is. A new package, or a new import between two, is a decision about the architecture: change
the table and its reason together with the design, not to silence this test.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import statements_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
MAX_FILE_LINES = 800
# Everything in Python that is ours to maintain.
FOLDERS = ("src", "tests", "scripts", "bench", "conformance", "soak")

# part of the program: (parts that it may import, why these and no others)
PARTS: dict[str, tuple[set[str], str]] = {
    "errors": (set(), "everybody raises them, so they know nobody"),
    "engine": ({"errors"}, "everything between a client and a server; serves without any other part"),
    "signin": ({"errors", "engine"}, "signs in to servers through the engine's HTTP client; does not know who asks"),
    "team": (
        {"errors", "engine", "signin"},
        "who is calling and what they may do; of `signin` the requests to an authorization server as values",
    ),
    "seeing": ({"engine"}, "what is shown of a running workbench; reads figures, and takes no part in any call"),
    "cluster": (
        {"errors", "engine"},
        "what instances leave for each other; loaded where that is configured, and knows nothing of what it means",
    ),
    "programs": ({"errors", "engine"}, "runs agents' programs, whose calls are calls of their clients; knows no rules"),
    "app": (
        {"errors", "engine", "signin", "team", "seeing", "cluster", "programs"},
        "the composition root: builds the parts for one configuration",
    ),
    "sharing": ({"errors", "engine", "app"}, "takes clients in over a socket, and has `app` serve each of them"),
    "setup": ({"errors", "engine", "signin", "sharing"}, "other programs' files; does not know who runs it"),
    "cli": (
        {"errors", "engine", "signin", "team", "cluster", "app", "sharing", "setup"},
        "commands for people: at the very front, nobody imports it",
    ),
    "__main__": ({"engine", "sharing", "cli"}, "the entry point: the front end or a command"),
}

# package of the engine: (packages of the engine that it may import, why these and no others)
ENGINE: dict[str, tuple[set[str], str]] = {
    "engine.nearest": (set(), "a function of words"),
    "engine.printable": (set(), "a function of text"),
    "engine.portable_os": (set(), "what POSIX alone has, with what stands for it elsewhere"),
    "engine.own_files": (set(), "how files of ours are written; does not know which there are"),
    "engine.json_schema": (set(), "a function of schemas"),
    "engine.slices": (set(), "a function of bytes"),
    "engine.nesting": (set(), "a function of bytes"),
    "engine.faces": (set(), "a table that settings, help and the composition root read; names modules, imports none"),
    "engine.run": (set(), "chooses the event loop; what runs on it is the caller's"),
    "engine.version": (set(), "which commit this is; the front end asks at each start, so it imports nothing"),
    "engine.process_context": (
        {"engine.portable_os"},
        "where sockets lie, and the terminal; looked at on each start, so it imports next to nothing",
    ),
    "engine.socket_peers": (set(), "asks the system who is at the other end of a socket; needed on each start"),
    "engine.economy": (
        {"engine.json_schema", "engine.nearest", "engine.slices"},
        "searches, shortens and describes tools as values; does not know where they come from or who asks",
    ),
    "engine.config": (
        {
            "engine.economy",
            "engine.faces",
            "engine.nearest",
            "engine.nesting",
            "engine.own_files",
            "engine.portable_os",
            "engine.protocol",
            "errors",
        },
        "what the user wrote, and nothing that runs; `protocol` knows the revisions, `economy` the smallest budget",
    ),
    "engine.jsonrpc": ({"engine.nesting", "errors"}, "messages and ids; does not know MCP"),
    "engine.observe": (
        {
            "engine.config",
            "engine.jsonrpc",
            "engine.printable",
            "engine.process_context",
            "engine.socket_peers",
            "engine.steps",
        },
        "writes down what others decided, in the encoding of the wire; the secrets to hide are in the config",
    ),
    "engine.transport": (
        {
            "engine.json_schema",
            "engine.jsonrpc",
            "engine.printable",
            "engine.protocol",
            "engine.slices",
            "engine.socket_peers",
            "errors",
        },
        "how messages travel, not what they mean; of `protocol` the names and what the HTTP binding of a"
        " revision has, and schemas for the parameters in them that travel as headers",
    ),
    "engine.sandbox": (
        {"engine.config", "engine.transport", "errors"},
        "what a server may touch: from its settings to how its process is started; knows no connections",
    ),
    "engine.protocol": (
        {"engine.jsonrpc", "errors"},
        "the two eras of MCP, whoever is behind and however it is reached",
    ),
    "engine.catalog": (
        {
            "engine.config",
            "engine.economy",
            "engine.json_schema",
            "engine.jsonrpc",
            "engine.own_files",
            "engine.portable_os",
            "engine.protocol",
            "errors",
        },
        "what is offered and under which name; no connections, so what is remembered works without them",
    ),
    "engine.downstream": (
        {
            "engine.blocking_work",
            "engine.catalog",
            "engine.config",
            "engine.jsonrpc",
            "engine.protocol",
            "engine.slices",
            "engine.transport",
            "errors",
        },
        "one connection and its life; does not know who is calling, so neither face nor session",
    ),
    "engine.face": (
        {
            "engine.catalog",
            "engine.config",
            "engine.economy",
            "engine.faces",
            "engine.jsonrpc",
            "engine.lasting_state",
            "engine.nearest",
            "engine.protocol",
            "engine.slices",
            "engine.steps",
            "errors",
        },
        "turns a request into a decision, for the client that it comes from; does no I/O, so no sockets,"
        " processes or connections",
    ),
    "engine.steps": (
        {"engine.jsonrpc"},
        "values in and out: policy, audit and metrics import it, and it imports none of them",
    ),
    "engine.router": (
        {
            "engine.blocking_work",
            "engine.catalog",
            "engine.downstream",
            "engine.face",
            "engine.jsonrpc",
            "engine.lasting_state",
            "engine.protocol",
            "engine.steps",
            "errors",
        },
        "the one way to a server: has a face decide, and carries the decision out: through the steps, to a connection",
    ),
    "engine.session": (
        {
            "engine.catalog",
            "engine.downstream",
            "engine.face",
            "engine.jsonrpc",
            "engine.protocol",
            "engine.router",
            "engine.steps",
            "engine.transport",
            "errors",
        },
        "one client; sends only through the router, and hears from a connection when its server asks something",
    ),
    "engine.lasting_state": (set(), "an interface, and the implementation for a workbench that is alone"),
    "engine.blocking_work": (set(), "runs what it is given"),
    "engine.file_watch": (set(), "looks at files, whatever they hold"),
}
# What the front end imports of the engine: every client pays for it at each start.
FRONT_END: set[str] = {"engine.process_context", "engine.socket_peers", "engine.version"}
ALLOWED_IMPORTS = {name: row for name, row in PARTS.items() if name != "engine"} | ENGINE

# Modules of one package that know each other, counting imports for types only and inside functions, and why that is no
# accident. None of them imports another in a circle at run time: one side needs the other's name and nothing more.
KNOTS: dict[frozenset[str], str] = {
    frozenset({"app.gateway", "app.team_gate"}): "a gateway makes its gate, which connects the parts of that gateway",
    frozenset(
        {
            "engine.router.call_list",
            "engine.router.router",
            "engine.router.subscriptions",
            "engine.router.task_requests",
            "engine.router.task_runs",
        }
    ): "they act through the router",
    frozenset({"engine.catalog.catalog", "engine.catalog.entry", "engine.catalog.replacement"}): (
        "a catalogue makes its entries and applies plans; both are about one catalogue"
    ),
    frozenset({"engine.face.proxy", "engine.face.split_use_tool"}): (
        "the one is the other with a tool more, and is loaded only where the configuration wants it"
    ),
    frozenset(
        {
            "engine.downstream.server_questions",
            "engine.downstream.clients",
            "engine.downstream.fair_requests",
            "engine.downstream.traffic",
        }
    ): (
        "a traffic owns its questions, its clients and what waits for its turn; what they answer leaves through it, "
        "and it reports to its connection"
    ),
    frozenset({"engine.downstream.connection", "engine.downstream.server_link", "engine.downstream.server_run"}): (
        "a connection starts runs of its server, and a run reports to its connection"
    ),
    frozenset(
        {
            "engine.face.base",
            "engine.face.gate",
            "engine.face.kept_results",
            "engine.face.merged_skills",
            "engine.face.view",
        }
    ): (
        "a face keeps results for views, and has skills merged when asked for them; a view belongs to one face, "
        "which its gate chooses"
    ),
    frozenset(
        {
            "engine.session.client_call",
            "engine.session.inner_call",
            "engine.session.methods",
            "engine.session.own_questions",
            "engine.session.signing_in",
            "engine.session.parking",
            "engine.session.relayed_inputs",
            "engine.session.rounds",
            "engine.session.session",
        }
    ): (
        "a session owns its calls, and a call answers through its session; parking, rounds, sign-ins and inner calls "
        "are what becomes of a call meanwhile, loaded with the first call that needs them"
    ),
    frozenset(
        {
            "engine.transport.http.server.admission",
            "engine.transport.http.server.authentication",
            "engine.transport.http.server.request_head",
        }
    ): "a head keeps the verdict on it, so that the same head is judged once",
    frozenset(
        {
            "engine.transport.http.server.server_connection",
            "engine.transport.http.server.connections",
            "engine.transport.http.server.unauthenticated_connections",
        }
    ): "a connection joins the table of all, and the table closes connections",
}

# Packages without sockets, processes and an event loop: they decide, or hold what was said. `config` and `catalog` read
# and write files all the same.
WITHOUT_SOCKETS_OR_PROCESSES = (
    "engine.config",
    "engine.catalog",
    "engine.economy",
    "engine.face",
    "engine.faces",
    "errors",
    "engine.nearest",
    "engine.portable_os",
    "engine.printable",
    "engine.slices",
    "engine.nesting",
    "engine.json_schema",
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


def package_of(module: str) -> str | None:
    """The part that a dotted module name belongs to, in the engine its package; None for the package itself and for
    everything foreign."""
    top, *names = module.split(".")
    if top != PACKAGE.name or not names:
        return None
    return ".".join(names[:2] if names[0] == "engine" else names[:1])


@cache
def imported(path: Path, package: Path = PACKAGE) -> tuple[tuple[int, str], ...]:
    """Line and dotted name of everything that a module imports, also in functions and for types only."""
    name = dotted(path, package)
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: list[tuple[int, str]] = []
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            origin = ".".join([*base, node.module] if node.module else base)
            # `from mcp_workbench import errors` names a package by its last part.
            found += [(node.lineno, f"{origin}.{alias.name}") for alias in node.names]
    return tuple(found)


def package_exists(package: str) -> bool:
    place = PACKAGE.joinpath(*package.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def is_allowed(package: str, allowed: set[str]) -> bool:
    """Whether a row allows a package: by its name, or as a part of the program."""
    return package in allowed or package.partition(".")[0] in allowed


def test_every_package_of_the_table_exists() -> None:
    named = (
        ALLOWED_IMPORTS.keys()
        | {package for allowed, _ in ALLOWED_IMPORTS.values() for package in allowed}
        | set(WITHOUT_SOCKETS_OR_PROCESSES)
    )
    missing = sorted(package for package in named if not package_exists(package))
    assert not missing, f"packages that are only in the tables: {missing}"


def test_every_module_belongs_to_a_package_of_the_table() -> None:
    unlisted = {
        package
        for path in modules()
        if (package := package_of(dotted(path, PACKAGE))) and package not in ALLOWED_IMPORTS and package != "engine"
    }
    assert not unlisted, f"packages without an entry in ALLOWED_IMPORTS: {sorted(unlisted)}"


@pytest.mark.requirement("project.packages")
def test_packages_import_exactly_as_the_table_allows() -> None:
    forbidden = []
    unused = {own: set(allowed) for own, (allowed, _) in ALLOWED_IMPORTS.items()}
    for path in modules():
        own = package_of(dotted(path, PACKAGE))
        for line, target in imported(path):
            package = package_of(target)
            if own in (None, "engine") or package is None or package == own or not package_exists(package):
                continue
            assert own is not None
            allowed, reason = ALLOWED_IMPORTS[own]
            unused[own] -= {package, package.partition(".")[0]}
            if not is_allowed(package, allowed):
                forbidden.append(f"{path.relative_to(ROOT)}:{line} imports {target}; {own}: {reason}")
    assert not forbidden, "\n".join(forbidden)
    left = {own: sorted(packages) for own, packages in unused.items() if packages}
    assert not left, f"the table allows what nobody imports: {left}"


def test_the_top_level_package_imports_nothing_of_its_own() -> None:
    """Whatever `import mcp_workbench` loads, every start pays for."""
    assert [target for _, target in imported(PACKAGE / "__init__.py") if package_of(target)] == []


def test_the_allowed_imports_form_no_cycle() -> None:
    placed: set[str] = set()
    while not placed >= ALLOWED_IMPORTS.keys():
        if placed >= ENGINE.keys():
            placed.add("engine")
        ready = {
            package for package, (allowed, _) in ALLOWED_IMPORTS.items() if package not in placed and allowed <= placed
        }
        assert ready, f"these packages import each other in a circle: {sorted(ALLOWED_IMPORTS.keys() - placed)}"
        placed |= ready


def test_the_front_end_imports_next_to_nothing() -> None:
    of_others = {
        package
        for path in (PACKAGE / "sharing" / "front").glob("*.py")
        for _, target in imported(path)
        if (package := package_of(target)) and package != "sharing" and package_exists(package)
    }
    assert of_others == FRONT_END


@pytest.mark.parametrize("package", WITHOUT_SOCKETS_OR_PROCESSES)
def test_packages_that_decide_have_no_sockets_or_processes(package: str) -> None:
    doing = [
        f"{path.relative_to(ROOT)}:{line} imports {target}"
        for path in modules()
        if package_of(dotted(path, PACKAGE)) == package
        for line, target in imported(path)
        if target.partition(".")[0] in IO_MODULES
    ]
    assert not doing, "\n".join(doing)


def knots(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of modules from each of which one gets to all others."""

    def reached(module: str) -> set[str]:
        found: set[str] = set()
        left = [module]
        while left:
            for target in graph[left.pop()] - found:
                found.add(target)
                left.append(target)
        return found

    within = {module: reached(module) for module in graph}
    circles = (frozenset(other for other in graph if other in within[one] and one in within[other]) for one in graph)
    return {circle for circle in circles if len(circle) > 1}


def test_modules_that_know_each_other_are_the_ones_that_say_why() -> None:
    names = {
        dotted(path, PACKAGE).removeprefix("mcp_workbench."): path for path in modules() if path.stem != "__init__"
    }
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = (target.removeprefix("mcp_workbench.") for _, target in imported(path))
        # The name of a module, or of something in one.
        graph[name] = {known for target in targets for known in (target, target.rpartition(".")[0]) if known in names}
    assert knots(graph) == KNOTS.keys()


def test_no_module_exceeds_800_lines() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert {path.relative_to(ROOT).parts[0] for path in files} == set(FOLDERS)
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = [f"{path.relative_to(ROOT)}: {lines} lines" for path, lines in sizes.items() if lines > MAX_FILE_LINES]
    assert not long, "split by owner of state:\n" + "\n".join(long)


@pytest.mark.requirement("project.packages")
def test_every_module_has_a_docstring() -> None:
    starts = {path: path.read_text(encoding="utf-8")[:3] for path in modules()}
    silent = [str(path.relative_to(ROOT)) for path, start in starts.items() if start not in ("", '"""')]
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
    packages = [package_of(target) for _, target in sorted(imported(module, package))]
    assert packages == ["downstream", "transport", "session", "__version__", "router", "gateway", "face", "observe"]
