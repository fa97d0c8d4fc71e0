"""Skills under the lock: the entry of a skill has the digests of its files, so a changed file is a changed entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

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
