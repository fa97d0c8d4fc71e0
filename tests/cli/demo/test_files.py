"""The demo server `files`: what lies in the folder is shown, and nothing outside it."""

from __future__ import annotations

from pathlib import Path

import mcp_types as types
import pytest

from tests.cli.demo.sdk import ERAS, command, connect
from tests.support.client import RawClient

both_eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shown = tmp_path / "shown"
    (shown / "sub").mkdir(parents=True)
    (shown / "a.txt").write_text("one\ntwo\nthree\n")
    (shown / "sub" / "b.md").write_text("Two again\n")
    (shown / "image.bin").write_bytes(b"\xff\xfe two")
    secret = tmp_path / "secret.txt"
    secret.write_text("two secrets")
    (shown / "link.txt").symlink_to(secret)
    return shown


def _text(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@both_eras
async def test_files_are_listed_read_and_searched(era: str, folder: Path) -> None:
    async with connect("files", folder, era=era) as client:
        listing = (await client.call_tool("list_files", {})).structured_content
        assert listing is not None and listing["complete"]
        assert [file["path"] for file in listing["files"]] == ["a.txt", "image.bin", "sub/b.md"]
        filtered = (await client.call_tool("list_files", {"folder": "sub", "pattern": "*.md"})).structured_content
        assert filtered == {"files": [{"path": "sub/b.md", "bytes": 10}], "complete": True}
        assert _text(await client.call_tool("read_file", {"path": "a.txt"})) == "one\ntwo\nthree\n"
        part = _text(await client.call_tool("read_file", {"path": "a.txt", "first_line": 2, "lines": 1}))
        assert part == "two\n\n[1 more lines; go on with first_line 3]"
        matches = (await client.call_tool("search_files", {"text": "TWO"})).structured_content
        assert matches is not None
        assert [(match["path"], match["line"]) for match in matches["matches"]] == [("a.txt", 2), ("sub/b.md", 1)]


@both_eras
@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "sub/../../secret.txt", "absolute", "a\0b", "missing"])
async def test_nothing_outside_the_folder_is_read(era: str, folder: Path, path: str) -> None:
    path = str(folder.parent / "secret.txt") if path == "absolute" else path
    async with connect("files", folder, era=era) as client:
        result = await client.call_tool("read_file", {"path": path})
        assert result.is_error
        assert _text(result) == f"there is no `{path}` in this folder"


@both_eras
async def test_reading_a_binary_file_or_a_folder_is_a_tool_error(era: str, folder: Path) -> None:
    async with connect("files", folder, era=era) as client:
        for path in ("image.bin", "sub"):
            result = await client.call_tool("read_file", {"path": path})
            assert result.is_error and f"`{path}`" in _text(result)


async def test_a_folder_that_is_none_ends_the_server_with_a_reason(folder: Path) -> None:
    async with RawClient.spawn(command("files", folder / "a.txt")) as client:
        assert await client.wait_exit() == 2
        await client.wait_for(lambda: "is not a folder" in client.stderr, "reason on stderr")
