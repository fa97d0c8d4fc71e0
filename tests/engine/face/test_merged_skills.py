"""Skills of servers: listed together, read from the right server, found by a search, hidden by a policy."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.faces.harness import ERAS
from tests.support.client import Json, RpcError
from tests.support.in_process_workbench import ConnectedClient, Server, tool, workbench_with

every_era = pytest.mark.parametrize("era", ERAS)
EXTENSION = "io.modelcontextprotocol/skills"


def skill(path: str, about: str, *files: str, scheme: str = "skill") -> Json:
    root = f"{scheme}://{path}"
    every = ["SKILL.md", *files]
    digests = [f"sha256:{hashlib.sha256(f'{path}/{each}'.encode()).hexdigest()}" for each in every]
    return {
        "uri": f"{root}/SKILL.md",
        "frontmatter": {"name": path.rpartition("/")[2], "description": about, "license": "Apache-2.0"},
        "resources": [
            {"uri": f"{root}/{each}", "digest": digest, "size": 7} for each, digest in zip(every, digests, strict=True)
        ],
        "own": {"nested": [1, 2.5]},
    }


REFUNDS = skill("acme/refunds", "Process refunds of customers by the rules of the company.", "mails/email.md")
REVIEW = skill("review", "Review a pull request.")
PDF = skill("pdf", "Fill and assemble PDF documents.", "references/FORMS.md", scheme="docs")


class Skilled(Server):
    """A server with these skills."""

    def __init__(self, *skills: Json, directories: bool = False, **settings: Any) -> None:
        super().__init__(tool("work"), **settings)
        self.skills = list(skills)
        settings_of = {"directoryRead": True} if directories else {}
        self.declared = {"resources": {}, "extensions": {EXTENSION: settings_of}}
        self.others = {"skills/get": self._get, "resources/directory/read": self._read}

    def _get(self, params: Json) -> Json:
        found = [each for each in self.skills if each["uri"] == params["uri"]]
        return {"skill": found[0]} if found else {"code": -32602, "message": f"no skill at {params['uri']}"}

    def _read(self, params: Json) -> Json:
        files = [each["uri"] for every in self.skills for each in every["resources"]]
        inside = {uri[len(params["uri"]) + 1 :].partition("/")[0] for uri in files if uri.startswith(params["uri"])}
        return {"resources": [{"uri": f"{params['uri']}/{name}", "name": name} for name in sorted(inside)]}


def boxes() -> dict[str, dict[str, Skilled | Server]]:
    return {
        "shop": {"billing": Skilled(REFUNDS, directories=True), "plain": Server(tool("other"))},
        "code": {"git": Skilled(REVIEW), "docs": Skilled(PDF)},
    }


async def known(seen: ConnectedClient, *names: str) -> None:
    for name in names or ("shop", "code"):
        await seen.open(toolbox_name=name)


async def failure(seen: ConnectedClient, method: str, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await seen.client.request(method, params)
    return caught.value


async def skills(seen: ConnectedClient) -> list[Json]:
    found: list[Json] = (await seen.client.request("skills/list", {}))["skills"]
    return found


@every_era
@pytest.mark.parametrize("face", ["proxy", "flat"])
async def test_skills_of_all_servers_are_one_list_as_they_came(tmp_path: Path, era: str, face: str) -> None:
    async with workbench_with(tmp_path, boxes(), era=era, face=face) as seen:
        if face == "proxy":
            await known(seen)
        result = await seen.client.request("skills/list", {})
        assert result["skills"] == [REFUNDS, REVIEW, PDF]
        if era == "modern":
            assert (result["resultType"], result["cacheScope"], result["ttlMs"]) == ("complete", "private", 0)


@every_era
async def test_two_servers_with_one_address_keep_their_skills_apart(tmp_path: Path, era: str) -> None:
    other = {**REFUNDS, "frontmatter": {**REFUNDS["frontmatter"], "description": "Something else."}}
    every = {"a": {"one": Skilled(REFUNDS, REVIEW)}, "b": {"two": Skilled(other, directories=True)}}
    async with workbench_with(tmp_path, every, era=era) as seen:
        await known(seen, "a", "b")
        first, review, second = await skills(seen)
        assert review == REVIEW
        prefixes = "workbench://resources/a/one/", "workbench://resources/b/two/"
        for shown, own, prefix in zip((first, second), (REFUNDS, other), prefixes, strict=True):
            files = [{**each, "uri": prefix + each["uri"]} for each in own["resources"]]
            assert shown == {**own, "uri": prefix + own["uri"], "resources": files}
            assert (await seen.client.request("skills/get", {"uri": shown["uri"]}))["skill"] == shown
            await seen.client.request("resources/read", {"uri": files[1]["uri"]})
        mails = prefixes[1] + "skill://acme/refunds/mails"
        inside = await seen.client.request("resources/directory/read", {"uri": mails})
        assert [each["uri"] for each in inside["resources"]] == [f"{mails}/email.md"]
        read = ("resources/read", "skill://acme/refunds/mails/email.md")
        assert every["a"]["one"].asked == [("skills/get", REFUNDS["uri"]), read]
        assert read in every["b"]["two"].asked
        # Neither is asked: the address alone does not say which is meant.
        error = await failure(seen, "skills/get", uri=REFUNDS["uri"])
        assert error.code == -32602
        assert error.data["servers"] == ["a/one", "b/two"]


@every_era
async def test_a_skill_that_is_not_listed_is_asked_for_at_the_only_server_with_skills(tmp_path: Path, era: str) -> None:
    every = {"a": {"one": Skilled(), "two": Server(tool("x"))}}
    one = every["a"]["one"]
    assert isinstance(one, Skilled)
    one.others["skills/get"] = lambda params: {"skill": REVIEW}
    every["a"]["two"].resources = [{"uri": "note://1", "name": "1"}]
    async with workbench_with(tmp_path, every, era=era) as seen:
        await known(seen, "a")
        assert await skills(seen) == []
        assert (await seen.client.request("skills/get", {"uri": REVIEW["uri"]}))["skill"] == REVIEW


@every_era
async def test_the_extension_is_declared_only_if_a_server_has_it(tmp_path: Path, era: str) -> None:
    without = {"a": {"one": Server(tool("x")), "two": Server(tool("y"))}}
    async with workbench_with(tmp_path, without, era=era) as seen:
        await known(seen, "a")
        assert (await failure(seen, "skills/list")).code == -32601
        assert (await failure(seen, "skills/get", uri="skill://a/SKILL.md")).code == -32601
    for every, declared in ((without, None), (boxes(), {"directoryRead": True})):
        async with workbench_with(tmp_path, every, era="modern", face="flat") as seen:
            found = (await seen.client.request("server/discover", {}))["capabilities"].get("extensions", {})
            assert found.get(EXTENSION) == declared


async def test_a_search_names_skills_with_their_address(tmp_path: Path) -> None:
    async with workbench_with(tmp_path, boxes()) as seen:
        await known(seen)
        result = await seen.open(query="process a refund")
        (found,) = result["structuredContent"]["skills"]
        assert (found["name"], found["uri"]) == ("refunds", REFUNDS["uri"])
        line = "skill: shop/billing/refunds: Process refunds of customers by the rules of the company."
        assert f"{line} ({REFUNDS['uri']})" in result["content"][0]["text"]
        assert "skill" not in str(await seen.open(query="work"))
    # After a restart nothing but what the answer needs is read, and no server is started.
    every = boxes()
    async with workbench_with(tmp_path, every) as seen:
        assert "skill: shop/billing/refunds" in await seen.said(query="process a refund")
        assert every["shop"]["billing"].starts == 0


async def test_hidden_items_are_in_no_list_entry_directory_or_search(tmp_path: Path) -> None:
    rules: list[Any] = [
        {"resources": ["shop/billing/skill://acme/refunds/mails/*", "code/git/skill://review/**"], "then": "hide"},
        {"resources": ["code/docs/docs://pdf/**"], "then": "deny"},
        {"then": "allow"},
    ]
    every = boxes()
    async with workbench_with(tmp_path, every, policy=rules) as seen:
        await known(seen)
        shown = {**REFUNDS, "resources": REFUNDS["resources"][:1]}
        assert await skills(seen) == [shown, PDF]
        assert (await seen.client.request("skills/get", {"uri": REFUNDS["uri"]}))["skill"] == shown
        directory = "skill://acme/refunds/mails"
        assert (await seen.client.request("resources/directory/read", {"uri": directory}))["resources"] == []
        assert (await failure(seen, "skills/get", uri=REVIEW["uri"])).code == -32602
        assert (await failure(seen, "skills/get", uri=PDF["uri"])).data == {"rule": "policy[1]"}
        assert "skill:" not in await seen.said(query="review a pull request")
        assert every["code"]["git"].asked == every["code"]["docs"].asked == []


def _answer(result: Json, params: Json) -> Json:
    return result


@every_era
async def test_unreadable_items_are_hidden_all_the_same(tmp_path: Path, era: str) -> None:
    """An item without an address, or one that is none, does not show what is beside it."""
    rules: list[Any] = [{"resources": ["shop/billing/skill://acme/secret/**"], "then": "hide"}, {"then": "allow"}]
    secret = {"uri": "skill://acme/secret/x.md", "digest": "sha256:0"}
    file = REFUNDS["resources"][0]
    odds: list[Any] = [{"name": "odd"}, {"uri": 7}, "odd"]
    for odd in odds:
        billing = Skilled({**REFUNDS, "resources": [file, secret, odd]}, directories=True)
        listed: Json = {"resources": [secret, odd, file]}
        billing.others["resources/directory/read"] = partial(_answer, listed)
        async with workbench_with(tmp_path, {"shop": {"billing": billing}}, era=era, policy=rules) as seen:
            await known(seen, "shop")
            assert await skills(seen) == [{**REFUNDS, "resources": [file]}]
            got = await seen.client.request("skills/get", {"uri": REFUNDS["uri"]})
            assert got["skill"] == {**REFUNDS, "resources": [file]}
            inside = await seen.client.request("resources/directory/read", {"uri": "skill://acme/refunds"})
            assert inside["resources"] == [file]
            billing.others["skills/get"] = lambda params: {"skill": [secret]}
            billing.others["resources/directory/read"] = lambda params: {"resources": {"secret": secret}}
            for method, uri in (("skills/get", REFUNDS["uri"]), ("resources/directory/read", "skill://acme/refunds")):
                assert "secret" not in str(await seen.client.request(method, {"uri": uri}))
