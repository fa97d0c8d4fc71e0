"""One call with its questions, driven from both ends, in whichever eras they are.

Owns what the same conversation looks like in each era; what a test says once then holds for all four combinations.
"""

from __future__ import annotations

from mcp_workbench.engine.session.attribution import SERVER_META
from tests.bridge.fake_server import FakeServer
from tests.bridge.in_process import Client, Json, Request, until

FORM: Json = {
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}
URL: Json = {"mode": "url", "message": "Please sign in.", "url": "https://example.test/sign-in", "elicitationId": "e-1"}
SAMPLE: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say hello."}}], "maxTokens": 16}

# What a server may ask, and what a client may say to it.
KINDS: dict[str, tuple[str, Json, Json]] = {
    "form": ("elicitation/create", FORM, {"action": "accept", "content": {"name": "ü"}}),
    "declined form": ("elicitation/create", FORM, {"action": "decline"}),
    "url": ("elicitation/create", URL, {"action": "accept"}),
    "sampling": (
        "sampling/createMessage",
        SAMPLE,
        {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m", "stopReason": "endTurn"},
    ),
    "roots": ("roots/list", {}, {"roots": [{"uri": "file:///home", "name": "home"}], "x-unknown": [1, None]}),
}

FINAL: dict[str, Json] = {
    "tool": {"content": [{"type": "text", "text": "done"}], "structuredContent": {"n": 1}, "x-unknown": [None, "ü"]},
    "prompt": {"messages": [{"role": "user", "content": {"type": "text", "text": "done"}}], "x-unknown": True},
    "resource": {"contents": [{"uri": "test:///one", "text": "done", "_meta": {"ttlMs": 1}}]},
}
METHODS = {"tool": "tools/call", "prompt": "prompts/get", "resource": "resources/read"}


def input_required(questions: dict[str, tuple[str, Json]], state: str | None = "state") -> Json:
    """The interim result of a modern server."""
    result: Json = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = {key: {"method": m, "params": p} for key, (m, p) in questions.items()}
    return result if state is None else {**result, "requestState": state}


class Conversation:
    """A call under way between a client and a server of any era."""

    def __init__(self, client: Client, server: FakeServer, route: str = "tool", **call: object) -> None:
        self.client = client
        self.server = server
        self.route = route
        self.request: Request = client.call(route, **call)  # type: ignore[arg-type]
        self._rounds = 0

    async def ask(self, *kinds: str) -> list[Json]:
        """One round of questions, asked at once, answered, and brought back to the server. Returns what was asked."""
        self._rounds += 1
        wanted = {f"{number} {kind}": KINDS[kind] for number, kind in enumerate(kinds)}
        if self.server.era == "legacy":
            ids = {key: self.server.ask(method, params) for key, (method, params, _) in wanted.items()}
            asked = await self._let_the_client_answer(wanted)
            for key, (_, _, answer) in wanted.items():
                got = self.server.answer_to(ids[key])
                assert got is not None and got["result"] == answer
        else:
            state = f"state {self._rounds}"
            questions = {key: (method, params) for key, (method, params, _) in wanted.items()}
            self.server.reply(self.server.call, input_required(questions, state))
            asked = await self._let_the_client_answer(wanted)
            retried = self.server.call["params"]
            assert retried["inputResponses"] == {key: answer for key, (_, _, answer) in wanted.items()}
            assert retried["requestState"] == state
        return asked

    def finish(self) -> Json:
        """The server is done; returns what the client is told."""
        final = FINAL[self.route]
        stamped = {"resultType": "complete", "ttlMs": 7, "cacheScope": "public"} if self.server.era == "modern" else {}
        self.server.reply(self.server.call, {**final, **stamped})
        result = self.request.result
        assert {key: result[key] for key in final} == final, "nothing is lost or changed"
        return result

    async def _let_the_client_answer(self, wanted: dict[str, tuple[str, Json, Json]]) -> list[Json]:
        asked: list[Json] = []
        if self.client.era == "legacy":
            for question in self.client.questions()[-len(wanted) :]:
                asked.append(unattributed({"method": question["method"], "params": question.get("params", {})}))
                self.client.answer(question, _fitting(asked[-1], wanted))
            return asked
        while len(asked) < len(wanted):
            await until(lambda: self.request.answer is not None)
            assert self.request.result["resultType"] == "input_required"
            questions = {key: unattributed(each) for key, each in self.request.result["inputRequests"].items()}
            asked += questions.values()
            responses = {key: _fitting(question, wanted) for key, question in questions.items()}
            self.request = self.client.retry(self.request, responses, self.route)
        return asked


def attributed(params: Json) -> Json:
    """The params of an elicitation as a client gets them."""
    return {**params, "message": f"[box/server] {params['message']}"}


def unattributed(question: Json) -> Json:
    """A question as the server wrote it, without what tells the user who asks."""
    params = dict(question.get("params", {}))
    if question["method"] == "elicitation/create":
        assert params["message"].startswith("[box/server]"), params
        params["message"] = params["message"].removeprefix("[box/server]").removeprefix(" ")
    elif question["method"] == "sampling/createMessage":
        meta = dict(params["_meta"])
        assert meta.pop(SERVER_META) == "box/server"
        params = {**params, "_meta": meta} if meta else {key: params[key] for key in params if key != "_meta"}
    return {**question, "params": params}


def _fitting(question: Json, wanted: dict[str, tuple[str, Json, Json]]) -> Json:
    """The answer to a question, by what is asked: keys and ids are up to whoever carries it."""
    essence = {key: value for key, value in question.get("params", {}).items() if key != "elicitationId"}
    for method, params, answer in wanted.values():
        if method == question["method"] and {k: v for k, v in params.items() if k != "elicitationId"} == essence:
            return answer
    raise AssertionError(f"not asked for: {question}")
