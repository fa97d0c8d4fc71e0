"""Large results through the real face: their head, reading on, resources, and the bounds of what is kept."""

from __future__ import annotations

import base64
import json
import random
import re
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_workbench.engine.economy.tokens import estimated_tokens
from mcp_workbench.engine.face import kept_results as kept
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.router.router import LARGE_TO_SHORTEN
from tests.faces.harness import Bench
from tests.faces.memory import MemoryClient
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import Answer, ConnectedClient, Server, text_of, tool, workbench_with

ISSUES = [{"id": number, "title": f"Issue {number}", "open": number % 2 == 0} for number in range(500)]
LINES = "\n".join(f"line {number} " + ("ERROR broken" if number % 50 == 7 else "fine") for number in range(1, 1001))
IMAGE = {"type": "image", "data": "aW1hZ2U=" * 2000, "mimeType": "image/png"}


def server(result: Json, **settings: Any) -> Server:
    return Server(tool("get"), answer=lambda name, arguments: result, **settings)


def text(value: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": value}], **more}


def uri_in(result: Json) -> str:
    found = re.search(r"workbench://results/[\w-]+", text_of(result))
    assert found is not None, text_of(result)
    return found[0]


async def read_on(seen: ConnectedClient, uri: str, **arguments: Any) -> str:
    result = await seen.use(uri, arguments)
    assert "isError" not in result, text_of(result)
    return text_of(result)


def boxes(result: Json, **settings: Any) -> dict[str, dict[str, Server]]:
    return {"dev": {"api": server(result, **settings)}}


def shortened(results: kept.KeptResults, view: View, result: bytes) -> bytes:
    shortening = results.shortening(view, result, 300)
    assert shortening is not None
    shortening.work()
    return bytes(shortening.finish())


async def test_reading_on_does_not_hold_up_other_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    piece = kept._piece

    def watched(*given: Any) -> str:
        threads.append(threading.current_thread())
        return piece(*given)

    monkeypatch.setattr(kept, "_piece", watched)
    async with workbench_with(tmp_path, boxes(text(json.dumps(ISSUES)), resultBudget=300)) as seen:
        uri = uri_in(await seen.use("dev/api/get"))
        assert await read_on(seen, uri, select="length(@)") == "(characters 0 to 3 of 3)\n500"
    assert threads and threading.current_thread() not in threads


# when


@pytest.mark.parametrize(
    ("settings", "is_whole"), [({}, False), ({"resultBudget": 10_000}, False), ({"resultBudget": None}, True)]
)
async def test_large_results_are_shortened_unless_there_is_no_limit(
    tmp_path: Path, settings: dict[str, int | None], is_whole: bool
) -> None:
    whole = text("words that somebody wrote\n" * 6_000)
    async with workbench_with(tmp_path, boxes(whole, **settings)) as seen:
        assert (await seen.use("dev/api/get") == whole) is is_whole


async def test_images_of_any_size_pass_unchanged(tmp_path: Path) -> None:
    data = base64.b64encode(random.Random(3).randbytes(300_000)).decode()
    whole = {"content": [{"type": "image", "data": data, "mimeType": "image/png"}, {"type": "text", "text": "a cat"}]}
    async with workbench_with(tmp_path, boxes(whole)) as seen:
        assert await seen.use("dev/api/get") == whole


async def test_a_result_of_ordinary_size_passes_as_it_is(tmp_path: Path) -> None:
    whole = text(LINES, structuredContent={"a": ISSUES})
    async with workbench_with(tmp_path, boxes(whole)) as seen:
        assert await seen.use("dev/api/get") == whole


async def test_a_result_within_its_budget_passes_as_it_is(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text("short"), resultBudget=1000)) as seen:
        assert await seen.use("dev/api/get") == text("short")


