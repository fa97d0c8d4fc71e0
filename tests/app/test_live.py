"""A configuration that changes while it is in force: what is applied, what is rejected, and who is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.app.live import LiveConfig, summary
from mcp_workbench.engine.config.choose import ConfigSource
from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.file_watch import FileWatch, fingerprint
from tests.faces.harness import introduce
from tests.faces.memory import MemoryClient
from tests.support.in_process_workbench import ConnectedClient, Server, text_of, tool, workbench_with, write

Boxes = Mapping[str, Mapping[str, Server]]


def saying(text: str) -> Server:
    return Server(tool("get", "Gets."), answer=lambda name, given: {"content": [{"type": "text", "text": text}]})


class Edited:
    """A gateway that follows its file. The watch is not started: tests say when a file has been still."""

    def __init__(self, seen: ConnectedClient, folder: Path) -> None:
        self.seen = seen
        self.gateway = seen.gateway
        self.folder = folder
        self.file = Path(seen.gateway.config.path)
        self.live = LiveConfig(seen.gateway, ConfigSource(str(self.file), None, os.environ), FileWatch())

    async def save(self, boxes: Boxes, **settings: Any) -> None:
        write(self.folder, boxes, **settings)
        self.gateway.use(boxes)
        await self.live.reload()

    async def save_text(self, text: str) -> None:
        self.file.write_text(text)
        await self.live.reload()


@asynccontextmanager
async def edited(folder: Path, boxes: Boxes, **options: Any) -> AsyncIterator[Edited]:
    async with workbench_with(folder, boxes, options=options or None) as seen:
        editing = Edited(seen, folder)
        yield editing
        editing.live._watch.close()


async def test_a_valid_change_is_applied_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = saying("one"), saying("two")
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        with caplog.at_level(logging.INFO, "mcp_workbench.app.live"):
            await editing.save({"dev": {"one": one}, "ops": {"two": two}})
        assert text_of(await editing.seen.use("ops/two/get")).startswith("two")
        assert "toolboxes added ops; servers added ops/two" in caplog.text
        assert (editing.gateway.reloads.count, editing.gateway.reloads.rejected) == (1, None)


async def test_a_file_that_says_the_same_again_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = saying("one")
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        with caplog.at_level(logging.INFO, "mcp_workbench.app.live"):
            await editing.save_text(editing.file.read_text() + "\n\n")
        assert not caplog.records
        assert one.starts == 0


async def test_an_invalid_change_is_reported_once_and_not_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with edited(tmp_path, {"dev": {"one": saying("one")}}) as editing:
        valid = editing.file.read_text()
        with caplog.at_level(logging.ERROR, "mcp_workbench.app.live"):
            for _ in range(3):
                await editing.save_text('{"toolboxes": {"dev": {"mcpServers": {"one": {"comand": 1}}}}, "budget": "x"}')
        (record,) = caplog.records
        # All of it at once: the key that is wrong, the one that is missing, and the value elsewhere in the file.
        assert "3 problems" in record.getMessage() and "`command`" in record.getMessage()
        assert editing.gateway.reloads.rejected is not None and "$.budget" in editing.gateway.reloads.rejected
        index = await editing.seen.said()
        assert index.startswith("Note: the configuration file has changed, and the change is not in force")
        assert "$.budget" in index and "dev" in index
        assert "not in force" in await editing.seen.said(toolbox_name="new")
        assert text_of(await editing.seen.use("dev/one/get")) == "one"
        await editing.save_text(valid)
        assert editing.gateway.reloads.rejected is None
        assert not (await editing.seen.said()).startswith("Note")


async def test_an_invalid_change_is_reported_once_for_all_clients_of_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = {"dev": {"one": saying("one")}}
    async with edited(tmp_path, boxes) as one, edited(tmp_path, boxes) as other:
        valid = one.file.read_text()
        reported: dict[str, str] = {}
        source = ConfigSource(str(one.file), None, os.environ)
        lives = [LiveConfig(each.gateway, source, FileWatch(), reported) for each in (one, other)]
        assert one.file == other.file
        with caplog.at_level(logging.ERROR, "mcp_workbench.app.live"):
            for text, count in (("{", 1), ("[", 2), (valid, 2), ("[", 3)):
                one.file.write_text(text)
                for live in (*lives, *lives):
                    await live.reload()
                assert len(caplog.records) == count
        assert (
            one.gateway.reloads.rejected is not None and one.gateway.reloads.rejected == other.gateway.reloads.rejected
        )


@pytest.mark.parametrize("what", ["deleted", "unreadable", "empty", "world-writable", "a folder"])
async def test_a_file_that_cannot_be_used_any_more_stays_in_force(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    if what == "unreadable" and os.geteuid() == 0:
        pytest.skip("root can read every file")
    async with edited(tmp_path, {"dev": {"one": saying("one")}}) as editing:
        match what:
            case "deleted":
                editing.file.unlink()
            case "unreadable":
                editing.file.chmod(0)
            case "empty":
                editing.file.write_text("")
            case "world-writable":
                editing.file.chmod(0o666)
            case _:
                editing.file.unlink()
                editing.file.mkdir()
        await editing.live.reload()
        assert text_of(await editing.seen.use("dev/one/get")) == "one"
        assert editing.gateway.reloads.rejected is not None
        assert "the previous one stays in effect" in caplog.text


async def test_a_file_changed_during_reading_is_applied_only_when_stable(tmp_path: Path) -> None:
    one = saying("one")
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        await editing.live.start()
        still = fingerprint([str(editing.file)])
        write(tmp_path, {"ops": {"two": saying("two")}})
        await editing.live.reload(still)
        assert editing.gateway.reloads.count == 0
        await editing.live.reload(fingerprint([str(editing.file)]))
        assert list(editing.gateway.catalog.toolboxes) == ["ops"]
        editing.live.close()


async def test_a_project_file_must_be_trusted_again_before_its_change_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp_workbench.engine.config import trust

    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name))
    own = home / "XDG_CONFIG_HOME" / "mcp-workbench"
    own.mkdir(parents=True)
    write(own, {"own": {"one": saying("own")}})
    monkeypatch.chdir(project)
    async with edited(project, {"dev": {"one": saying("one")}}) as editing:
        editing.file = project / "workbench-config.json"
        trust.trust(str(editing.file), editing.file.read_bytes())
        source = ConfigSource(None, None, os.environ)
        live = LiveConfig(editing.gateway, source, FileWatch())
        write(project, {"dev": {"two": saying("two")}})
        await live.reload()
        assert editing.gateway.reloads.rejected is not None and "trust" in editing.gateway.reloads.rejected
        assert list(editing.gateway.catalog.toolboxes["dev"]) == ["one"], "neither the change nor the other file"
        trust.trust(str(editing.file), editing.file.read_bytes())
        await live.reload()
        assert list(editing.gateway.catalog.toolboxes["dev"]) == ["two"]
        watched = source.files()
        assert str(editing.file) in watched and str(own / "workbench-config.json") in watched
        assert trust.record_of(str(editing.file)) in watched


async def test_the_next_result_says_which_toolboxes_are_new_and_which_are_gone(tmp_path: Path) -> None:
    one = saying("one")
    async with edited(tmp_path, {"dev": {"one": one}, "old": {"two": saying("two")}}) as editing:
        await editing.seen.open(toolbox_name="dev")
        await editing.save({"dev": {"one": one}, "fresh": {"two": saying("two")}})
        result = await editing.seen.use("dev/one/get")
        text = result["content"][-1]["text"]
        assert text == "Note: these toolboxes are new: fresh.\nNote: these toolboxes were removed: old."
        assert result["_meta"]["mcp-workbench/changed"] == ["old", "fresh"]
        assert len((await editing.seen.use("dev/one/get"))["content"]) == 1, "once"
        await editing.save({"dev": {"one": one}, "third": {"two": saying("two")}})
        assert "Also changed: fresh (removed), third (new)" in await editing.seen.said(
            toolbox_name="dev", detail="names"
        )


async def test_the_two_tools_change_only_when_the_name_of_a_toolbox_does(tmp_path: Path) -> None:
    one = saying("one")
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        client = editing.seen.client
        before = await client.request("tools/list")
        await editing.save({"dev": {"one": one, "two": saying("two")}}, descriptions={"dev": "Other words."})
        assert await client.request("tools/list") == before
        await editing.save({"ops": {"one": one}})
        await client.wait_notification("notifications/tools/list_changed")
        assert await client.request("tools/list") != before
        told = [each for each in client.notifications if each["method"] == "notifications/tools/list_changed"]
        assert len(told) == 1


@pytest.mark.parametrize("face", ["flat", "dynamic"])
async def test_a_client_is_notified_about_a_server_that_was_never_started(tmp_path: Path, face: str) -> None:
    one, two = saying("one"), saying("two")
    async with edited(tmp_path, {"dev": {"one": one}}, face=face) as editing:
        client = editing.seen.client
        if face == "dynamic":
            await client.call_tool("open_toolbox", {"toolbox_name": "dev"})
        assert not [each for each in await names_listed(client) if "two" in each]
        client.notifications.clear()
        await editing.save({"dev": {"one": one, "two": two}})
        await client.wait_notification("notifications/tools/list_changed")
        assert two.starts == 0, "it is started when somebody asks for it"
        assert [each for each in await names_listed(client) if "two" in each]


async def names_listed(client: MemoryClient) -> list[str]:
    return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


async def test_a_thousand_reloads_under_calls_lose_none_and_leave_nothing(tmp_path: Path) -> None:
    stays = saying("stays")
    async with edited(tmp_path, {"dev": {"stays": stays, "other": saying("other")}}) as editing:
        await editing.seen.open(toolbox_name="dev")
        over = asyncio.Event()
        answers: list[str] = []

        async def keep_calling() -> None:
            while not over.is_set():
                answers.append(text_of(await editing.seen.use("dev/stays/get")).partition("\n")[0])
                # Without a pause the loop has no idle moment, and each look at the file waits for its thread's turn.
                await asyncio.sleep(0.001)

        calling = [asyncio.create_task(keep_calling()) for _ in range(4)]
        tasks = len(asyncio.all_tasks())
        for number in range(1000):
            other = saying("other")
            other.settings = {"args": [str(number)]}
            await editing.save({"dev": {"stays": stays, "other": other}})
        over.set()
        await asyncio.gather(*calling)
        assert set(answers) == {"stays"} and len(answers) > 1000
        assert stays.starts == 1
        assert editing.gateway.reloads.count == 1000
        assert len(asyncio.all_tasks()) <= tasks
        assert len(list(editing.gateway.catalog.entries())) == 2
        assert len(editing.gateway.runtime.pool.connections()) <= 2


def test_a_long_difference_is_cut_down_to_a_line() -> None:
    from mcp_workbench.engine.catalog.replacement import Changes, Difference

    names = tuple(f"box-{number}" for number in range(8))
    told = summary(Difference(Changes(), Changes(added=names), ("budget",)))
    assert told == "toolboxes added box-0, box-1, box-2, box-3, box-4 and 3 more; settings: budget"


async def test_live_reload_closed_during_its_start_watches_nothing(tmp_path: Path) -> None:
    async with edited(tmp_path, {"dev": {"one": saying("one")}}) as editing:
        starting = asyncio.create_task(editing.live.start())
        await asyncio.sleep(0)
        editing.live.close()
        await starting
        assert editing.live._watched is None
        await editing.save({"ops": {"one": saying("one")}})
        assert list(editing.gateway.catalog.toolboxes) == ["dev"], "nobody is served by it any more"


async def test_a_disk_that_hangs_after_a_reload_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mcp_workbench.app.live.RELOAD_READ_TIMEOUT", 0.2)
    answers = threading.Event()
    async with edited(tmp_path, {"dev": {"one": saying("one")}}) as editing:
        monkeypatch.setattr(editing.live, "_files", answers.wait)
        await editing.save({"ops": {"one": saying("one")}})
        assert list(editing.gateway.catalog.toolboxes) == ["ops"], "it is in force all the same"
        assert "may go unnoticed" in caplog.text
        answers.set()


async def test_a_disk_that_was_slow_once_does_not_end_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow() -> None:
        raise TimeoutError

    one, other = saying("one"), str(tmp_path / "other")
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        live = editing.live
        await live.start()
        before = live._watched
        assert before is not None
        files = [str(editing.file), other]
        monkeypatch.setattr(live, "_files", lambda: files)
        with monkeypatch.context() as hanging:
            hanging.setattr(live, "_look", slow)
            await editing.save({"ops": {"one": one}})
        assert "may go unnoticed" in caplog.text
        assert live._watched is before, "what was watched still is"
        await editing.save({"ops": {"one": one}})
        assert live._watched.files == tuple(files)
        assert live._watch._watched == {live._watched}
        live.close()


async def test_a_start_that_comes_late_does_not_watch_beside_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, looking, go_on = saying("one"), asyncio.Event(), threading.Event()
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        live, loop = editing.live, asyncio.get_running_loop()
        look = live._look

        def slow() -> object:
            seen = look()
            loop.call_soon_threadsafe(looking.set)
            assert go_on.wait(60)
            return seen

        with monkeypatch.context() as hanging:
            hanging.setattr(live, "_look", slow)
            starting = asyncio.create_task(live.start())
            await looking.wait()
        await editing.save({"ops": {"one": one}})
        watched = live._watched
        go_on.set()
        await starting
        assert watched is not None and live._watched is watched
        assert live._watch._watched == {watched}
        live.close()


@pytest.mark.requirement("team.policy")
async def test_a_policy_with_a_mistake_leaves_the_one_that_was_in_force(tmp_path: Path) -> None:
    one = saying("one")
    denying = [{"tools": ["dev/one/get"], "then": "deny"}, {"then": "allow"}]
    async with edited(tmp_path, {"dev": {"one": one}}) as editing:
        await editing.save({"dev": {"one": one}}, policy=denying)
        assert "policy[0]" in text_of(await editing.seen.use("dev/one/get"))
        await editing.save({"dev": {"one": one}}, policy=[{"tools": ["dev/one/get"], "then": "alow"}])
        assert "$.policy[0].then" in (editing.gateway.reloads.rejected or "")
        assert "policy[0]" in text_of(await editing.seen.use("dev/one/get")), "the old one stays"
        await editing.save({"dev": {"one": one}}, policy=[{"then": "allow"}])
        assert text_of(await editing.seen.use("dev/one/get")).startswith("one")
        assert len(one.calls) == 1


@pytest.mark.requirement("team.policy")
@pytest.mark.parametrize("face", ["proxy", "auto"])
async def test_problems_of_a_hidden_toolbox_are_hidden_too(tmp_path: Path, face: FaceName) -> None:
    boxes = {"dev": {"one": saying("one")}, "quetzal": {"two": saying("two")}}
    everything = {kind: ["quetzal"] for kind in ("tools", "prompts", "resources")}
    policy = [{"who": ["bob"], **everything, "then": "hide"}, {"then": "allow"}]
    async with edited(tmp_path, boxes, face=face) as editing:
        await editing.save(boxes, policy=policy)
        # Before a role's face is made, and after.
        early, late = MemoryClient.of(editing.gateway, "bob"), MemoryClient.of(editing.gateway, "bob")
        async with early as bob:
            await introduce(bob, "legacy")
            await bob.call_tool("open_toolbox", {})
            await editing.save_text(editing.file.read_text().replace('"command"', '"comand"'))
            assert "quetzal" in (editing.gateway.reloads.rejected or "")
            async with late as again:
                await introduce(again, "legacy")
                for client in (bob, again):
                    index = text_of(await client.call_tool("open_toolbox", {}))
                    wrong = text_of(await client.call_tool("open_toolbox", {"toolbox_name": "new"}))
                    assert "not in force" in index and "not in force" in wrong
                    status = await client.request("resources/read", {"uri": "workbench://status"})
                    told = json.loads(status["contents"][0]["text"])["configuration"]
                    assert "not in force" in told["rejected"] and told["needsRestart"] == []
                    assert "quetzal" not in f"{index}{wrong}{status}"
        assert "quetzal" in await editing.seen.said()


async def test_the_status_tells_no_secrets_of_a_rejected_configuration(tmp_path: Path) -> None:
    async with edited(tmp_path, {"dev": {"one": saying("one")}}) as editing:
        editing.gateway.runtime.redactor.replace(editing, ("hunter22hunter22",))
        editing.gateway.reject("`hunter22hunter22` is no command", "no command")
        for told in (editing.gateway.status(), editing.gateway.readiness("")[1]):
            assert b"is no command" in told and b"hunter22" not in told
