"""What is hidden from a role cannot be listed, counted or named; where nothing is hidden, nothing differs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog import restricted_catalog
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import Manifest, ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, KINDS, Offer
from mcp_workbench.engine.catalog.restricted_catalog import RestrictedCatalog, RestrictedEntry, real_of
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.protocol.handshake import ServerProfile

ITEM = Raw(b"{}")
SECRET = Raw(b'{"secret":true}')


class Hiding:
    """Hides what is called or defined as secret, on every server but `open`; of `closed` it shows nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def shows(self, entry: ServerEntry, kind: str, item: str, definition: Raw | None) -> bool:
        self.asked += 1
        assert kind in KINDS
        if entry.name == "open":
            return True
        return "secret" not in item and (definition is None or b"secret" not in bytes(definition))

    def may_show(self, entry: ServerEntry) -> bool:
        return entry.name != "closed"

    def may_show_tools(self, entry: ServerEntry) -> bool:
        return entry.name != "without_tools"

    def may_hide(self, entry: ServerEntry, kind: str) -> bool:
        return entry.name != "open" and kind == "resources"


def offer(*names: str, **lists: dict[str, Raw]) -> Offer:
    profile = ServerProfile("legacy", "2025-11-25", instructions="Say please.")
    return Offer(profile, {"tools": dict.fromkeys(names, ITEM), **lists})


def catalog_of(boxes: dict[str, tuple[str, ...]], **server: Any) -> Catalog:
    made = {
        box: ToolboxConfig(
            name=box,
            description="A box.",
            servers={name: ServerConfig(name=name, command="run", **server) for name in names},
        )
        for box, names in boxes.items()
    }
    return Catalog(WorkbenchConfig(path="a.json", toolboxes=made), ManifestStore(lambda: None))


def entry_of(catalog: Catalog, name: str) -> ServerEntry:
    return next(entry for entry in catalog.entries() if entry.name == name)


def listed(name: str = "server", made: Offer | None = None, **server: Any) -> tuple[ServerEntry, RestrictedEntry]:
    """A server that has listed two tools, the second of which is secret, and what is seen of it."""
    catalog = catalog_of({"box": (name,)}, **server)
    real = entry_of(catalog, name)
    catalog.servers.learn(real, made or offer("read", "secret"))
    return real, RestrictedCatalog(catalog, Hiding()).entry_of(real)


# ── one server ──


def test_hidden_items_are_in_no_list() -> None:
    lists = {kind: {"a": ITEM, "secret": ITEM, "b": SECRET, "c": ITEM} for kind in KINDS}
    real, seen = listed(made=offer(**lists))
    for kind in KINDS:
        assert list(seen.definitions(kind)) == ["a", "c"]
        assert list(real.definitions(kind)) == ["a", "secret", "b", "c"]
        assert seen.hides(kind)
    assert seen.offer is not None and seen.offer.lists == {kind: seen.definitions(kind) for kind in KINDS}
    assert list(seen.tools) == list(seen.offer.tools) == ["a", "c"]
    assert seen.hides_something and not seen.is_empty


def test_one_kind_is_enough_to_hide_something() -> None:
    for kind in KINDS:
        _, seen = listed(made=offer("read", **{kind: {"a": ITEM, "secret": ITEM}}))
        assert seen.hides_something and [each for each in KINDS if seen.hides(each)] == [kind]
        assert not seen.is_empty


def test_a_server_is_empty_only_if_it_offers_something_and_all_of_it_is_hidden() -> None:
    prompts, secret = {"a": ITEM}, {"secret": ITEM}
    assert listed(made=offer("secret"))[1].is_empty
    assert listed(made=offer("secret", prompts=secret))[1].is_empty
    assert not listed(made=offer("secret", prompts=prompts))[1].is_empty
    assert not listed(made=offer())[1].is_empty
    assert not listed(made=offer("read"))[1].is_empty


def test_where_nothing_is_hidden_the_lists_are_those_of_the_server() -> None:
    real, seen = listed("open", offer("read", "secret", prompts={"secret": ITEM}))
    assert seen.tools is real.tools and seen.definitions("prompts") is real.definitions("prompts")
    assert not seen.hides_something and not seen.is_empty
    assert seen.instructions == "Say please."


def test_lists_are_worked_out_once_and_again_when_the_server_has_listed() -> None:
    catalog = catalog_of({"box": ("server",)})
    real, hiding = entry_of(catalog, "server"), Hiding()
    seen = RestrictedCatalog(catalog, hiding).entry_of(real)
    assert seen.offer is None and not seen.tools and not seen.hides_something
    catalog.servers.learn(real, offer("read", "secret"))
    assert list(seen.tools) == ["read"]
    assert seen.offer is not None and list(seen.offer.tools) == ["read"]
    asked = hiding.asked
    assert seen.tools is seen.tools and seen.offer is seen.offer
    assert hiding.asked == asked
    catalog.servers.learn(real, offer("secret", "write", "delete"))
    assert list(seen.tools) == ["write", "delete"]
    assert seen.offer is not None and list(seen.offer.tools) == ["write", "delete"]