async def test_duplicated_content_counts_once(tmp_path: Path) -> None:
    value = {"issues": ISSUES[:20]}
    whole = text(json.dumps(value), structuredContent=value)
    async with workbench_with(tmp_path, boxes(whole)) as seen:
        once = estimated_tokens(json.dumps(value).encode())
        assert await seen.use("dev/api/get", max_tokens=once + 100) == whole
        assert "workbench://results/" in text_of(await seen.use("dev/api/get", max_tokens=once - 100))


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("by", ["request", "server"])
async def test_a_larger_one_is_answered_with_its_head_its_shape_and_how_to_read_on(
    tmp_path: Path, era: str, by: str
) -> None:
    settings = {"resultBudget": 500} if by == "server" else {}
    async with workbench_with(
        tmp_path, boxes(text(json.dumps({"issues": ISSUES, "total": 500})), **settings), era=era
    ) as seen:
        result = await (seen.use("dev/api/get", max_tokens=500) if by == "request" else seen.use("dev/api/get"))
        said = text_of(result)
        assert "Shape: {issues: 500 × {id: integer, title: string, open: boolean}, total: integer}" in said
        assert '{"issues": [{"id": 0, "title": "Issue 0"' in said
        for word in ("`select`", "`lines`", "`grep`", "`start`", "use_tool"):
            assert word in said
        assert result["content"][1]["type"] == "resource_link"
        assert result["content"][1]["uri"] == uri_in(result)
        assert len(json.dumps(result["content"], ensure_ascii=False)) <= 500 * 4 + 100


@pytest.mark.parametrize("budget", [200, 300, 1000, 5000])
@pytest.mark.parametrize("value", [LINES * 20, '"\\\n' * 50_000, "ä" * 100_000, "😀" * 50_000, json.dumps(ISSUES)])
async def test_a_head_takes_no_more_than_its_budget(tmp_path: Path, budget: int, value: str) -> None:
    async with workbench_with(tmp_path, boxes(text(value))) as seen:
        result = await seen.use("dev/api/get", max_tokens=budget)
        written = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
        assert estimated_tokens(written) <= 1.2 * budget


async def test_result_metadata_is_kept(tmp_path: Path) -> None:
    own = text(LINES, isError=True, _meta={"example.test/a": 1}, structuredContent={"a": 1}, unknown=[1])
    async with workbench_with(tmp_path, boxes(own)) as seen:
        result = await seen.use("dev/api/get", max_tokens=300)
        assert result["isError"] is True
        assert result["_meta"]["example.test/a"] == 1
        assert result["unknown"] == [1]
        # A client that finds structured content would show that, and not the head.
        assert "structuredContent" not in result


@pytest.mark.parametrize("kind", ["input_required", "task"])
async def test_incomplete_results_are_never_shortened(tmp_path: Path, kind: str) -> None:
    asking = {"resultType": kind, "inputRequests": {"q": {"method": "roots/list", "params": {"x": "y" * 5000}}}}
    async with workbench_with(tmp_path, boxes(asking, resultBudget=200), era="modern") as seen:
        result = await seen.use("dev/api/get")
        assert result["resultType"] == kind
        assert result["inputRequests"] == asking["inputRequests"]


@pytest.mark.parametrize("wrong", [-5, "many", 1.5])
async def test_a_budget_that_is_none_is_refused_or_ignored(tmp_path: Path, wrong: Any) -> None:
    async with workbench_with(tmp_path, boxes(text("short"))) as seen:
        result = await seen.use("dev/api/get", max_tokens=wrong)
        assert result.get("isError") is True or result == text("short")


# reading on


async def head_of(seen: ConnectedClient) -> str:
    return uri_in(await seen.use("dev/api/get", max_tokens=300))


async def test_a_part_of_json_is_selected(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(json.dumps({"issues": ISSUES})))) as seen:
        uri = await head_of(seen)
        assert await read_on(seen, uri, select="issues[?id == `7`].title") == '(characters 0 to 11 of 11)\n["Issue 7"]'
        assert '"Issue 499"' in await read_on(seen, uri, select="/issues/499/title")
        assert await read_on(seen, uri, select="length(issues)") == "(characters 0 to 3 of 3)\n500"
        nowhere = await seen.use(uri, {"select": "/no/such/place"})
        assert text_of(nowhere) == "`select`: there is no `no` in `/`, an object with `issues`"


async def test_selection_applies_to_structured_content(tmp_path: Path) -> None:
    async with workbench_with(
        tmp_path, boxes(text("see the structured content " * 50, structuredContent={"a": ISSUES}))
    ) as seen:
        assert '"Issue 3"' in await read_on(seen, await head_of(seen), select="a[3].title")


