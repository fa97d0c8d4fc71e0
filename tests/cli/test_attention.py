"""What `status` says needs the user, and what to do about it."""

from __future__ import annotations

from typing import Any

from mcp_workbench.cli.attention import MAX_ARGUMENTS_SHOWN, Need, needs_of


def server(name: str, state: str = "ready", **more: Any) -> dict[str, Any]:
    return {"toolbox": "box", "server": name, "state": state, "lastError": None, **more}


def status(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"serving": "stdio", "servers": list(servers), **more}


def test_servers_that_work_or_have_not_been_used_need_nothing() -> None:
    over = server("over", lastError="it crashed", lastErrorSecondsAgo=3.0)
    assert needs_of(status(server("fine"), server("idle", "known"), over)) == []


def test_calls_that_wait_come_first_and_cannot_write_lines_of_another() -> None:
    call = {"id": "3f9c", "principal": "a\rb", "call": "box/x\n  approve 00aa", "arguments": "{\n}", "secondsLeft": 61}
    long = {**call, "id": "77", "arguments": "x" * 1000}
    first, second, third = needs_of(status(server("b", "needs sign-in"), approvals=[call, long]))
    assert first == Need(
        "approve box/x\\n  approve 00aa for a\\rb, 1 min 1 s left",
        ("it will be sent as {\\n}",),
        "mcp-workbench team approve 3f9c",
    )
    assert second.details == (f"it will be sent as {'x' * MAX_ARGUMENTS_SHOWN}…",)
    assert third == Need("sign in to box/b", (), "mcp-workbench auth login box/b")


def test_one_that_ends_needs_answers_to_its_calls_alone() -> None:
    call = {"id": "3f9c", "principal": "a", "call": "box/x", "arguments": "{}", "secondsLeft": 61}
    ending = {**status(server("b", "needs sign-in"), approvals=[call]), "serving": "ending"}
    assert [each.what for each in needs_of(ending)] == ["approve box/x for a, 1 min 1 s left"]


def test_a_sign_in_names_whose_it_is_and_one_that_ends_soon_is_announced() -> None:
    users = [server("b", "needs sign-in", user=user, nextStep="run this") for user in ("alice", "bob", "alice")]
    soon = server("c", signInNote="your sign-in ends tomorrow")
    assert needs_of(status(*users, soon)) == [
        Need("sign in to box/b as alice, bob", (), "run this"),
        Need("box/c: your sign-in ends tomorrow"),
    ]


def test_unlocked_and_changed_items_are_named() -> None:
    found = [
        server("a", withheld={"tools": ["write", "add"]}),
        server("a", withheld={"instructions": ["instructions"]}),
        server("b", changed=["tool `read`"]),
    ]
    assert needs_of(status(*found, lock="there is no `workbench.lock`")) == [
        Need("there is no `workbench.lock`", do="mcp-workbench team lock creates it; review it before you commit it"),
        Need(
            "box/a offers something else than locked", ("tools: add, write", "instructions"),
            "mcp-workbench team lock diff",
        ),
        Need("box/b describes itself differently than before: tool `read`"),
    ]  # fmt: skip


def test_a_crashed_server_has_its_cause_and_the_next_step() -> None:
    failed = server("a b", "failed", lastError="no program\nstderr", lastErrorSecondsAgo=9.0)
    (alone,) = needs_of(status(server("x"), failed))
    assert alone == Need("box/a b does not work", ("no program (9 s ago)",), "mcp-workbench top")
    (shared,) = needs_of(status(failed, serving="shared"))
    assert shared.do == "mcp-workbench logs 'box/a b'"
    (advised,) = needs_of(status({**failed, "state": "backoff", "nextStep": "install it"}))
    assert advised.do == "install it" and advised.details[1:] == ("what it wrote: mcp-workbench top",)
    (brief,) = needs_of(status({**failed, "lastError": "no program", "nextStep": "install it"}))
    assert len(brief.details) == 1


def test_a_configuration_that_was_rejected_says_why() -> None:
    (need,) = needs_of(status(configuration={"rejected": "line 1\nline 2"}))
    assert need.details == ("line 1", "line 2") and "correct the file" in need.do
    (need,) = needs_of(status(configuration={"rejected": "not trusted\nhint: mcp-workbench team trust"}))
    assert need.do == "", "the reason says it"


def test_decided_host_needs_no_approval() -> None:
    decided = server("c", refusedHosts={"x.com": 1, "y.com": 2}, hostDecisions={"x.com": False})
    (need,) = needs_of(status(decided))
    assert need.details == ("y.com (2)",)
    assert not needs_of(status({**decided, "hostDecisions": {"x.com": False, "y.com": True}}))


def test_sandbox_gaps_of_a_server_are_named_and_common_ones_are_not() -> None:
    usual = server("a", sandbox={"profile": "guard", "missing": ["cannot filter"]})
    lacking = server("b", sandbox={"profile": "contained", "missing": ["cannot limit its files"]})
    copies = [server("c", refusedHosts={"x.com": 1, "y.com": 1}), server("c", refusedHosts={"y.com": 3})]
    asked = server("d", sandbox={"profile": "guard", "missing": ["cannot filter"], "bestEffort": True})
    assert needs_of(status(usual, lacking, *copies, asked)) == [
        Need("the sandbox of box/b lacks something", ("this machine cannot limit its files",)),
        Need(
            "the sandbox of box/c refused it hosts",
            ("y.com (4), x.com (1)",),
            "mcp-workbench page allows one now; for good, add it to `network` of its `sandbox`",
        ),
        Need("the sandbox of box/d lacks something", ("this machine cannot filter",)),
    ]
