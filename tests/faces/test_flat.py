"""The face `flat`: every tool of every server in one list, looked up by its whole name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mcp_workbench.engine.catalog.names import build
from mcp_workbench.engine.face import base
from tests.faces.harness import ERAS, Bench, Seen
from tests.support.client import Json, RpcError
from tests.support.processes import eventually

every_client = pytest.mark.parametrize("era", ERAS)


async def tools(seen: Seen) -> dict[str, Json]:
    return {tool["name"]: tool for tool in (await seen.client.request("tools/list"))["tools"]}


async def failure(seen: Seen, name: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await seen.client.request("tools/call", {"name": name, "arguments": {}})
    return caught.value


def named(*names: str, **settings: Any) -> tuple[Any, ...]:
    """A server with these tools, which all echo."""
    return ("--tool-names", ",".join(names), settings)


# Names


@pytest.mark.requirement("flat.names", "flat.default")
@every_client
async def test_a_plain_file_shows_tools_as_server_and_tool(bench: Bench, era: str) -> None:
    boxes = {"default": {"git": named("show", "diff"), "files": named("read")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        assert list(await tools(seen)) == ["git:show", "git:diff", "files:read"]
        result = await seen.client.call_tool("git:show", {"n": 1})
        assert result["structuredContent"] == {"n": 1}


@pytest.mark.requirement("flat.names")
@every_client
async def test_toolboxes_come_before_servers(bench: Bench, era: str) -> None:
    boxes = {"dev": {"git": named("show")}, "ops": {"git": named("show")}}
    async with bench.within(boxes, "flat", era, options={"separator": "__"}) as seen:
        assert list(await tools(seen)) == ["dev__git__show", "ops__git__show"]
        assert (await seen.client.call_tool("ops__git__show", {"n": 2}))["structuredContent"] == {"n": 2}


@pytest.mark.requirement("flat.default")
@pytest.mark.parametrize(
    ("plain", "settings", "expected"),
    [
        (True, {}, ["server:echo"]),
        (False, {}, ["open_toolbox", "use_tool"]),
        (False, {"face": "flat"}, ["box:server:echo"]),
        (True, {"face": "proxy"}, ["open_toolbox", "use_tool"]),
        (True, {"face": "dynamic"}, ["open_toolbox"]),
    ],
)
async def test_the_file_decides_which_face_is_shown(
    bench: Bench, plain: bool, settings: Json, expected: list[str]
) -> None:
    async with bench.within({"box": {"server": named("echo")}}, None, plain=plain, settings=settings) as seen:
        assert list(await tools(seen)) == expected


@pytest.mark.requirement("flat.separator")
@pytest.mark.parametrize("separator", [":", "__", "::", "→", "日本", "-", "/", ".", "\\", '"', "%", "ab", "0"])
async def test_any_characters_separate(bench: Bench, separator: str) -> None:
    boxes = {"default": {"srv": named("tool", f"odd{separator}tool"), f"odd{separator[:1]}srv": named("tool")}}
    async with bench.within(boxes, "flat", plain=True, options={"separator": separator}) as seen:
        names = [f"srv{separator}tool", f"srv{separator}odd{separator}tool", f"odd{separator[:1]}srv{separator}tool"]
        assert list(await tools(seen)) == names
        for name in names:
            assert (await seen.client.call_tool(name, {"n": name}))["structuredContent"] == {"n": name}


# Calls that go nowhere


@pytest.mark.requirement("flat.malformed")
@every_client
@pytest.mark.parametrize("separator", [":", "__"])
async def test_a_name_without_its_parts_is_malformed_and_told_the_form(bench: Bench, era: str, separator: str) -> None:
    for plain, form in ((True, "{server}{s}{tool}"), (False, "{toolbox}{s}{server}{s}{tool}")):
        boxes = {"box": {"server": named("echo")}}
        async with bench.within(boxes, "flat", era, plain=plain, options={"separator": separator}) as seen:
            for name in ("echo", f"{separator}echo", f"server{separator}", separator, "", "x" * 8_000):
                error = await failure(seen, name)
                assert error.code == -32600
                assert f"`{form.replace('{s}', separator)}`" in error.message
                assert len(error.message) < 1000
            assert seen.gateway.started == [], "nothing is started for what cannot be a tool"
            assert (await failure(seen, 5)).code == -32602


@pytest.mark.requirement("flat.unknown")
@every_client
async def test_an_unknown_tool_is_a_method_not_found_with_the_nearest_names(bench: Bench, era: str) -> None:
    boxes = {"default": {"files": named("read_file", "write_file"), "git": named("show")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        await tools(seen)
        for wrong, right in (
            ("files:readfile", "`files:read_file`"),
            ("file:read_file", "`files:read_file`"),
            ("nowhere:x", "`git:show`"),
        ):
            error = await failure(seen, wrong)
            assert error.code == -32601
            assert wrong in error.message and right in error.message


@pytest.mark.requirement("flat.lookup", "config.names")
@every_client
@pytest.mark.parametrize("separator", [":", "__"])
async def test_a_server_may_have_two_underscores_in_its_name(bench: Bench, era: str, separator: str) -> None:
    boxes = {"default": {"a": named("x"), "a__b": named("c", "_d"), "_e": named("f")}}
    async with bench.within(boxes, "flat", era, plain=True, options={"separator": separator}) as seen:
        shown = [f"a{separator}x", f"a__b{separator}c", f"a__b{separator}_d", f"_e{separator}f"]
        assert list(await tools(seen)) == shown
        for name, own in zip(shown, ("x", "c", "_d", "f"), strict=True):
            assert (await seen.client.call_tool(name))["_meta"]["example.test/echo"] == own
        assert (await failure(seen, f"a__b{separator}nothing")).code == -32601
        assert (await failure(seen, "nothing")).code == -32600


@pytest.mark.requirement("flat.lookup")
@every_client
async def test_a_call_needs_no_list_before_it(bench: Bench, era: str) -> None:
    """Names that begin alike: whoever could have the tool is asked, and nobody else."""
    boxes = {"default": {"a": named("b:t", "x"), "a:b": named("u"), "other": named("t")}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        assert (await seen.client.call_tool("a:b:t", {"n": 1}))["structuredContent"] == {"n": 1}
        assert sorted(seen.gateway.started) == ["default/a", "default/a:b"]
        assert (await failure(seen, "a:b:nothing")).code == -32601
    async with bench.within(boxes, "flat", era, plain=True, options={"use_cache": False, "prefix": False}) as seen:
        assert (await seen.client.call_tool("t", {"n": 2}))["structuredContent"] == {"n": 2}
        assert (await failure(seen, "nothing")).code == -32601


@pytest.mark.requirement("flat.lookup")
async def test_a_server_that_fails_does_not_hide_the_one_that_has_the_tool(bench: Bench) -> None:
    boxes = {"default": {"a": named("b:t"), "a:b": ("--exit-at-start", 1)}}
    async with bench.within(boxes, "flat", plain=True) as seen:
        assert (await seen.client.call_tool("a:b:t", {"n": 1}))["structuredContent"] == {"n": 1}
        result = await seen.client.call_tool("a:b:u")
        assert result["isError"] is True
        # By its own name, not by the one that is shown.
        assert "[default/a:b/u] " in result["content"][0]["text"]
        assert "exited with status 1" in result["content"][0]["text"]


# Collisions


@pytest.mark.requirement("flat.collisions", "names.collisions")
@every_client
async def test_of_two_tools_that_would_get_the_same_name_the_first_has_it_and_it_is_reported(
    bench: Bench, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {"default": {"my": named("srv_tool", "fine"), "my_srv": named("tool")}}
    with caplog.at_level(logging.WARNING, "mcp_workbench"):
        async with bench.within(boxes, "flat", era, plain=True, options={"separator": "_"}) as seen:
            assert list(await tools(seen)) == ["my_srv_tool", "my_fine"]
            await seen.client.call_tool("my_srv_tool")
            await tools(seen)
            assert seen.gateway.face.remarks()[0] == (
                "`default/my_srv/tool` would be shown as `my_srv_tool`, which is `default/my/srv_tool`. Use `rename`, "
                "or another separator"
            )
    told = [record.getMessage() for record in caplog.records if "`my_srv_tool`" in record.getMessage()]
    assert told == seen.gateway.face.remarks()[:1], "once"


@pytest.mark.requirement("flat.collisions", "names.collisions")
@every_client
@pytest.mark.parametrize("prefix", [False, True])
async def test_existing_tool_keeps_its_name_when_another_server_claims_it(bench: Bench, era: str, prefix: bool) -> None:
    boxes = {"default": {"my": named("change_tools"), "my_srv": named("tool")}}
    taken = "srv_tool" if prefix else "tool"
    async with bench.within(boxes, "flat", era, plain=True, options={"separator": "_", "prefix": prefix}) as seen:
        shown = list(await tools(seen))
        holder = "my_srv_tool" if prefix else "tool"
        assert holder in shown
        await seen.client.call_tool("my_change_tools" if prefix else "change_tools", {"name": taken})
        await eventually(lambda: taken in seen.gateway.catalog.toolboxes["default"]["my"].tools, what="the new tool")
        assert list(await tools(seen)) == ([*shown] if prefix else ["change_tools", "my_tool", "tool"])
        before = seen.gateway.only_connection("default/my_srv").traffic.bytes_sent
        await seen.client.call_tool(holder)
        assert seen.gateway.only_connection("default/my_srv").traffic.bytes_sent > before


@pytest.mark.requirement("flat.collisions")
async def test_another_name_or_another_separator_resolves_a_collision(bench: Bench) -> None:
    boxes = {"default": {"my": named("srv_tool", rename={"srv_tool": "other"}), "my_srv": named("tool")}}
    async with bench.within(boxes, "flat", plain=True, options={"separator": "_"}) as seen:
        assert list(await tools(seen)) == ["my_other", "my_srv_tool"]


# Renaming and prefixes


@pytest.mark.requirement("flat.rename")
@every_client
async def test_a_renamed_tool_is_called_under_its_new_name_alone(bench: Bench, era: str) -> None:
    boxes = {"default": {"files": named("read_file", "write_file", rename={"read_file": "read"})}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        shown = await tools(seen)
        assert list(shown) == ["files:read", "files:write_file"]
        assert shown["files:read"]["title"] == "Read File", "only the name is another"
        result = await seen.client.call_tool("files:read", {"n": 1})
        assert result["_meta"]["example.test/echo"] == "read_file", "the server knows it by its own name"
        assert (await failure(seen, "files:read_file")).code == -32601


@pytest.mark.requirement("flat.rename", "flat.collisions")
async def test_a_new_name_that_is_taken_is_a_collision(bench: Bench) -> None:
    boxes = {"default": {"files": named("read", "fetch", "list", rename={"fetch": "read"})}}
    async with bench.within(boxes, "flat", plain=True) as seen:
        assert list(await tools(seen)) == ["files:read", "files:list"]
        assert "`default/files/fetch`" in seen.gateway.face.remarks()[0]


@pytest.mark.requirement("flat.no-prefix")
@every_client
async def test_without_prefixes_tools_keep_their_names_where_these_are_unique(bench: Bench, era: str) -> None:
    boxes = {"one": {"a": named("alone", "both", "renamed", rename={"renamed": "new"})}, "two": {"b": named("both")}}
    async with bench.within(boxes, "flat", era, options={"prefix": False}) as seen:
        assert list(await tools(seen)) == ["alone", "one:a:both", "new", "two:b:both"]
        for name in ("alone", "one:a:both", "two:b:both", "new"):
            assert (await seen.client.call_tool(name, {"n": name}))["structuredContent"] == {"n": name}
        # An app knows its tools by the names of its server.
        assert (await seen.client.call_tool("renamed", {"n": 1}))["structuredContent"] == {"n": 1}
        assert (await failure(seen, "both")).code == -32602
        assert (await failure(seen, "nothing")).code == -32601


@pytest.mark.requirement("flat.no-prefix")
async def test_one_server_without_prefix_looks_as_if_nothing_stood_before_it(bench: Bench) -> None:
    boxes = {"default": {"server": ("--offers", "test")}}
    async with bench.within(boxes, "flat", plain=True, options={"prefix": False}) as seen:
        assert {"echo", "fail"} <= set(await tools(seen))
        assert await seen.names("prompts/list") == ["greet", "ask_first"]
        got = await seen.client.request("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}})
        assert got["description"] == "Greets Ann."


@pytest.mark.requirement("prompts.names")
async def test_prompts_get_the_same_names_as_tools(bench: Bench) -> None:
    boxes = {"default": {"one": ("--offers", "one"), "two": ("--offers", "two")}}
    async with bench.within(boxes, "flat", plain=True, options={"separator": "→"}) as seen:
        await seen.open()
        names = [f"{server}→{prompt}" for server in ("one", "two") for prompt in ("greet", "ask_first")]
        assert await seen.names("prompts/list") == names
        got = await seen.client.request("prompts/get", {"name": "two→greet", "arguments": {"who": "Ann"}})
        assert got["messages"][1]["content"]["resource"]["uri"] == "two:///one"


# Names that clients refuse


@pytest.mark.requirement("flat.refused-names")
@pytest.mark.parametrize(
    ("boxes", "separator", "remedy"),
    [
        ({"git": named("show")}, ":", "use `--separator __`"),
        ({"git": named("a.b")}, "__", '`"rename"'),
        ({"git": named("x" * 80)}, ":", '`"rename"'),
        ({"git": named("show")}, "__", None),
    ],
)
async def test_names_that_clients_refuse_are_reported_once_with_a_hint(
    bench: Bench, caplog: pytest.LogCaptureFixture, boxes: Any, separator: str, remedy: str | None
) -> None:
    with caplog.at_level(logging.WARNING, "mcp_workbench"):
        async with bench.within({"default": boxes}, "flat", plain=True, options={"separator": separator}) as seen:
            (name,) = await tools(seen)
            await tools(seen)
            # Something changed: the names are worked out anew, and are the same.
            seen.gateway.catalog.take({})
            await tools(seen)
    told = [record.getMessage() for record in caplog.records if "refuse" in record.getMessage()]
    if remedy is None:
        assert told == []
    else:
        assert len(told) == 1
        assert f"`{name}`" in told[0] and remedy in told[0]
        assert seen.gateway.face.remarks() == told, "for those who ask, `check` among them"


@pytest.mark.requirement("flat.cost")
@every_client
async def test_names_are_worked_out_once_and_not_for_each_call(
    bench: Bench, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def counted(entries: Any, kind: str, *how: Any) -> Any:
        built.append(kind)
        return build(entries, kind, *how)

    monkeypatch.setattr(base, "build", counted)
    boxes = {"default": {f"server{number}": ("--tools", 50) for number in range(4)}}
    async with bench.within(boxes, "flat", era, plain=True) as seen:
        await tools(seen)
        built.clear()
        for number in range(20):
            await seen.client.call_tool(f"server{number % 4}:tool_{number + 1}")
        await tools(seen)
        assert built == []
