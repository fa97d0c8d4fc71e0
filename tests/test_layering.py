"""A request passes through the packages in one direction, and imports point the same way.

`docs/design.md` draws it; the table below is its exact form, in both directions: what is not in it is not imported, and
what is in it is. A new package, or a new import between two, is a decision about the architecture: change the table and
its reason together with the design, not to silence this test.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_tree import statements_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
MOST_LINES = 800
# Everything in Python that is ours to maintain.
FOLDERS = ("src", "tests", "scripts", "bench", "conformance", "soak")

# package: (packages that it may import, why these and no others)
ALLOWED_IMPORTS: dict[str, tuple[set[str], str]] = {
    "errors": (set(), "everybody raises them, so they know nobody"),
    "nearest": (set(), "a function of words"),
    "printable": (set(), "a function of text"),
    "json_schema": (set(), "a function of schemas"),
    "slices": (set(), "a function of bytes"),
    "nesting": (set(), "a function of bytes"),
    "faces": (set(), "a table that settings, help and the composition root read; names modules, imports none"),
    "run": (set(), "chooses the event loop; what runs on it is the caller's"),
    "version": (set(), "which commit this is; the front end asks at each start, so it imports nothing"),
    "process_context": (set(), "where sockets lie, and the terminal; looked at on each start, so it imports nothing"),
    "socket_peers": (set(), "asks the system who is at the other end of a socket; needed on each start"),
    "economy": (
        {"nearest", "json_schema", "slices"},
        "searches, shortens and describes tools as values; does not know where they come from or who asks",
    ),
    "config": (
        {"errors", "nearest", "nesting", "faces", "economy", "protocol"},
        "what the user wrote, and nothing that runs; `protocol` knows the revisions, `economy` the smallest budget",
    ),
    "clients": (
        {"errors", "nearest", "faces", "config"},
        "other programs' files and habits as values; reading and writing them is for others",
    ),
    "file_replacement": ({"errors"}, "replaces files, whatever they hold"),
    "jsonrpc": ({"errors", "nesting"}, "messages and ids; does not know MCP"),
    "observe": (
        {"errors", "printable", "process_context", "socket_peers", "config", "jsonrpc", "steps"},
        "writes down what others decided, in the encoding of the wire; the secrets to hide are in the config",
    ),
    "transport": (
        {"errors", "printable", "socket_peers", "json_schema", "slices", "jsonrpc", "protocol"},
        "how messages travel, not what they mean; of `protocol` the names and what the HTTP binding of a revision has, "
        "and schemas for the parameters in them that travel as headers",
    ),
    "protocol": ({"errors", "jsonrpc"}, "the two eras of MCP, whoever is behind and however it is reached"),
    "catalog": (
        {"errors", "json_schema", "economy", "config", "jsonrpc", "protocol"},
        "what is offered and under which name; no connections, so what is remembered works without them",
    ),
    "downstream": (
        {"errors", "slices", "config", "jsonrpc", "transport", "protocol", "catalog"},
        "one connection and its life; does not know who is calling, so neither face nor session",
    ),
    "face": (
        {"errors", "nearest", "slices", "economy", "config", "clients", "jsonrpc", "protocol", "catalog"},
        "turns a request into a decision, for the client that it comes from; does no I/O, so no sockets, processes or "
        "connections",
    ),
    "steps": ({"jsonrpc"}, "values in and out: policy, audit and metrics import it, and it imports none of them"),
    "guard": (
        {"errors", "nearest", "printable", "config", "signin", "jsonrpc", "protocol", "catalog", "steps"},
        "who is calling and what they may do; does not know transports: of `signin` the requests to an authorization "
        "server as values; a step applies rules",
    ),
    "user_headers": (
        {"config", "transport", "guard"},
        "headers that tell a server who the user is: joins `guard` and the interface of a server's headers",
    ),
    "callers": (
        {"errors", "config", "transport", "guard"},
        "the authenticator of an endpoint: the one place where `guard` and the transport meet",
    ),
    "oversight": (
        {"errors", "blocking_work", "config", "observe", "catalog", "signin", "steps", "guard"},
        "audit and lock",
    ),
    "access": (
        {"config", "printable", "downstream", "catalog", "face", "steps", "guard", "router", "session"},
        "applies the rules of one configuration to what clients see and have; loaded only where there are any",
    ),
    "users": (
        {"errors", "config", "catalog", "face", "router", "runtime", "session"},
        "what each user other than our own is shown; loaded with the first of them",
    ),
    "router": (
        {"blocking_work", "errors", "jsonrpc", "protocol", "catalog", "downstream", "face", "steps"},
        "the one way to a server: has a face decide, and carries the decision out: through the steps, to a connection",
    ),
    "secrets": (
        {"blocking_work", "errors", "config", "transport"},
        "fetches what servers refer to; its programs stand in the table of processes; does not know who uses it",
    ),
    "signin": (
        {"blocking_work", "errors", "config", "jsonrpc", "transport", "secrets"},
        "signs in to servers over our own HTTP client, within deadlines as requests have them; a key for tokens at "
        "rest may lie in the keychain; does not know who asks for it",
    ),
    "session": (
        {"errors", "jsonrpc", "transport", "protocol", "catalog", "downstream", "face", "steps", "router"},
        "one client; sends only through the router, and hears from a connection when its server asks something",
    ),
    "runtime": (
        {
            "errors",
            "process_context",
            "config",
            "observe",
            "transport",
            "catalog",
            "downstream",
            "guard",
            "secrets",
            "signin",
            "server_links",
            "version",
            "watching",
        },
        "what a process has once: processes, connections, sign-ins, tasks; does not know what clients are shown",
    ),
    "watching": (
        {"jsonrpc", "catalog", "downstream", "observe"},
        "what `top` and `lock` ask of a process: looks at connections, what their servers have listed, and stops them; "
        "does not know what clients are shown",
    ),
    "server_links": (
        {"process_context", "config", "transport", "catalog", "downstream", "guard", "signin", "user_headers"},
        "starts a program or reaches for an address for a connection, with what the runtime has",
    ),
    "client_sign_ins": (
        {"config", "catalog", "oversight", "runtime", "server_links", "signin"},
        "begins sign-ins for clients: joins what the process has, the audit, and who is served where",
    ),
    "gateway": (
        {
            "blocking_work",
            "client_sign_ins",
            "errors",
            "faces",
            "config",
            "jsonrpc",
            "transport",
            "oversight",
            "catalog",
            "downstream",
            "face",
            "steps",
            "router",
            "runtime",
            "session",
            "guard",
            "access",
            "version",
            "users",
        },
        "the composition root: builds the packages; is used by commands, does not know them",
    ),
    "blocking_work": (set(), "runs what it is given"),
    "file_watch": (set(), "looks at files, whatever they hold"),
    "live": (
        {"errors", "blocking_work", "file_watch", "config", "catalog", "gateway"},
        "keeps a gateway up to date with its file; what a difference does is the gateway's business",
    ),
    "serving": (
        {"process_context", "errors", "file_watch", "config", "live", "transport", "downstream", "session", "gateway"},
        "serves clients until the end: knows the links to them and the gateway; behind it, who our user is",
    ),
    "front": (
        {"process_context", "socket_peers", "version"},
        "copies bytes between a client and the shared workbench; whatever it imports, every client pays for",
    ),
    "shared": (
        {
            "blocking_work",
            "process_context",
            "socket_peers",
            "file_watch",
            "live",
            "errors",
            "config",
            "jsonrpc",
            "transport",
            "catalog",
            "downstream",
            "session",
            "runtime",
            "gateway",
            "serving",
            "version",
            "front",
        },
        "takes clients in over a socket and serves each through a gateway; of `front` how the two ends introduce "
        "themselves",
    ),
    "demo": (set(), "servers that run as processes of their own, as foreign as anybody's"),
    "cli": (
        {
            "callers",
            "guard",
            "steps",
            "blocking_work",
            "errors",
            "nearest",
            "printable",
            "json_schema",
            "faces",
            "run",
            "economy",
            "config",
            "clients",
            "file_replacement",
            "jsonrpc",
            "observe",
            "transport",
            "protocol",
            "catalog",
            "downstream",
            "face",
            "router",
            "secrets",
            "signin",
            "session",
            "gateway",
            "serving",
            "version",
            "process_context",
            "socket_peers",
            "front",
            "shared",
        },
        "commands for people: at the very front, nobody imports it",
    ),
    "entry_point": ({"process_context", "front", "cli"}, "the way in: the front end or a command"),
    "__main__": ({"entry_point"}, "`python -m mcp_workbench` is the command"),
}

# Modules of one package that know each other, counting imports for types only and inside functions, and why that is no
# accident. None of them imports another in a circle at run time: one side needs the other's name and nothing more.
KNOTS: dict[frozenset[str], str] = {
    frozenset({"router.router", "router.subscriptions", "router.task_requests"}): "they act through the router",
    frozenset({"catalog.catalog", "catalog.entry", "catalog.replacement"}): (
        "a catalogue makes its entries and applies plans; both are about one catalogue"
    ),
    frozenset({"face.proxy", "face.split_use_tool"}): (
        "the one is the other with a tool more, and is loaded only where the configuration wants it"
    ),
    frozenset(
        {
            "downstream.cancelled_calls",
            "downstream.clients",
            "downstream.fair_requests",
            "downstream.server_questions",
            "downstream.traffic",
            "downstream.traffic_owner",
        }
    ): (
        "a traffic owns its questions, its clients and what waits for its turn; what they answer leaves through it, "
        "and it reports to its connection"
    ),
    frozenset({"downstream.connection", "downstream.server_link", "downstream.server_run"}): (
        "a connection starts runs of its server, and a run reports to its connection"
    ),
    frozenset({"face.base", "face.kept_results", "face.view"}): (
        "a face keeps results for views; a view belongs to one face"
    ),
    frozenset(
        {
            "session.client_call",
            "session.keeping_waiting",
            "session.methods",
            "session.own_questions",
            "session.pages_to_visit",
            "session.parking",
            "session.rounds",
            "session.session",
            "session.signing_in",
        }
    ): (
        "a session owns its calls, and a call answers through its session; parking, rounds and sign-ins are what "
        "becomes of a call meanwhile, loaded with the first call that needs them"
    ),
    frozenset(
        {
            "transport.http.server.admission",
            "transport.http.server.authentication",
            "transport.http.server.request_head",
        }
    ): "a head keeps the verdict on it, so that the same head is judged once",
    frozenset(
        {
            "transport.http.server.server_connection",
            "transport.http.server.connections",
            "transport.http.server.unauthenticated_connections",
        }
    ): "a connection joins the table of all, and the table closes connections",
}

# Packages without sockets, processes and an event loop: they decide, or hold what was said. `config` and `catalog` read
# and write files all the same.
WITHOUT_SOCKETS_OR_PROCESSES = (
    "config",
    "clients",
    "catalog",
    "economy",
    "face",
    "faces",
    "errors",
    "nearest",
    "printable",
    "slices",
    "nesting",
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


def package_of(module: str) -> str | None:
    """The package that a dotted module name belongs to; None for the package itself and for everything foreign."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] or None if top == PACKAGE.name else None


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
    return (PACKAGE / package).is_dir() or (PACKAGE / f"{package}.py").is_file()


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
        if (package := package_of(dotted(path, PACKAGE))) and package not in ALLOWED_IMPORTS
    }
    assert not unlisted, f"packages without an entry in ALLOWED_IMPORTS: {sorted(unlisted)}"