async def test_a_large_selection_comes_in_pages(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(json.dumps(ISSUES)))) as seen:
        uri = await head_of(seen)
        pieces, start = [], 0
        while True:
            said = await read_on(seen, uri, select="[*].title", start=start, max_tokens=400)
            assert len(said.encode()) <= 1600
            _, piece = said.split("\n", 1)
            piece, _, more = piece.partition("\n(more: the same `select` with `start`: ")
            pieces.append(piece)
            if not more:
                break
            start = int(more.rstrip(")"))
        assert json.loads("".join(pieces)) == [issue["title"] for issue in ISSUES]


async def test_lines_are_read_by_number_and_say_how_to_go_on(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LINES))) as seen:
        uri = await head_of(seen)
        said = await read_on(seen, uri, lines="10-12")
        assert said.split("\n")[1:4] == ["10: line 10 fine", "11: line 11 fine", "12: line 12 fine"]
        assert said.endswith('(more: `lines`: "13-")')
        long = await read_on(seen, uri, lines="900-", max_tokens=300)
        follow = re.search(r'`lines`: "(\d+)-"', long)
        assert follow is not None
        assert f"\n{follow[1]}: line {follow[1]} " in await read_on(seen, uri, lines=f"{follow[1]}-")
        assert "1000: line 1000 fine" in await read_on(seen, uri, lines="1000")


async def test_lines_are_searched_with_context_and_in_pages(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LINES))) as seen:
        uri = await head_of(seen)
        said = await read_on(seen, uri, grep="error*broken")
        assert said.startswith("(20 matching lines)\n7: line 7 ERROR broken\n57: line 57 ERROR broken")
        assert "6: line 6 fine\n7: line 7 ERROR broken\n8: line 8 fine" in await read_on(
            seen, uri, grep="ERROR", around=1
        )
        few = await read_on(seen, uri, grep="fine", max_tokens=200)
        follow = re.search(r"the same `grep` with `start`: (\d+)\)", few)
        assert follow is not None
        assert f"\n{follow[1]}: line {follow[1]} fine" in await read_on(seen, uri, grep="fine", start=int(follow[1]))


async def test_the_text_is_read_page_by_page_to_its_end(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LINES))) as seen:
        uri = await head_of(seen)
        pieces, start = [], 0
        while True:
            said = await read_on(seen, uri, start=start, max_tokens=1000)
            piece, _, more = said.split("\n", 1)[1].partition("\n(more: `start`: ")
            pieces.append(piece)
            if not more:
                break
            start = int(more.rstrip(")"))
        assert "".join(pieces) == LINES


async def test_embedded_text_is_read_like_text(tmp_path: Path) -> None:
    block = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": LINES}}
    async with workbench_with(tmp_path, boxes({"content": [{"type": "text", "text": "the file:"}, block]})) as seen:
        uri = await head_of(seen)
        assert "7: line 6 fine" in await read_on(seen, uri, lines="7-7")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"select": "a[?"}, "`select`"),
        ({"select": "nothing"}, "this one is text"),
        ({"lines": "many"}, '"10-40"'),
        ({"lines": "1-²"}, '"10-40"'),
        ({"gerp": "x"}, "gerp"),
        ({"start": "x"}, "start"),
    ],
)
async def test_unreadable_result_explains_the_way_out(tmp_path: Path, arguments: Json, said: str) -> None:
    value = json.dumps(ISSUES) if arguments.get("select") == "a[?" else LINES
    async with workbench_with(tmp_path, boxes(text(value))) as seen:
        result = await seen.use(await head_of(seen), arguments)
        assert result["isError"] is True
        assert said in text_of(result)


# images and other binary


