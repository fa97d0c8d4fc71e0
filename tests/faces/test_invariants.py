"""The three invariants of duplicate servers, for any names: isolation, unique names, correct delegation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import decode, encode

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.config.reading import name_fault, registered_name_fault
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.downstream.pool import Pool
from mcp_workbench.engine.downstream.server_link import ServerLink
from mcp_workbench.engine.downstream.sharing import Caller
from mcp_workbench.engine.face.base import Face, FaceSettings
from mcp_workbench.engine.face.decisions import Forward
from mcp_workbench.engine.face.dynamic import DynamicFace
from mcp_workbench.engine.face.flat import FlatFace
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.protocol.handshake import ServerProfile
from mcp_workbench.engine.transport.link import Receiver

# Few characters, so that names collide; those that separate are among them.
pieces = st.text("ab_:", min_size=1, max_size=4)
tools = st.lists(pieces, unique=True, max_size=4)


def names(what: str) -> st.SearchStrategy[str]:
    """As the configuration allows them for a toolbox or server in the face `dynamic`."""
    return pieces.filter(lambda name: (name_fault(name, what) or registered_name_fault(name, what)) is None)


servers = st.dictionaries(names("server"), tools, min_size=1, max_size=3)
layouts = st.dictionaries(names("toolbox"), servers, min_size=1, max_size=3)
separators = st.text("_:a-", min_size=1, max_size=2)
Layout = dict[str, dict[str, list[str]]]


def catalog_of(layout: Layout, *, plain: bool = False, rename: dict[str, str] | None = None) -> Catalog:
    toolboxes = {
        toolbox: ToolboxConfig(
            name=toolbox,
            description="",
            servers={server: ServerConfig(name=server, command="x", rename=rename or {}) for server in servers},
        )
        for toolbox, servers in layout.items()
    }
    catalog = Catalog(WorkbenchConfig(path="x", toolboxes=toolboxes, plain=plain), ManifestStore(lambda: None))
    for entry in catalog.entries():
        named = layout[entry.toolbox][entry.name]
        definitions = {name: Raw(encode({"name": name, "inputSchema": {}})) for name in named}
        catalog.servers.learn(entry, Offer(ServerProfile("legacy", "2025-11-25"), {"tools": definitions}))
    return catalog


def places(layout: Layout) -> set[tuple[str, str, str]]:
    return {
        (box, server, tool) for box, servers in layout.items() for server, named in servers.items() for tool in named
    }


def everything_open(catalog: Catalog) -> View:
    view = View("")
    view.opened.update(dict.fromkeys(catalog.toolboxes))
    return view


def delegations(face: Face, view: View) -> dict[str, tuple[str, str, str]]:
    """Where each name that is shown leads."""
    shown = [decode(definition)["name"] for definition in face.tools(view)]
    assert len(set(shown)) == len(shown), "a name is shown once"
    found = {}
    for name in shown:
        if name == "open_toolbox" and isinstance(face, DynamicFace):
            continue
        decision = face.resolve_tool(view, {"name": Raw(encode(name)), "arguments": Raw(b"{}")})
        assert isinstance(decision, Forward)
        body: Any = decode(decision.body + b"}")
        assert body["name"] == decision.item, "the server is called under its own name"
        found[name] = (decision.entry.toolbox, decision.entry.name, decision.item)
    return found


def check(face: Face, view: View, layout: Layout, form: Any) -> None:
    """Every tool is shown once under its name and leads to itself, or another has its name and that is said."""
    names: dict[str, list[tuple[str, str, str]]] = {}
    for box, servers in layout.items():
        for server, named in servers.items():
            for tool in named:
                names.setdefault(form(box, server, tool), []).append((box, server, tool))
    assert delegations(face, view) == {name: rivals[0] for name, rivals in names.items()}
    said = " ".join(face.remarks())
    for rivals in names.values():
        assert len(rivals) == 1 or all(f"`{'/'.join(place)}`" in said for place in rivals)


@pytest.mark.requirement("invariants.names", "invariants.delegation")
@given(layouts)
def test_registered_names_are_unique_and_lead_to_their_own_tool(layout: Layout) -> None:
    catalog = catalog_of(layout)
    check(
        DynamicFace(catalog, FaceSettings()),
        everything_open(catalog),
        layout,
        lambda box, server, tool: f"{box}__{server}_{tool}",
    )


@pytest.mark.requirement("invariants.names", "invariants.delegation", "flat.lookup")
@given(layouts, separators)
def test_flat_names_are_unique_and_lead_to_their_own_tool(layout: Layout, separator: str) -> None:
    catalog = catalog_of(layout)
    check(FlatFace(catalog, FaceSettings(separator)), View(""), layout, lambda *place: separator.join(place))


@pytest.mark.requirement("invariants.names", "invariants.delegation", "flat.no-prefix")
@given(st.dictionaries(pieces, tools, min_size=1, max_size=4), separators)
def test_names_without_prefix_are_unique_and_lead_to_their_own_tool(
    servers: dict[str, list[str]], separator: str
) -> None:
    layout = {"default": servers}
    uses = [tool for named in servers.values() for tool in named]

    def form(box: str, server: str, tool: str) -> str:
        return tool if uses.count(tool) == 1 else server + separator + tool

    face = FlatFace(catalog_of(layout, plain=True), FaceSettings(separator, prefix=False, plain=True))
    check(face, View(""), layout, form)


@pytest.mark.requirement("dynamic.names")
@given(layouts, st.data())
def test_registered_names_do_not_depend_on_other_toolboxes_or_order(layout: Layout, data: st.DataObject) -> None:
    renames = data.draw(
        st.dictionaries(pieces, pieces, max_size=2).filter(lambda new: len(set(new.values())) == len(new))
    )
    everything: dict[str, tuple[str, str, str]] = {}
    # Each toolbox alone, in a face that has never seen another.
    for toolbox in layout:
        catalog = catalog_of(layout, rename=renames)
        view = View("")
        view.opened[toolbox] = None
        everything |= delegations(DynamicFace(catalog, FaceSettings()), view)
    # One after the other, in a face that has settled no name before.
    face = DynamicFace(catalog_of(layout, rename=renames), FaceSettings())
    view = View("")
    for toolbox in data.draw(st.permutations(list(layout))):
        view.opened[toolbox] = None
        expected = {name: place for name, place in everything.items() if place[0] in view.opened}
        assert delegations(face, view) == expected


@pytest.mark.requirement("dynamic.names")
def test_names_that_another_toolbox_could_take_are_refused() -> None:
    """`a_` with server `b` and `a` with server `_b` would both register `a___b_x`: whoever is opened first has it."""
    assert registered_name_fault("a_", "toolbox") and registered_name_fault("_b", "server")
    clashing: Layout = {"a_": {"b": ["x"]}, "a": {"_b": ["x"]}}
    seen = []
    for order in (["a_", "a"], ["a", "a_"]):
        face, view = DynamicFace(catalog_of(clashing), FaceSettings()), View("")
        for toolbox in order:
            view.opened[toolbox] = None
            face.tools(view)
        seen.append(delegations(face, view))
    assert seen[0] != seen[1], "otherwise these rules would not be needed"


@pytest.mark.requirement("invariants.isolation")
@given(layouts, st.lists(st.sampled_from(["", "ann", "bob"]), min_size=2, max_size=2))
def test_no_two_toolboxes_and_no_two_principals_share_a_connection(layout: Layout, principals: list[str]) -> None:
    async def connect() -> None:
        catalog = catalog_of(layout)

        async def open_link(connection: Connection, receiver: Receiver) -> ServerLink:
            raise AssertionError("nothing is opened")

        def start_task(work: Any) -> Any:
            raise AssertionError("nothing is started")

        pool = Pool(catalog.servers, b"{}", open_link, start_task)
        made: dict[tuple[str, str, str], Connection] = {}
        for principal in principals:
            for entry in catalog.entries():
                key = (entry.toolbox, entry.name, principal)
                connection = pool.connection(entry, Caller(principal, "legacy"))
                assert made.setdefault(key, connection) is connection, "the same callers share it"
                assert connection.traffic is not None
        assert len({id(connection) for connection in made.values()}) == len(made)
        assert len({id(connection.traffic) for connection in made.values()}) == len(made)

    asyncio.run(connect())
