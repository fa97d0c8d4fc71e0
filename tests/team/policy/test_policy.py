"""One pure function decides: which rule matches whom and what, and that annotations only tighten."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.config.policy_settings import PolicyRule, Then
from mcp_workbench.engine.steps import Subject
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.policy.policy import (
    STRICTNESS,
    Annotations,
    annotations_of,
    decide,
    made_ready,
    may_hide,
    may_show,
)

ALICE = Identity(principal="alice", groups=frozenset({"staff", "admins"}))
ALLOW, ASK, DENY, HIDE = (PolicyRule(then=then) for then in ("allow", "ask", "deny", "hide"))


def subject(item: str = "tool", method: str = "tools/call", toolbox: str = "box", server: str = "server") -> Subject:
    return Subject(principal="alice", method=method, toolbox=toolbox, server=server, item=item)


def then(rules: list[PolicyRule], about: Subject | None = None, who: Identity = ALICE, **more: Any) -> tuple[str, str]:
    decision = decide(made_ready(rules), who, about or subject(), **more)
    return decision.then, decision.rule


@pytest.mark.requirement("team.policy")
def test_the_first_rule_that_matches_decides() -> None:
    rules = [PolicyRule(tools=("other/*",), then="hide"), PolicyRule(tools=("box/server/t*",), then="ask"), DENY]

    assert then(rules) == ("ask", "policy[1]")
    assert then(rules, subject("other")) == ("deny", "policy[2]")


@pytest.mark.parametrize(
    ("who", "concerned"),
    [
        (("alice",), True),
        (("a*",), True),
        (("bob",), False),
        (("group:admins",), True),
        (("group:adm?ns",), True),
        (("group:guests",), False),
        (("bob", "group:staff"), True),
        # A principal is never taken for a group, nor a group for a principal.
        (("admins",), False),
        (("group:alice",), False),
        (("*",), True),
    ],
)
def test_a_rule_concerns_principals_and_groups(who: tuple[str, ...], concerned: bool) -> None:
    assert then([PolicyRule(who=who, then="deny"), ALLOW]) == (
        ("deny", "policy[0]") if concerned else ("allow", "policy[1]")
    )


@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        ("*", True),
        ("box", True),
        ("box/server", True),
        ("box/server/tool", True),
        ("box/*/to?l", True),
        ("box/server/[t]ool", False),
        ("server", False),
        ("bo", False),
        ("box/server/tool/", False),
    ],
)
def test_a_path_is_compared_part_by_part(glob: str, matches: bool) -> None:
    assert (then([PolicyRule(tools=(glob,), then="deny"), ALLOW])[0] == "deny") is matches


def test_names_with_slashes_do_not_pass_for_other_paths() -> None:
    rules = [PolicyRule(tools=("a/b/*",), then="allow"), DENY]

    assert then(rules, subject("c", toolbox="a", server="b"))[0] == "allow"
    assert then(rules, subject("c", toolbox="a/b", server="x"))[0] == "deny"
    assert then([PolicyRule(tools=("a?b/x",), then="allow"), DENY], subject(toolbox="a/b", server="x"))[0] == "allow"


@pytest.mark.parametrize(
    ("method", "decided"),
    [
        ("tools/call", "ask"),
        ("prompts/get", "deny"),
        ("resources/read", "hide"),
        ("resources/subscribe", "hide"),
        ("no/such", "allow"),
    ],
)
def test_each_kind_has_its_own_patterns(method: str, decided: str) -> None:
    rules = [
        PolicyRule(tools=("*",), then="ask"),
        PolicyRule(prompts=("*",), then="deny"),
        PolicyRule(resources=("box/server/file://*",), then="hide"),
        ALLOW,
    ]

    assert then(rules, subject("file:///etc/passwd", method))[0] == decided


# ── annotations ──


def test_annotations_tighten_and_never_loosen() -> None:
    read_only, careful = Annotations(True, False), Annotations()
    tightening = [PolicyRule(destructive=True, then="ask"), ALLOW]
    loosening = [PolicyRule(read_only=True, then="allow"), ASK]

    assert then(tightening, annotations=careful)[0] == "ask"
    assert then(tightening, annotations=read_only)[0] == "allow"
    assert then(loosening, annotations=read_only) == ("ask", "policy[1]"), (
        "a server does not get around by its own word"
    )


@given(
    st.lists(
        st.builds(
            PolicyRule,
            then=st.sampled_from(["allow", "ask", "deny", "hide"]),
            read_only=st.sampled_from([None, True, False]),
            destructive=st.sampled_from([None, True, False]),
        ),
        max_size=6,
    ),
    st.sampled_from(["allow", "ask", "deny", "hide"]),
    st.builds(Annotations, st.booleans(), st.booleans(), st.booleans()),
)
def test_annotations_never_loosen_a_decision(rules: list[PolicyRule], default: Any, annotations: Annotations) -> None:
    every = [*rules, PolicyRule(then=default)]
    plain = [rule for rule in every if not rule.has_annotations]

    assert STRICTNESS[then(every, annotations=annotations)[0]] >= STRICTNESS[then(plain)[0]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (None, Annotations(False, True, True)),
        ({"readOnlyHint": True}, Annotations(True, False, True)),
        ({"readOnlyHint": "yes", "destructiveHint": 0}, Annotations(False, True, True)),
        ({"destructiveHint": False, "openWorldHint": False}, Annotations(False, False, False)),
        ([], Annotations()),
        ("x", Annotations()),
    ],
)
def test_of_a_tool_that_says_nothing_usable_the_worst_is_assumed(said: object, read: Annotations) -> None:
    definition = {"name": "tool", "inputSchema": {}, **({} if said is None else {"annotations": said})}

    assert annotations_of(json.dumps(definition).encode()) == read
    assert annotations_of(b"{") == Annotations()


# ── arguments ──


def argued(wanted: dict[str, str], written: str) -> str:
    return then([PolicyRule(arguments=wanted, then="allow"), DENY], arguments=written.encode())[0]


@pytest.mark.parametrize(
    ("pointer", "glob", "written", "matches"),
    [
        ("/path", "/home/*", '{"path": "/home/a/b"}', True),
        ("/path", "/home/*", '{"path": "/etc"}', False),
        ("/path", "/home/*", "{}", False),
        ("/a~1b/0", "x", '{"a/b": ["x"]}', True),
        ("/a/1", "x", '{"a": ["x"]}', False),
        ("/n", "5", '{"n": 5}', True),
        ("/flag", "true", '{"flag": true}', True),
        ("/o", '{"a":1}', '{"o": {"a": 1}}', True),
        ("", "*", "{}", True),
    ],
)
def test_a_rule_may_look_at_arguments(pointer: str, glob: str, written: str, matches: bool) -> None:
    assert argued({pointer: glob}, written) == ("allow" if matches else "deny")


@pytest.mark.parametrize("written", ['{"path": "/home/a", "path": "/etc"}', '{"path": ', "[" * 100_000, "\xff"])
def test_arguments_that_can_be_read_in_two_ways_are_denied(written: str) -> None:
    rules = [PolicyRule(arguments={"/path": "/etc*"}, then="deny"), ALLOW]
    decision = decide(made_ready(rules), ALICE, subject(), None, written.encode("latin-1"))

    assert (decision.then, decision.rule) == ("deny", "policy[0]")
    assert "depends on the arguments" in decision.why


def test_arguments_that_no_rule_looks_at_are_not_read() -> None:
    assert then([PolicyRule(tools=("x",), arguments={"/a": "b"}, then="deny"), ALLOW], arguments=b"{{{")[0] == "allow"


def test_huge_arguments_are_not_looked_into() -> None:
    huge = b'{"path": "%b"}' % (b"a" * (1 << 20))
    assert then([PolicyRule(arguments={"/path": "*b*"}, then="deny"), ALLOW], arguments=huge)[0] == "deny"


def test_a_list_shows_tools_that_are_allowed_for_some_arguments() -> None:
    rules = [PolicyRule(arguments={"/a": "b"}, then="allow"), HIDE]

    assert then(rules)[0] == "allow", "for a list, which has no arguments"
    assert then(rules, arguments=b'{"a": "c"}')[0] == "hide"


# ── keys ──


@pytest.mark.parametrize("kept", ["deny", "hide"])
def test_a_rule_on_arguments_keeps_calls_from_somebody_and_not_the_item(kept: Then) -> None:
    some = PolicyRule(arguments={"/a": "b"}, then=kept)
    assert then([some, ALLOW])[0] == "allow" and then([some, ASK])[0] == "ask"
    assert then([some, HIDE])[0] == "hide", "nothing of it can be used, so it is not shown"
    assert then([some, ALLOW], arguments=b'{"a": "b"}')[0] == kept


def test_the_toolboxes_of_a_key_come_before_all_rules() -> None:
    limited = Identity(principal="ci", toolboxes=("dev*",))

    assert then([ALLOW], who=limited) == ("hide", "key")
    assert then([], who=limited) == ("hide", "key")
    assert then([DENY], subject(toolbox="dev-1"), who=limited) == ("deny", "policy[0]")
    assert then([], subject(toolbox="dev-1"), who=limited)[0] == "allow"


# ── servers that are not known yet ──


@pytest.mark.parametrize(
    ("rules", "shown", "hides"),
    [
        ([ALLOW], True, False),
        ([HIDE], False, True),
        ([DENY], True, False),
        ([PolicyRule(tools=("box/server/a*",), then="allow"), HIDE], True, True),
        ([PolicyRule(tools=("box/other/a*",), then="allow"), HIDE], False, True),
        ([PolicyRule(tools=("box/server",), then="hide"), ALLOW], True, True),
        ([PolicyRule(read_only=True, then="allow"), HIDE], False, True),
        ([PolicyRule(who=("bob",), then="hide"), ALLOW], True, False),
        ([PolicyRule(tools=("*",), then="allow"), HIDE], True, False),
        ([PolicyRule(arguments={"/path": "/etc*"}, then="hide"), DENY], True, True),
        ([PolicyRule(arguments={"/path": "/tmp*"}, then="allow"), HIDE], True, True),
        # Denied, as by a last rule that says so.
        ([PolicyRule(tools=("box/other",), then="hide"), PolicyRule(tools=("box/other",), then="allow")], True, False),
    ],
)
def test_whether_rules_show_or_hide_a_server_is_known_before_it_starts(
    rules: list[PolicyRule], shown: bool, hides: bool
) -> None:
    ready = made_ready(rules)

    assert may_show(ready, ALICE, "box", "server") is shown
    assert may_hide(ready, ALICE, "tools", "box", "server") is hides


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize(
    ("rule", "uri", "expected"),
    [
        ("note://secret*", "note://secret", "hide"),
        ("note://secret*", "note://%73ecret", "hide"),
        ("note://secret*", "note://%2573ecret", "hide"),
        ("note://secret*", "note://%2525252525252573ecret", "deny"),
        ("note://secret*", "note://%70ublic", "allow"),
        ("note://100%", "note://100%", "hide"),
        # A rule may be written in either way too.
        ("note://a%20b", "note://a%20b", "hide"),
        ("note://a%20b", "note://a b", "hide"),
        ("note://a%20b", "note://%61%20b", "hide"),
        ("note://a%2A", "note://abc", "allow"),
        # Scheme and host have no case, paths have.
        ("note://secret/x", "NOTE://Secret/x", "hide"),
        ("Note://Secret/x", "note://secret/x", "hide"),
        ("note://secret/x", "note://secret/X", "allow"),
        ("note:secret", "NOTE:secret", "hide"),
        # Dots, slashes, and what ends a path.
        ("file:///etc/*", "file:///pub/../etc/passwd", "hide"),
        ("file:///etc/*", "file:///./etc/./passwd", "hide"),
        ("file:///etc/*", "file:///pub/%2e%2E/etc/passwd", "hide"),
        ("file:///etc/*", "file:///pub%2f..%2fetc%2fpasswd", "hide"),
        ("file:///etc/*", "file:///pub/%252e%252e/etc/passwd", "hide"),
        ("file:///etc/*", "file:///..", "allow"),
        ("file:///etc/*", "file:///pub/../etc/", "hide"),
        ("file:///etc/passwd", "file:////etc//passwd", "hide"),
        ("file:///etc/passwd", "file:/etc/passwd", "hide"),
        ("file:///etc/passwd", "file://localhost/etc/passwd", "hide"),
        ("file:///etc/passwd", "FILE://LocalHost/etc/passwd/", "hide"),
        ("file:///etc/passwd", "file:\\\\\\etc\\passwd", "hide"),
        ("file:///etc/passwd", "file:///etc/pass\twd\n", "hide"),
        ("file:///etc/passwd", " file:///etc/passwd\x00", "hide"),
        ("note://public/../secret", "note://public/../secret", "hide"),
        ("note://secret", "note://public/../secret", "hide"),
        ("note://secret", "note://secret/", "hide"),
        ("note://secret", "note://secret?", "hide"),
        ("note://secret", "note://secret#", "hide"),
        ("note://secret", "note://secret#part", "hide"),
        ("note://secret", "note://secret/?", "hide"),
        ("note://secret", "note://secret?x=1", "hide"),
        ("note://secret?x=*", "note://secret?y=1", "allow"),
        ("note://secret#*", "note://secret", "allow"),
        # Hosts.
        ("http://inside/*", "http://inside:80/x", "hide"),
        ("http://inside/*", "http://inside.:/x", "hide"),
        ("http://inside/*", "http://me:secret@INSIDE/x", "hide"),
        ("http://inside/*", "http://\uff49nside/x", "hide"),
        ("http://inside/*", "http://inside:81/x", "allow"),
        ("http://[::1]/*", "http://[::1]:80/x", "hide"),
        ("note://caf\u00e9", "note://cafe\u0301", "hide"),
    ],
)
@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe"])
def test_a_hidden_uri_is_hidden_in_every_spelling(rule: str, uri: str, expected: str, method: str) -> None:
    assert then([PolicyRule(resources=(f"*/*/{rule}",), then="hide"), ALLOW], subject(uri, method))[0] == expected


@pytest.mark.parametrize(
    ("rule", "uri", "expected"),
    [
        ("note://a%20b", "note://a%20b", "allow"),
        ("note://a*", "note://a%20b", "allow"),
        ("note://public/*", "note://public/%2e%2e/secret", "deny"),
        ("note://public/*", "note://public/./x", "allow"),
        ("file:///pub/*", "file:///pub/../etc/passwd", "deny"),
        ("file:///pub/*", "file:///pub/a/../b", "allow"),
        ("file:///pub/*", "file:///pub/", "allow"),
        ("file:///pub/*", "file:///pub//a/#part", "allow"),
        ("note://list?tag=*", "note://list?tag=a%23b", "allow"),
        ("note://list?tag=*", "note://list", "deny"),
        ("doc://a#*", "doc://a#part", "allow"),
        ("http://*@inside/*", "http://me@inside/x", "allow"),
        ("http://inside/*", "HTTP://inside/x", "deny"),
        ("note://a b", "note://a%20b", "deny"),
        ("note://a%2Fb", "note://a/b", "deny"),
    ],
)
def test_an_allow_rule_matches_only_the_written_spelling(rule: str, uri: str, expected: str) -> None:
    assert (
        then([PolicyRule(resources=(f"*/*/{rule}",), then="allow"), DENY], subject(uri, "resources/read"))[0]
        == expected
    )


TOOLS = ("tools",)


@pytest.mark.parametrize(
    ("rules", "kinds", "shown"),
    [
        ([PolicyRule(tools=("box/server/a*",), then="hide")], TOOLS, True),
        ([PolicyRule(tools=("box/server/a*",), then="hide"), HIDE], TOOLS, False),
        # Everything of another server, and something of this one.
        ([PolicyRule(tools=("box/other", "box/server/a*"), then="hide")], TOOLS, True),
        ([PolicyRule(tools=("box/other", "box/server"), then="hide")], TOOLS, False),
        # Rules about annotations and arguments are not about resources.
        ([PolicyRule(read_only=True, then="allow"), HIDE], ("resources",), False),
        ([PolicyRule(arguments={"/a": "b"}, then="allow"), HIDE], ("resources",), False),
        ([PolicyRule(arguments={"/a": "b"}, then="allow"), HIDE], ("prompts",), True),
        ([], TOOLS, True),
    ],
)
def test_visible_items_of_a_server_by_kind(rules: list[PolicyRule], kinds: tuple[str, ...], shown: bool) -> None:
    assert may_show(made_ready(rules), ALICE, "box", "server", kinds) is shown
    limited = Identity(principal="alice", toolboxes=("dev", "box"))
    assert may_show(made_ready(rules), limited, "box", "server", kinds) is shown
    assert may_show(made_ready(rules), limited, "other", "server", kinds) is False


@pytest.mark.parametrize(("kind", "hides"), [("tools", True), ("prompts", True), ("resources", False)])
def test_hidden_items_of_a_server_by_kind(kind: str, hides: bool) -> None:
    rules = made_ready([PolicyRule(arguments={"/a": "b"}, then="hide"), PolicyRule(read_only=True, then="hide"), ALLOW])
    assert may_hide(rules, ALICE, kind, "box", "server") is hides
    assert may_hide(rules[1:], ALICE, kind, "box", "server") is (kind == "tools")


def test_other_spellings_are_those_of_addresses_alone() -> None:
    about_address = PolicyRule(resources=("*/*/note://%73ecret",), then="hide")
    about_tool = PolicyRule(tools=("*/*/secret",), then="hide")
    assert then([about_address, ALLOW], subject("note://secret"))[0] == "allow", "a tool of that name"
    assert then([about_tool, ALLOW], subject("%73ecret"))[0] == "allow"
    assert then([about_address, ALLOW], subject("note://secret", "resources/read"))[0] == "hide"


@pytest.mark.parametrize("open_world", [True, False])
def test_a_rule_about_an_open_world(open_world: bool) -> None:
    rules = [PolicyRule(open_world=open_world, then="deny"), ALLOW]
    for found in (True, False):
        told = then(rules, annotations=Annotations(open_world=found))
        assert told == (("deny", "policy[0]") if found is open_world else ("allow", "policy[1]"))
    assert then(rules)[0] == ("deny" if open_world else "allow"), "the worst is assumed"


def test_a_completion_is_judged_like_the_item_it_completes() -> None:
    rules = [PolicyRule(tools=("*",), then="hide"), PolicyRule(prompts=("*",), then="deny"), ALLOW]
    about = subject("p", "completion/complete")
    assert then(rules, about, kind="prompts") == ("deny", "policy[1]")
    assert then(rules, about, kind="resources") == ("allow", "policy[2]")


def test_a_decision_describes_its_rule() -> None:
    written = PolicyRule(
        who=("alice", "bob"),
        tools=("box", "dev"),
        arguments={"/a": "b*"},
        read_only=False,
        destructive=True,
        then="deny",
    )
    why = decide(made_ready([written, ALLOW]), ALICE, subject(), arguments=b'{"a":"bc"}').why
    assert why == "who alice, bob; tools box, dev; /a is b*; not read-only; destructive"
    assert decide(made_ready([ALLOW]), ALICE, subject()).why == "everything else"