@pytest.mark.requirement("project.packages")
def test_packages_import_what_the_table_says_and_all_of_it() -> None:
    forbidden = []
    unused = {own: set(allowed) for own, (allowed, _) in ALLOWED_IMPORTS.items()}
    for path in modules():
        own = package_of(dotted(path, PACKAGE))
        for line, target in imported(path):
            package = package_of(target)
            if own is None or package is None or package == own or not package_exists(package):
                continue
            allowed, reason = ALLOWED_IMPORTS[own]
            unused[own].discard(package)
            if package not in allowed:
                forbidden.append(f"{path.relative_to(ROOT)}:{line} imports {target}; {own}: {reason}")
    assert not forbidden, "\n".join(forbidden)
    left = {own: sorted(packages) for own, packages in unused.items() if packages}
    assert not left, f"the table allows what nobody imports: {left}"


def test_the_top_level_package_imports_nothing_of_its_own() -> None:
    """Whatever `import mcp_workbench` loads, every start pays for."""
    assert [target for _, target in imported(PACKAGE / "__init__.py") if package_of(target)] == []


def test_the_allowed_imports_form_no_cycle() -> None:
    placed: set[str] = set()
    while placed != ALLOWED_IMPORTS.keys():
        ready = {
            package for package, (allowed, _) in ALLOWED_IMPORTS.items() if package not in placed and allowed <= placed
        }
        assert ready, f"these packages import each other in a circle: {sorted(ALLOWED_IMPORTS.keys() - placed)}"
        placed |= ready


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
    long = [f"{path.relative_to(ROOT)}: {lines} lines" for path, lines in sizes.items() if lines > MOST_LINES]
    assert not long, "split by owner of state:\n" + "\n".join(long)


@pytest.mark.requirement("project.packages")
def test_every_module_says_what_it_owns() -> None:
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