@pytest.mark.parametrize("kind", KINDS)
def test_instructions_of_a_server_with_something_hidden_are_not_shown(kind: str) -> None:
    """They may mention it."""
    _, seen = listed(made=offer(**{kind: {"a": ITEM, "secret": ITEM}}))
    assert seen.instructions is None
    _, seen = listed(made=offer(**{kind: {"a": ITEM, "b": ITEM}}))
    assert seen.instructions == "Say please."


def test_items_that_are_too_large_or_left_out_are_named_only_if_they_are_visible() -> None:
    sizes = {"tools": {"large": 5, "secret_large": 7}, "prompts": {"large": 9}}
    made = Offer(offer().profile, {"tools": {"read": ITEM}}, oversized=sizes, left_out=("tool `secret\\n`",))
    _, seen = listed(made=made)
    assert seen.offer is not None
    assert seen.offer.oversized == {"tools": {"large": 5}, "prompts": {"large": 9}}
    assert seen.offer.left_out == ()
    _, seen = listed("open", made)
    assert seen.offer is not None and seen.offer.oversized == sizes


def test_names_behind_a_filter_are_known_only_if_they_are_visible() -> None:
    real, seen = listed(made=offer("read", "write", "secret"), tool_filters=("read",))
    assert real.hidden == {"write", "secret"} and seen.hidden == {"write"}
    assert list(seen.tools) == ["read"]


def test_hidden_items_are_not_reported_as_withheld() -> None:
    real, seen = listed(made=offer("read", "secret", prompts={"a": SECRET, "b": ITEM}))
    real.withheld = {
        "tools": {"read": "changed", "secret": "changed"},
        "prompts": {"a": "new", "b": "new"},
        INSTRUCTIONS: {INSTRUCTIONS: "changed"},
    }
    assert seen.withheld == {
        "tools": {"read": "changed"},
        "prompts": {"b": "new"},
        INSTRUCTIONS: {INSTRUCTIONS: "changed"},
    }


def test_nothing_of_a_server_that_has_not_listed_is_reported_as_withheld() -> None:
    catalog = catalog_of({"box": ("server",)})
    real = entry_of(catalog, "server")
    real.withheld = {"tools": {"read": "changed"}, INSTRUCTIONS: {INSTRUCTIONS: "changed"}}
    seen = RestrictedCatalog(catalog, Hiding()).entry_of(real)
    assert seen.withheld == {"tools": {}, INSTRUCTIONS: {INSTRUCTIONS: "changed"}}
    assert seen.hidden == frozenset()


def test_single_items_are_visible_by_name_and_by_definition() -> None:
    real, seen = listed(made=offer("read", prompts={"a": SECRET, "b": ITEM}))
    shown = [
        (kind, name) for kind in ("tools", "prompts") for name in ("a", "b", "secret") if seen.may_show(kind, name)
    ]
    assert shown == [("tools", "a"), ("tools", "b"), ("prompts", "b")]
    unlisted = RestrictedEntry(entry_of(catalog_of({"box": ("server",)}), "server"), Hiding())
    assert unlisted.may_show("tools", "a") and not unlisted.may_show("tools", "secret")
    assert seen.shows_resource("test:///a") and not seen.shows_resource("test:///secret")
    assert real.may_show("tools", "secret") and real.shows_resource("test:///secret")


@pytest.mark.parametrize(("name", "takes"), [("server", False), ("open", True)])
def test_unlisted_addresses_are_asked_for_only_where_none_can_be_hidden(name: str, takes: bool) -> None:
    real, seen = listed(name, offer(resourceTemplates={"test:///{a}": ITEM, "secret:///{a}": ITEM}))
    assert seen.takes_unlisted is takes and real.takes_unlisted
    # An address may be visible although its template is not.
    assert seen.templates == real.templates and len(seen.templates) == 2


def test_entry_stands_for_the_real_one() -> None:
    real, seen = listed()
    other, _ = listed()
    assert seen == real and real == seen and seen == RestrictedEntry(real, Hiding()) and hash(seen) == hash(real)
    assert seen != other and seen != RestrictedEntry(other, Hiding())
    assert real_of(seen) is real and real_of(real) is real
    assert {real: 1, seen: 2} == {real: 2}
    assert (seen.label, seen.config, seen.is_live) == (real.label, real.config, True)


def test_what_was_stored_goes_to_the_real_entry() -> None:
    catalog = catalog_of({"box": ("server",)})
    real = entry_of(catalog, "server")
    seen = RestrictedCatalog(catalog, Hiding()).entry_of(real)
    seen.note_stored("state")
    assert real.stored_state == "state" and real.is_stored
    seen.take_manifest(Manifest(offer("read", "secret"), asks=True, state="state"))
    assert list(real.tools) == ["read", "secret"] and real.asks and list(seen.tools) == ["read"]