async def test_images_and_binary_are_linked_and_never_cut(tmp_path: Path) -> None:
    blob = {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "application/zip", "blob": "QQ==" * 500}}
    link = {"type": "resource_link", "uri": "file:///c", "name": "c", "size": 3}
    odd = {"type": "x-odd", "anything": [1]}
    audio = {"type": "audio", "data": "QQ==", "mimeType": "audio/wav"}
    whole = {"content": [{"type": "text", "text": "look:"}, IMAGE, blob, link, odd, audio]}
    async with workbench_with(tmp_path, boxes(whole)) as seen:
        result = await seen.use("dev/api/get", max_tokens=1000)
        uri = uri_in(result)
        assert "aW1hZ2U=" not in json.dumps(result)
        links = {each["uri"]: each for each in result["content"][1:]}
        assert list(links) == [uri, f"{uri}/1", f"{uri}/2", "file:///c", f"{uri}/4", f"{uri}/5"]
        assert links["file:///c"] == link
        assert [links[f"{uri}/{n}"]["mimeType"] for n in (1, 2, 5)] == ["image/png", "application/zip", "audio/wav"]
        (image,) = (await seen.client.request("resources/read", {"uri": f"{uri}/1"}))["contents"]
        assert image == {"uri": f"{uri}/1", "mimeType": "image/png", "blob": IMAGE["data"]}
        (zipped,) = (await seen.client.request("resources/read", {"uri": f"{uri}/2"}))["contents"]
        assert zipped == {"uri": f"{uri}/2", "mimeType": "application/zip", "blob": "QQ==" * 500}
        (rest,) = (await seen.client.request("resources/read", {"uri": f"{uri}/4"}))["contents"]
        assert json.loads(rest["text"]) == odd


async def test_the_whole_result_is_a_resource(tmp_path: Path) -> None:
    whole = text(LINES, structuredContent={"a": [1.5, None]}, unknown=1)
    async with workbench_with(tmp_path, boxes(whole)) as seen:
        uri = await head_of(seen)
        (contents,) = (await seen.client.request("resources/read", {"uri": uri}))["contents"]
        assert contents["mimeType"] == "application/json"
        assert json.loads(contents["text"]) == whole


@pytest.mark.parametrize("path", ["/9", "/x", "/-1", "/²", "x"])
async def test_an_unknown_part_of_a_kept_result_is_not_found(tmp_path: Path, path: str) -> None:
    async with workbench_with(tmp_path, boxes(text(LINES))) as seen:
        with pytest.raises(RpcError) as caught:
            await seen.client.request("resources/read", {"uri": await head_of(seen) + path})
        assert caught.value.code == -32002


async def test_a_result_that_is_not_kept_is_not_asked_of_a_server(tmp_path: Path) -> None:
    async with Bench(tmp_path).within({"box": {"server": ("--offers", "test")}}) as seen:
        await seen.open()
        with pytest.raises(RpcError, match="was not found"):
            await seen.client.request("resources/read", {"uri": "workbench://results/gone"})


async def test_of_a_huge_value_the_shape_is_not_told_but_it_can_be_selected_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_SHAPED_BYTES", 1000)
    async with workbench_with(tmp_path, boxes(text(json.dumps(ISSUES)))) as seen:
        result = await seen.use("dev/api/get", max_tokens=300)
        assert "Shape" not in text_of(result)
        assert '"Issue 3"' in await read_on(seen, uri_in(result), select="[3].title")


# bounds


async def test_results_are_private_to_the_caller(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes(text(LINES)), principal="alice") as seen:
        uri = await head_of(seen)
        async with MemoryClient.of(seen.gateway, "bob") as other:
            await other.initialize()
            result = await other.call_tool("use_tool", {"tool": uri, "arguments": {}})
            assert result["isError"] is True
            assert "line 1 " not in text_of(result)
            with pytest.raises(RpcError):
                await other.request("resources/read", {"uri": uri})
        async with MemoryClient.of(seen.gateway, "alice") as again:
            await again.initialize()
            assert "line 1 " in text_of(await again.call_tool("use_tool", {"tool": uri, "arguments": {}}))


def counting() -> Answer:
    calls = [0]

    def answer(name: str, arguments: Json) -> Json:
        calls[0] += 1
        return text(f"number {calls[0]} " * 1000)

    return answer


async def test_only_so_many_are_kept_and_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT_RESULTS", 3)
    async with workbench_with(tmp_path, {"dev": {"api": Server(tool("get"), answer=counting())}}) as seen:
        uris = [await head_of(seen) for _ in range(5)]
        answers = [(await seen.use(uri)).get("isError", False) for uri in uris]
        assert answers == [True, True, False, False, False]


async def test_only_so_many_bytes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT_RESULT_BYTES", 25_000)
    async with workbench_with(tmp_path, {"dev": {"api": Server(tool("get"), answer=counting())}}) as seen:
        uris = [await head_of(seen) for _ in range(4)]
        assert [(await seen.use(uri)).get("isError", False) for uri in uris] == [True, True, False, False]


