"""Skills under the lock: the entry of a skill has the digests of its files, so a changed file is a changed entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import decode, encode

from mcp_workbench.team.lock.lock_file import definition_hash, written
from tests.engine.face.test_merged_skills import REFUNDS, REVIEW, Skilled
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import ConnectedClient, workbench_with
from tests.team.lock.test_definition_lock import lock_of


def changed(skill: Json) -> Json:
    """One of its files has another digest."""
    *others, last = skill["resources"]
    return {**skill, "resources": [*others, {**last, "digest": f"sha256:{'0' * 64}"}]}


async def lock(folder: Path, server: Skilled) -> None:
    async with workbench_with(folder, {"box": {"server": server}}) as seen:
        await seen.open(toolbox_name="box")
        (folder / "workbench.lock").write_bytes(written(lock_of(seen)))


def serve_files(server: Skilled, **instead: Json) -> None:
    """Have the server answer with what its digests are of, or with `instead` for a file of this name."""

    def read(params: Json) -> Json:
        uri = params["uri"]
        own = instead.get(uri.rpartition("/")[2].partition(".")[0], {"text": uri.removeprefix("skill://")})
        return {"contents": [{"uri": uri, **own}]}

    server.others["resources/read"] = read


async def refused(seen: ConnectedClient, method: str, uri: str) -> str:
    with pytest.raises(RpcError) as caught:
        await seen.client.request(method, {"uri": uri})
    assert caught.value.code == -32602
    return str(caught.value)


async def test_a_skill_is_locked_with_all_its_files(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, {"box": {"server": Skilled(REFUNDS)}}) as seen:
        await seen.open(toolbox_name="box")
        found = lock_of(seen).toolboxes["box"]["server"].skills
    assert list(found) == [REFUNDS["uri"]]
    assert definition_hash(_raw(changed(REFUNDS))) != found[REFUNDS["uri"]] == definition_hash(_raw(REFUNDS))


def _raw(value: Any) -> Raw:
    return Raw(encode(value))


async def test_a_changed_skill_is_neither_listed_nor_read(tmp_path: Path) -> None:
    server = Skilled(REFUNDS, REVIEW, directories=True)
    await lock(tmp_path, server)
    server.skills = [changed(REFUNDS), REVIEW]
    file, directory = "skill://acme/refunds/mails/email.md", "skill://acme/refunds/mails"
    # Its files are listed as resources as well.
    server.resources = [{"uri": file, "name": "email.md"}]
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="enforce") as seen:
        # Which waits until the server has listed what it offers now.
        await seen.use("box/server/work")
        assert (await seen.client.request("skills/list", {}))["skills"] == [REVIEW]
        assert "skill:" not in await seen.said(query="process a refund")
        server.asked.clear()
        for method, uri in (
            ("skills/get", REFUNDS["uri"]),
            ("resources/read", REFUNDS["uri"]),
            ("resources/read", file),
            ("resources/directory/read", directory),
        ):
            assert "it has changed since it was locked" in await refused(seen, method, uri), method
        # One that the server does not list was never reviewed.
        assert "it is not in the lock file" in await refused(seen, "skills/get", "skill://new/SKILL.md")
        assert server.asked == []
        serve_files(server)
        await seen.client.request("skills/get", {"uri": REVIEW["uri"]})
        await seen.client.request("resources/read", {"uri": REVIEW["uri"]})
        assert [method for method, _ in server.asked] == ["skills/get", "resources/read"]


async def test_without_enforcing_a_changed_skill_is_only_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    server.skills = [changed(REFUNDS)]
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="warn") as seen:
        await seen.open(toolbox_name="box")
        await seen.client.request("resources/read", {"uri": REFUNDS["uri"]})
    assert f"skill `{REFUNDS['uri']}` (changed)" in caplog.text


async def test_a_skill_that_is_got_otherwise_than_listed_is_withheld(tmp_path: Path) -> None:
    server = Skilled(REFUNDS, REVIEW)
    await lock(tmp_path, server)
    server.others["skills/get"] = lambda params: {"skill": changed(REFUNDS)}
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="enforce") as seen:
        await seen.use("box/server/work")
        text = await refused(seen, "skills/get", REFUNDS["uri"])
        assert "is withheld" in text and "not what its server lists" in text
        server.others["skills/get"] = lambda params: {"skill": dict(reversed(REFUNDS.items()))}
        assert (await seen.client.request("skills/get", {"uri": REFUNDS["uri"]}))["skill"] == REFUNDS


@pytest.mark.parametrize(
    "content",
    [
        {"text": "Do something else."},
        {"blob": "RG8gc29tZXRoaW5nIGVsc2Uu"},
        {"blob": "not base64!"},
        {"text": "Do something else.", "uri": "skill://acme/refunds/elsewhere.md"},
        {"text": "acme/refunds/mails/email.md", "blob": "RG8gc29tZXRoaW5nIGVsc2Uu"},
        {"text": "x" * 1_000_000},
        {},
    ],
)
async def test_file_that_differs_from_its_locked_entry_is_withheld(tmp_path: Path, content: Json) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    file = "skill://acme/refunds/mails/email.md"
    serve_files(server, email=content)
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="enforce") as seen:
        await seen.use("box/server/work")
        assert "not what its digest says" in await refused(seen, "resources/read", file)
        for same in ({"text": "acme/refunds/mails/email.md"}, {"blob": "YWNtZS9yZWZ1bmRzL21haWxzL2VtYWlsLm1k"}):
            serve_files(server, email=same)
            result = await seen.client.request("resources/read", {"uri": file})
            assert result["contents"] == [{"uri": file, **same}]


async def test_a_file_that_the_locked_entry_does_not_name_is_withheld(tmp_path: Path) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    serve_files(server)
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="enforce") as seen:
        await seen.use("box/server/work")
        server.asked.clear()
        text = await refused(seen, "resources/read", "skill://acme/refunds/extra.md")
        assert f"its skill `{REFUNDS['uri']}` does not list it" in text
        assert server.asked == []


async def test_a_withheld_answer_is_recorded_as_denied(tmp_path: Path) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    audit = tmp_path / "audit.jsonl"
    async with workbench_with(
        tmp_path, {"box": {"server": server}}, lock="enforce", audit={"file": str(audit)}
    ) as seen:
        await seen.use("box/server/work")
        await refused(seen, "resources/read", REFUNDS["uri"])
    lines = [decode(line) for line in audit.read_bytes().splitlines()]
    (line,) = [each for each in lines if each.get("method") == "resources/read"]
    assert (line["decision"], line["rule"]) == ("denied", "lock")


async def test_content_that_differs_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="enforce") as seen:
        await seen.use("box/server/work")
        for _ in range(2):
            await refused(seen, "resources/read", REFUNDS["uri"])
    assert caplog.text.count("not what its digest says") == 1


async def test_without_enforcing_the_content_of_files_is_for_the_client_to_check(tmp_path: Path) -> None:
    server = Skilled(REFUNDS)
    await lock(tmp_path, server)
    async with workbench_with(tmp_path, {"box": {"server": server}}, lock="warn") as seen:
        await seen.open(toolbox_name="box")
        assert (await seen.client.request("resources/read", {"uri": REFUNDS["uri"]}))["contents"]
