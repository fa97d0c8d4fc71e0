"""Skills between the eras: the three methods of the extension reach the server of the skill, whatever it speaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.face.test_merged_skills import REFUNDS, boxes, every_era, failure, known
from tests.support.in_process_workbench import workbench_with


@pytest.mark.bridge("skills")
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@every_era
async def test_entry_content_and_directory_come_from_the_server_of_the_skill(
    tmp_path: Path, era: str, protocol: str
) -> None:
    every = boxes()
    for server in (*every["shop"].values(), *every["code"].values()):
        server.settings["protocol"] = protocol
    billing = every["shop"]["billing"]
    async with workbench_with(tmp_path, every, era=era) as seen:
        await known(seen)
        got = await seen.client.request("skills/get", {"uri": REFUNDS["uri"]})
        assert got["skill"] == REFUNDS
        if era == "modern":
            assert got["resultType"] == "complete" and "ttlMs" in got and "cacheScope" in got
        # A file that no list of resources has.
        await seen.client.request("resources/read", {"uri": "skill://acme/refunds/mails/email.md"})
        await seen.client.request("resources/read", {"uri": "docs://pdf/references/FORMS.md"})
        for directory in ("skill://acme/refunds/mails", "skill://acme"):
            inside = await seen.client.request("resources/directory/read", {"uri": directory})
            assert inside["resources"][0]["uri"].startswith(f"{directory}/")
        assert billing.asked == [
            ("skills/get", REFUNDS["uri"]),
            ("resources/read", "skill://acme/refunds/mails/email.md"),
            ("resources/directory/read", "skill://acme/refunds/mails"),
            ("resources/directory/read", "skill://acme"),
        ]
        assert every["code"]["docs"].asked == [("resources/read", "docs://pdf/references/FORMS.md")]
        assert (await failure(seen, "skills/get", uri="skill://nobody/SKILL.md")).code == -32602
        assert (await failure(seen, "resources/directory/read", uri="docs://pdf")).code == -32601