@pytest.mark.parametrize(("limit", "most"), [("MAX_KEPT_RESULTS", 4), ("MAX_KEPT_RESULT_BYTES", 50_000)])
def test_user_with_the_most_kept_results_makes_room(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(kept, limit, most)
    results = kept.KeptResults()
    data = json.dumps(text("x " * 6_000)).encode()

    def keep(principal: str) -> tuple[View, str]:
        view = View(principal)
        return view, json.loads(shortened(results, view, data))["content"][1]["uri"]

    made = [keep(principal) for principal in ("alice", "bob", *["mallory"] * 6, "carol")]
    left = [view.principal for view, uri in made if results.resource(view, uri) is not None]
    assert left == ["alice", "bob", "mallory", "carol"]
    assert (len(results), results.kept_bytes) == (4, 4 * len(data))


async def test_a_result_that_is_too_large_to_be_kept_is_shortened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MAX_KEPT_RESULT_BYTES", 5_000)
    async with workbench_with(tmp_path, boxes(text(LINES))) as seen:
        result = await seen.use("dev/api/get", max_tokens=300)
        assert "too large to be kept" in text_of(result)
        assert len(text_of(result)) <= 1200
        assert [each["type"] for each in result["content"]] == ["text"]


async def test_results_are_kept_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(kept, "time", SimpleNamespace(monotonic=lambda: now[0]))
    results = kept.KeptResults()
    view = View("")
    head = json.loads(shortened(results, view, json.dumps(text(LINES)).encode()))
    uri = head["content"][1]["uri"]
    now[0] += kept.KEPT_RESULT_LIFETIME - 1
    assert results.resource(view, uri) is not None
    now[0] += 2
    assert results.resource(view, uri) is None
    assert (len(results), results.kept_bytes) == (0, 0)


async def test_large_results_are_shortened_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    work = kept.Shortening.work

    def watched(self: kept.Shortening) -> None:
        threads.append(threading.current_thread())
        work(self)

    monkeypatch.setattr(kept.Shortening, "work", watched)
    here = threading.current_thread()
    for size, is_here in ((10_000, True), (LARGE_TO_SHORTEN, False)):
        threads.clear()
        async with workbench_with(tmp_path, boxes(text("x\n" * size), resultBudget=300)) as seen:
            uri = uri_in(await seen.use("dev/api/get"))
            assert [thread is here for thread in threads] == [is_here]
            assert "1: x" in await read_on(seen, uri, lines="1-3")


def test_the_links_of_a_result_with_very_many_blocks_are_those_of_the_first() -> None:
    many = b'{"content":[' + b'{"type":"text","text":""},' * 200_000 + json.dumps(IMAGE).encode() + b"]}"
    few = many.replace(b'{"type":"text","text":""},' * 190_000, b"")
    for stored, links in ((many, 1), (few, 2)):
        head = json.loads(shortened(kept.KeptResults(), View(""), stored))
        assert [each["type"] for each in head["content"]] == ["text", *["resource_link"] * links]


def test_a_value_that_is_too_large_for_select_is_reported() -> None:
    stored = b'{"content":[],"structuredContent":[' + b"[]," * 500_000 + b"1]}"
    with pytest.raises(ValueError, match="this large"):
        kept._piece(stored, kept.ReadOn(select="0"), 300)


@pytest.mark.parametrize("size", [10_000, 2 * LARGE_TO_SHORTEN])
async def test_a_shortened_error_is_not_repeated_beside_itself(tmp_path: Path, size: int) -> None:
    own = text("no " * (size // 3), isError=True, _meta={"a": 1})
    async with workbench_with(tmp_path, boxes(own, resultBudget=500)) as seen:
        shown = await seen.use("dev/api/get")
        assert shown["isError"] is True and text_of(shown).startswith("[dev/api/get] Full result: ")
        assert shown["_meta"] == {"a": 1}
        assert own["content"][0]["text"][:100] in await read_on(seen, uri_in(shown))


def test_shortening_takes_memory_for_a_few_copies_alone() -> None:
    result = json.dumps(text("word " * (1 << 20))).encode()
    shortening = kept.Shortening(result, 500, "id", lambda id, data: None)
    # Modules that are loaded with the first one.
    kept.Shortening(result[-1000:], 500, "id", lambda id, data: None).work()
    tracemalloc.start()
    try:
        shortening.work()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shortening.finish() is not result
    assert peak < 2.5 * len(result)