# ── the catalogue ──


def test_servers_and_toolboxes_of_which_nothing_is_visible_do_not_exist() -> None:
    catalog = catalog_of({"one": ("server", "hidden"), "two": ("all_hidden",), "three": ("closed",), "four": ("open",)})
    for name in ("server", "hidden", "all_hidden", "closed", "open"):
        catalog.servers.learn(entry_of(catalog, name), offer("secret", *(["read"] if name == "server" else [])))
    seen = RestrictedCatalog(catalog, Hiding())
    assert {box: list(servers) for box, servers in seen.toolboxes.items()} == {"one": ["server"], "four": ["open"]}
    assert [entry.name for entry in seen.entries()] == ["server", "open"]
    assert all(isinstance(entry, RestrictedEntry) for entry in seen.entries())
    assert {box: list(made.servers) for box, made in seen.described.items()} == {"one": ["server"], "four": ["open"]}
    assert seen.described["one"].description == "A box."
    assert seen.whole is catalog and seen.path == "a.json" and seen.principal == ""
    assert len(catalog.toolboxes) == 4


def test_a_server_appears_when_it_lists_something_visible_and_keeps_its_entry() -> None:
    catalog = catalog_of({"one": ("server",), "two": ("other",)})
    real, other = entry_of(catalog, "server"), entry_of(catalog, "other")
    for each in (real, other):
        catalog.servers.learn(each, offer("secret"))
    seen = RestrictedCatalog(catalog, Hiding())
    assert seen.toolboxes == {} and list(seen.entries()) == []
    known = seen.entry_of(real)
    catalog.servers.learn(real, offer("secret", "read"))
    assert list(seen.toolboxes) == ["one"] and seen.toolboxes is seen.toolboxes
    assert seen.toolboxes["one"]["server"] is seen.entry_of(real) is known


def test_unlisted_servers_are_visible_by_what_the_rules_allow() -> None:
    catalog = catalog_of({"one": ("server",), "two": ("closed",), "three": ("without_tools",)})
    assert list(RestrictedCatalog(catalog, Hiding()).toolboxes) == ["one"]


@pytest.mark.parametrize(
    ("offers", "is_visible"),
    [
        ([], True),
        ([offer("secret")], False),
        ([offer("secret"), offer("secret", "secret_too")], False),
        ([offer("secret"), offer("secret", "read")], True),
        ([offer("read"), offer("secret")], True),
        ([offer()], True),
    ],
)
def test_an_unlisted_server_is_visible_by_what_it_lists_to_other_users(offers: list[Offer], is_visible: bool) -> None:
    owners = catalog_of({"box": ("server",)})
    own = owners.of_user("anna")
    seen = RestrictedCatalog(own, Hiding())
    assert list(seen.toolboxes) == ["box"] and seen.principal == "anna"
    for number, made in enumerate(offers):
        other = owners.of_user(f"user {number}")
        owners.servers.learn(entry_of(other, "server"), made)
    assert bool(seen.toolboxes) is (is_visible or not offers)
    # A server whose tools cannot be seen at all is not known to be empty either.
    assert bool(RestrictedCatalog(own, Hiding()).toolboxes) is is_visible


def test_lists_of_other_users_are_judged_once_and_a_bound_number_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restricted_catalog, "MAX_JUDGED_LISTS", 2)
    names = ("a", "b", "c")
    owners = catalog_of({"box": names})
    own, other = owners.of_user("anna"), owners.of_user("bert")
    hiding = Hiding()
    seen = RestrictedCatalog(own, hiding)
    for name in names:
        owners.servers.learn(entry_of(other, name), offer("secret", f"secret_{name}"))
        assert len(seen._judged) <= 2
        assert name not in seen.toolboxes.get("box", {})
    asked = hiding.asked
    own.revision += 1
    assert seen.toolboxes == {} and hiding.asked > asked, "more than are remembered"
    monkeypatch.setattr(restricted_catalog, "MAX_JUDGED_LISTS", 3)
    for _ in range(2):
        own.revision += 1
        asked = hiding.asked
        assert seen.toolboxes == {}
    assert hiding.asked == asked


def test_manifests_are_read_into_the_real_catalogue() -> None:
    catalog = catalog_of({"box": ("one", "two")})
    seen = RestrictedCatalog(catalog, Hiding())
    entries = list(seen.entries())
    assert seen.unread(entries) == entries and all(type(each) is ServerEntry for each in seen.unread(entries))
    seen.load(entries[1:])
    assert seen.unread(entries) == entries[:1]
    assert not entry_of(catalog, "one").is_read and entry_of(catalog, "two").is_read


def test_nothing_is_stored_for_a_role() -> None:
    """What is stored is computed from the whole catalogue, under the same names."""
    store = RestrictedCatalog(catalog_of({"box": ("server",)}), Hiding()).store
    store.save_blob("index", b"data")
    assert store.load_blob("index") is None and store.state("index") == "" and not store.is_empty
