"""A `requestState` opens exactly what it was given out for: once, to the same principal, with the same request."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.protocol.sealed_state import SEALED_PREFIX, Sealed, Sealer
from mcp_workbench.engine.session import client_call
from tests.bridge.conversation import FORM, attributed, input_required
from tests.bridge.in_process import ERAS, Json, in_process_workbench, until
from tests.bridge.modern_to_legacy import DONE, answered, modern_to_legacy
from tests.support.refusals import refused

pytestmark = pytest.mark.bridge("request-state")


async def test_a_state_is_used_once() -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        first = on.client.retry(request, answered(request))
        await refused(on.workbench, lambda: on.client.retry(request, answered(request)), -32602, "already been used")
        assert first.answer is None, "the one that came first is not disturbed"
        on.server.reply(on.server.call, DONE)
        assert first.result["content"] == DONE["content"]
        await refused(on.workbench, lambda: on.client.retry(request, answered(request)), -32602)
        assert on.server.answer_to(id) is not None
        assert len(on.server.requests("tools/call")) == 1, "however often it is tried, the call is made once"
        assert on.workbench.is_clean()


async def test_the_state_of_an_earlier_question_does_not_answer_a_later_one() -> None:
    async with modern_to_legacy() as on:
        first, _ = await on.ask()
        retry = on.client.retry(first, answered(first))
        second, (id,) = await on.ask(request=retry)
        await refused(on.workbench, lambda: on.client.retry(first, answered(second)), -32602)
        on.client.retry(second, answered(second))
        assert on.server.answer_to(id) is not None


@pytest.mark.parametrize("face", ["flat", "proxy"])
async def test_a_state_belongs_to_its_parameters(face: FaceName) -> None:
    async with modern_to_legacy(face) as on:
        request, (id,) = await on.ask()
        changes: list[Json] = [{"arguments": {"a": "2"}}, {"arguments": {}}, {"extra": 1}]
        for changed in changes:
            retry = partial(on.client.retry, request, answered(request), **changed)
            await refused(on.workbench, retry, -32602, "another request")
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None, "and remains good for them"


@pytest.mark.parametrize("route", ["prompt", "resource"])
async def test_a_state_belongs_to_its_method(route: str) -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        await refused(on.workbench, lambda: on.client.retry(request, answered(request), route), -32602)
        params = {"requestState": request.result["requestState"]}
        await refused(on.workbench, lambda: on.client.send_request("tools/list", params), -32602)
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None


async def test_a_state_belongs_to_its_principal() -> None:
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        stranger = on.workbench.client("modern", principal="somebody else")
        await refused(on.workbench, lambda: stranger.retry(request, answered(request)), -32602, "another user")
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None


async def test_the_same_principal_may_return_on_another_connection() -> None:
    """Modern clients have no connection that would have to be the same."""
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        elsewhere = on.workbench.client("modern")
        retry = elsewhere.retry(request, answered(request))
        assert on.server.answer_to(id) is not None
        on.server.notify("notifications/progress", {"progressToken": on.server.call["id"], "progress": 1})
        on.server.reply(on.server.call, DONE)
        assert retry.result["content"] == DONE["content"]
        assert on.workbench.is_clean()


def spoiled(state: str) -> dict[str, object]:
    head, name, sealed = state.split(".")
    return {
        "nothing sealed": f"{head}.{name}.",
        "garbage": f"{head}.{name}.garbage",
        "not base64": f"{head}.{name}.***",
        "not ASCII": f"{head}.{name}.ü",
        "too short": f"{head}.{name}.{sealed[:40]}",
        "cut off": state[:-4],
        "longer": state + "AAAA",
        "other letters": f"{head}.{name}.{sealed.swapcase()}",
        "another spelling": state.rstrip("=") + "=" * 8,
        "the name of another process": f"{head}.AAAAAAAA.{sealed}",
        "our prefix alone": SEALED_PREFIX,
        "somebody else's": "state of another server",
        "empty": "",
        "a number": 5,
        "null": None,
        "an object": {"state": state},
    }


@pytest.mark.parametrize("how", spoiled("a.b.c"))
async def test_an_invalid_request_state_is_refused_for_a_legacy_server(how: str) -> None:
    """To a legacy server it would be a new call: what has been done before would silently be done once more."""
    async with modern_to_legacy() as on:
        request, (id,) = await on.ask()
        fields = {"requestState": spoiled(request.result["requestState"])[how], "inputResponses": answered(request)}
        await refused(on.workbench, lambda: on.client.call(**fields), -32602)  # type: ignore[arg-type]
        on.client.retry(request, answered(request))
        assert on.server.answer_to(id) is not None, "the real one is still good"


@pytest.mark.parametrize("state", ["state of a server", "", f"{SEALED_PREFIX}AAAAAAAA.garbage", SEALED_PREFIX])
async def test_states_of_modern_servers_pass_through_unread(state: str) -> None:
    """Also those of another workbench, which look like ours."""
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        questions = {"any key": ("elicitation/create", FORM)}
        server.reply(server.call, {**input_required(questions, state), "x-unknown": 1})
        shown = {"any key": ("elicitation/create", attributed(FORM))}
        assert request.result == {**input_required(shown, state), "x-unknown": 1}, "all else as the server wrote it"
        retry = client.retry(request, {"any key": {"action": "decline"}, "more": {}})
        assert server.call["params"]["requestState"] == state
        assert server.call["params"]["inputResponses"] == {"any key": {"action": "decline"}, "more": {}}
        server.reply(server.call, {"resultType": "complete", **DONE})
        assert retry.result["content"] == DONE["content"]


async def test_a_note_on_a_changed_toolbox_waits_for_the_result_and_leaves_a_question_alone() -> None:
    async with in_process_workbench("modern", face="proxy") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        client.session.view.changed["box"] = "changed"
        asked = input_required({"q": ("elicitation/create", FORM)})
        server.reply(server.call, asked)
        assert request.result == input_required({"q": ("elicitation/create", attributed(FORM))})
        retry = client.retry(request, {"q": {"action": "decline"}})
        server.reply(server.call, {"resultType": "complete", **DONE})
        assert "box" in retry.result["content"][-1]["text"]


@pytest.mark.parametrize("face", ["flat", "proxy"])
@pytest.mark.parametrize("era", ERAS)
async def test_notes_are_added_to_large_results_in_a_thread(
    era: str, face: FaceName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a large one takes long, and others are answered meanwhile."""
    threads = set()

    def noting(add: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            threads.add(threading.get_ident())
            return add(*given, **named)

        return noted

    for name in ("with_notice", "with_restart", "may_be_failure", "result_type"):
        monkeypatch.setattr(client_call, name, noting(getattr(client_call, name)))
    monkeypatch.setattr(client_call, "LARGE_RESULT", 1000)
    async with in_process_workbench("legacy", face=face) as workbench:
        client = workbench.client("legacy")
        other = workbench.client(era, lasts=True)
        server = await workbench.connect(client)
        assert await workbench.connect(other) is server
        for each in (client, other):
            each.session.view.changed["box"] = "changed"
        server.connection.traffic.clients.lose(passing=True)
        threads.clear()
        large = {"content": [{"type": "text", "text": "x" * 2000}]}
        for each in (client, other):
            request = each.call()
            server.reply(server.call, large)
            await until(lambda request=request: request.answer is not None)  # type: ignore[misc]
            texts = [block["text"] for block in request.result["content"]]
            assert texts[0] == "x" * 2000 and "has been started again" in texts[-1]
            assert len(texts) == (3 if face == "proxy" else 2)
        assert threads and threading.get_ident() not in threads
        again = other.call()
        server.reply(server.call, large)
        await until(lambda: again.answer is not None)
        assert len(again.result["content"]) == 1, "each is told once"


async def test_a_workbench_behind_a_workbench_opens_its_own_states() -> None:
    """The state is that of the inner one; the outer one hands it through, though it looks like its own."""
    async with modern_to_legacy() as inner, in_process_workbench("modern") as outer:
        asked, _ = await inner.ask()
        client = outer.client("modern")
        server = await outer.connect(client)
        request = client.call()
        server.reply(server.call, asked.result)
        client.retry(request, answered(asked))
        inner.client.retry(asked, server.call["params"]["inputResponses"])
        assert inner.server.answer_to("ask-1") is not None
        assert server.call["params"]["requestState"] == asked.result["requestState"]


def test_a_process_knows_its_own_states_only() -> None:
    one, other = Sealer(), Sealer()
    state = one.seal(Sealed("key", 1, "", "digest", 1.0))
    assert one.gave_out(state)
    assert not other.gave_out(state)


async def test_a_modern_server_that_has_become_a_legacy_one_does_not_get_the_call_twice() -> None:
    async with in_process_workbench("modern") as workbench:
        client = workbench.client("modern")
        server = await workbench.connect(client)
        request = client.call()
        server.reply(server.call, input_required({"q": ("elicitation/create", FORM)}))
        workbench.gateway._eras = {"server": "legacy"}
        server.crash()
        retry = client.retry(request, {"q": {"action": "accept"}})
        await until(lambda: retry.answer is not None)
        assert retry.error["code"] == -32602
        assert workbench.gateway.fake_servers[-1].requests("tools/call") == []
