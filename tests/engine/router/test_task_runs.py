"""Tools that need tasks, for clients that know nothing of them: run, polled, reported, kept and cancelled by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.engine.face import client_behaviour, kept_results
from mcp_workbench.engine.face.tasks import DEFAULT_LIFE, MAX_TASK_LIFETIME
from mcp_workbench.engine.router import task_runs
from tests.faces.harness import ERAS
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with
from tests.support.processes import eventually

TASKS = "io.modelcontextprotocol/tasks"
DONE: Json = {"content": [{"type": "text", "text": "the report"}]}
# The status of a task, and further members.
State = tuple[str, Json]
every_client = pytest.mark.parametrize("era", ERAS)
every_server = pytest.mark.parametrize("protocol", ["legacy", "modern"])


class TaskServer(Server):
    """A server whose first tool must be called as a task. `states` are what it says of it, one after another."""

    def __init__(self, protocol: str, *states: State, result: Json = DONE) -> None:
        research = {**tool("research"), "execution": {"taskSupport": "required"}}
        super().__init__(research, tool("plain"), protocol=protocol)
        self.is_modern = protocol == "modern"
        tasks: Json = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        self.declared = {"extensions": {TASKS: {}}} if self.is_modern else {"tasks": tasks}
        self.states = list(states)
        self.result = result
        self.created = 0
        self.updates: list[Json] = []
        # The `_meta` of the call that became the task.
        self.meta: Json = {}
        # Further members of its states.
        self.more: Json = {}
        self.others = {
            "tools/call": self._call,
            "tasks/get": self._get,
            "tasks/result": lambda params: self.result,
            "tasks/update": self._update,
            "tasks/cancel": lambda params: (
                {"resultType": "complete"} if self.is_modern else {**self._state("cancelled")}
            ),
        }

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    def _state(self, status: str, **more: Any) -> Json:
        interval = {"pollIntervalMs": 100, "ttlMs": 60_000} if self.is_modern else {"pollInterval": 100, "ttl": 60_000}
        return {"taskId": "7", "status": status, "createdAt": "", "lastUpdatedAt": "", **interval, **self.more, **more}

    def _call(self, params: Json) -> Json:
        if params["name"] == "plain":
            return {"content": []}
        if self.is_modern:
            declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"].get("extensions", {})
            if TASKS not in declared:
                required: Json = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
                return {"code": -32021, "message": "needs tasks", "data": required}
        elif "task" not in params:
            return {"code": -32601, "message": "needs a task"}
        self.created += 1
        self.meta = params.get("_meta", {})
        return {"resultType": "task", **self._state("working")} if self.is_modern else {"task": self._state("working")}

    def _get(self, params: Json) -> Json:
        status, more = self.states.pop(0) if self.states else ("completed", {})
        fields = dict(more)
        if status == "completed" and self.is_modern:
            fields["result"] = self.result
        return {**({"resultType": "complete"} if self.is_modern else {}), **self._state(status, **fields)}

    def _update(self, params: Json) -> Json:
        self.updates.append(params["inputResponses"])
        return {"resultType": "complete"}


def life_of(members: Json) -> float:
    """For how long a task with these members is waited for."""
    return msgspec.convert({"taskId": "7", **members}, task_runs.TaskState).life


WORKING: State = ("working", {"statusMessage": "reading page 2"})


async def research(seen: ConnectedClient, **more: Any) -> Json:
    return await seen.use("box/server/research", {}, **more)


@every_client
@every_server
@pytest.mark.parametrize("face", ["proxy", "flat"])
async def test_a_plain_call_gets_the_result_of_the_task(tmp_path: Path, era: str, protocol: str, face: str) -> None:
    server = TaskServer(protocol, WORKING, WORKING)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, face=face) as seen:
        await seen.client.request("tools/list")
        result = await (research(seen) if face == "proxy" else seen.client.call_tool("box:server:research", {}))
        assert result["content"] == DONE["content"]
        assert server.created == 1
        assert server.methods().count("tasks/get") == 3
        assert "taskId" not in json.dumps(result)
        # What needs no task is called as ever.
        await seen.use("box/server/plain") if face == "proxy" else await seen.client.call_tool("box:server:plain", {})
        assert server.created == 1


@every_client
@every_server
async def test_status_message_of_a_task_is_reported(tmp_path: Path, era: str, protocol: str) -> None:
    server = TaskServer(protocol, WORKING, WORKING)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        params = {"name": "use_tool", "arguments": {"tool": "box/server/research"}, "_meta": {"progressToken": "p"}}
        await seen.client.request("tools/call", params)
        told = seen.client.received("notifications/progress")
        assert [each["progressToken"] for each in told] == ["p"] * len(told)
        assert "reading page 2" in [each.get("message") for each in told]
        progress = [each["progress"] for each in told]
        assert progress == sorted(set(progress))


@every_client
@every_server
async def test_to_cancel_the_call_is_to_cancel_the_task(tmp_path: Path, era: str, protocol: str) -> None:
    server = TaskServer(protocol, *[WORKING] * 100)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        params = {"name": "use_tool", "arguments": {"tool": "box/server/research"}}
        id = (await seen.client.start("tools/call", params)).id
        await eventually(lambda: "tasks/get" in server.methods(), what="a poll")
        await seen.client.notify("notifications/cancelled", {"requestId": id})
        await eventually(lambda: ("tasks/cancel", "7") in server.asked, what="the task to be cancelled")
        polls = server.methods().count("tasks/get")
        await seen.use("box/server/plain")
        assert server.methods().count("tasks/get") == polls


@every_client
async def test_so_is_to_cancel_it_while_the_task_waits_for_input(tmp_path: Path, era: str) -> None:
    server = TaskServer("legacy", ("input_required", {}))
    # It asks during this request, which has no answer before.
    server.others["tasks/result"] = lambda params: {}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        call = await seen.client.start("tools/call", {"name": "use_tool", "arguments": {"tool": "box/server/research"}})
        await eventually(lambda: "tasks/result" in server.methods(), what="the request for the result")
        await seen.client.notify("notifications/cancelled", {"requestId": call.id})
        await eventually(lambda: ("tasks/cancel", "7") in server.asked, what="the task to be cancelled")
        assert len(server.cancelled) == 1


@every_client
@every_server
async def test_the_result_is_kept_for_a_client_that_would_give_up(
    tmp_path: Path, era: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_behaviour, "USUAL_CALL_TIMEOUT", 0.1)
    server = TaskServer(protocol, WORKING, WORKING)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        told = text_of(await research(seen))
        assert "still running" in told
        uri = told.partition('{"tool": "')[2].partition('"')[0]

        async def read() -> str:
            return text_of(await seen.use(uri))

        said = await read()
        while "still running" in said:
            said = await read()
        assert "the report" in said
        assert server.created == 1
        # The client has its answer: nothing more is said of this call.
        assert "tasks/cancel" not in server.methods()


@every_client
@every_server
@pytest.mark.parametrize("limit", [{"callsInFlight": 1}, {"callsInFlight": 1, "callSeconds": 0.6}])
async def test_a_call_that_was_answered_before_its_end_counts_until_then(
    tmp_path: Path, era: str, protocol: str, limit: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_behaviour, "USUAL_CALL_TIMEOUT", 0.1)
    server = TaskServer(protocol, *[WORKING] * 1000)
    audit, limits = tmp_path / "audit.jsonl", [{"servers": ["box/server"], **limit}]
    settings: Json = {"audit": {"file": str(audit)}, "limits": limits}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, **settings) as seen:
        uri = text_of(await research(seen)).partition('{"tool": "')[2].partition('"')[0]
        assert "1 calls are in flight already" in text_of(await seen.use("box/server/plain"))
        if "callSeconds" in limit:
            await eventually(lambda: ("tasks/cancel", "7") in server.asked, what="the task to be cancelled")
            assert "it was stopped" in text_of(await seen.use(uri))
        else:
            server.states = []
            while "still running" in (said := text_of(await seen.use(uri))):
                pass
            assert "the report" in said
        assert (await seen.use("box/server/plain"))["content"] == []
    calls = [line for line in map(json.loads, audit.read_text().splitlines()) if line.get("item") == "research"]
    (call,) = calls
    assert call["decision"] == "passed" and server.created == 1
    assert (call["outcome"] == "result") == ("callSeconds" not in limit)


@every_client
async def test_questions_of_a_task_reach_the_client(tmp_path: Path, era: str) -> None:
    ask = {"method": "elicitation/create", "params": {"message": "Which city?", "requestedSchema": {"type": "object"}}}
    server = TaskServer("modern", ("input_required", {"inputRequests": {"city": ask}}))
    abilities: Json = {"elicitation": {}}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=abilities) as seen:
        answer = {"action": "accept", "content": {"city": "Wien"}}
        if era == "legacy":
            seen.client.handlers["elicitation/create"] = lambda params: answer
            result = await research(seen)
        else:
            call = {"name": "use_tool", "arguments": {"tool": "box/server/research", "arguments": {}}}
            asked = await seen.client.request("tools/call", call)
            assert asked["resultType"] == "input_required"
            ((key, request),) = asked["inputRequests"].items()
            assert "Which city?" in request["params"]["message"]
            retry = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
            result = await seen.client.request("tools/call", {**call, **retry})
        assert result["content"] == DONE["content"]
        assert server.updates == [{"city": answer}]


@every_server
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (("cancelled", {"statusMessage": "too expensive"}), "too expensive"),
        (("failed", {"error": {"code": -32000, "message": "no paper left"}}), "no paper left"),
    ],
)
async def test_a_task_that_does_not_succeed_is_an_error(tmp_path: Path, protocol: str, state: State, said: str) -> None:
    server = TaskServer(protocol, state)
    server.result = {"code": -32000, "message": "no paper left"}
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        result = await research(seen)
        assert result["isError"] and said in text_of(result)


@every_client
@pytest.mark.parametrize("face", ["proxy", "flat"])
@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"status": "completed"}, "no usable result"),
        ({"status": "completed", "result": "done"}, "no usable result"),
        ({"status": "completed", "result": {"resultType": "input_required", "requestState": "x"}}, "no usable result"),
        ({"status": "completed", "result": {"resultType": "task", "taskId": "8"}}, "no usable result"),
        ({"status": "thinking"}, "`thinking`"),
        ({"status": "failed", "statusMessage": "no paper left"}, "no paper left"),
        ({"status": "failed", "error": "no paper left"}, "the task is failed"),
    ],
)
async def test_a_task_that_ends_in_nonsense_is_an_error_and_not_called_again(
    tmp_path: Path, era: str, face: str, state: Json, said: str
) -> None:
    server = TaskServer("modern")
    server.others["tasks/get"] = lambda params: {"resultType": "complete", "taskId": "7", **state}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, face=face) as seen:
        if face == "proxy":
            assert said in text_of(await research(seen))
        else:
            try:
                answer = text_of(await seen.client.call_tool("box:server:research", {}))
            except RpcError as error:
                answer = str(error)
            assert said in answer
        # Refused without a task, made as one, and never again.
        assert server.methods().count("tools/call") == 2 and server.created == 1


@every_server
async def test_the_place_of_a_result_is_kept_until_the_task_has_ended(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_behaviour, "USUAL_CALL_TIMEOUT", 0.1)
    # Polled ten times a second.
    monkeypatch.setattr(kept_results, "KEPT_RESULT_LIFETIME", 0.4)
    server = TaskServer(protocol, *[WORKING] * 100)
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        told = text_of(await research(seen))
        uri = told.partition('{"tool": "')[2].partition('"')[0]
        await eventually(lambda: len(server.states) < 90, what="ten polls")
        assert "still running" in text_of(await seen.use(uri))


@every_server
async def test_polls_that_fail_end_the_call(tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_runs, "POLL_TIMEOUT", 0.05)
    server = TaskServer(protocol)
    server.others["tasks/get"] = lambda params: {"taskId": 7}
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        assert "cannot be read" in text_of(await research(seen))


@every_client
@every_server
async def test_a_list_of_calls_takes_tools_that_need_tasks(tmp_path: Path, era: str, protocol: str) -> None:
    server = TaskServer(protocol, WORKING)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        calls = [{"tool": "box/server/research"}, {"tool": "box/server/plain"}]
        result = await seen.client.call_tool("use_tool", {"calls": calls})
        assert json.loads(text_of(result))[0] == "the report"


async def test_a_client_with_tasks_handles_them_itself(tmp_path: Path) -> None:
    server = TaskServer("legacy")
    async with workbench_with(tmp_path, {"box": {"server": server}}, face="flat") as seen:
        await seen.client.request("tools/list")
        result = await seen.client.request("tools/call", {"name": "box:server:research", "arguments": {}, "task": {}})
        assert result["task"]["taskId"] == "7"
        assert "tasks/get" not in server.methods()


@every_client
@every_server
async def test_the_meta_of_the_client_reaches_the_server(tmp_path: Path, era: str, protocol: str) -> None:
    server = TaskServer(protocol)
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era) as seen:
        meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "own/key": {"a": [1]}}
        params = {"name": "use_tool", "arguments": {"tool": "box/server/research"}, "_meta": meta}
        assert (await seen.client.request("tools/call", params))["content"] == DONE["content"]
    assert {key: server.meta.get(key) for key in meta} == meta
    hop = "io.modelcontextprotocol/clientCapabilities"
    assert (TASKS in server.meta[hop]["extensions"]) if protocol == "modern" else hop not in server.meta


@every_server
@pytest.mark.parametrize("life", [None, 0, -1, 60_000])
async def test_task_is_awaited_beyond_its_declared_lifetime(tmp_path: Path, protocol: str, life: int | None) -> None:
    server = TaskServer(protocol, WORKING, WORKING)
    server.more = {"ttlMs" if server.is_modern else "ttl": life}
    async with workbench_with(tmp_path, {"box": {"server": server}}) as seen:
        assert (await research(seen))["content"] == DONE["content"]
        assert "tasks/cancel" not in server.methods()


@pytest.mark.parametrize("member", ["ttl", "ttlMs"])
def test_a_task_that_is_kept_without_limit_is_waited_for_as_long_as_any(member: str) -> None:
    assert life_of({member: None}) == MAX_TASK_LIFETIME
    assert life_of({}) == life_of({member: 0}) == DEFAULT_LIFE
    assert life_of({member: 5000}) == 5.0
    assert life_of({member: 10**12}) == MAX_TASK_LIFETIME


@every_client
async def test_later_questions_of_a_task_are_asked_when_its_result_is_read(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_behaviour, "USUAL_CALL_TIMEOUT", 0.1)
    ask = {"method": "elicitation/create", "params": {"message": "Which city?", "requestedSchema": {"type": "object"}}}
    server = TaskServer("modern", WORKING, WORKING, ("input_required", {"inputRequests": {"city": ask}}), WORKING)
    abilities: Json = {"elicitation": {}}
    answer = {"action": "accept", "content": {"city": "Wien"}}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era=era, abilities=abilities) as seen:
        seen.client.handlers["elicitation/create"] = lambda params: answer
        uri = text_of(await research(seen)).partition('{"tool": "')[2].partition('"')[0]
        call: Json = {"name": "use_tool", "arguments": {"tool": uri, "arguments": {}}}
        asked = 0
        result = await seen.client.request("tools/call", call)
        while True:
            if result.get("resultType") == "input_required":
                asked += 1
                ((key, request),) = result["inputRequests"].items()
                assert "Which city?" in request["params"]["message"]
                # Whoever reads meanwhile is not asked the same.
                assert "still running" in text_of(await seen.client.request("tools/call", call))
                retry = {"inputResponses": {key: answer}, "requestState": result["requestState"]}
                result = await seen.client.request("tools/call", {**call, **retry})
            if "still running" not in text_of(result):
                break
            result = await seen.client.request("tools/call", call)
        assert "the report" in text_of(result)
        assert server.updates == [{"city": answer}]
        assert asked == (era == "modern")


async def test_unanswered_question_ends_with_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_behaviour, "USUAL_CALL_TIMEOUT", 0.1)
    ask = {"method": "elicitation/create", "params": {"message": "Which city?", "requestedSchema": {"type": "object"}}}
    server = TaskServer("modern", WORKING, *[("input_required", {"inputRequests": {"city": ask}})] * 5)
    server.more = {"ttlMs": 600}
    abilities: Json = {"elicitation": {}}
    async with workbench_with(tmp_path, {"box": {"server": server}}, era="modern", abilities=abilities) as seen:
        uri = text_of(await research(seen)).partition('{"tool": "')[2].partition('"')[0]
        await eventually(lambda: ("tasks/cancel", "7") in server.asked, what="the task to be cancelled")
        assert "not done within 0.6 s" in text_of(await seen.use(uri))
        assert server.updates == []
