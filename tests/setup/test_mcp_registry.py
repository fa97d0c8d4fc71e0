"""The MCP registry as it answers (`recorded_registry`, pages in the shape of its API), over HTTP, as a folder and as a
file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from mcp_workbench.errors import DownstreamError
from mcp_workbench.setup import mcp_registry
from mcp_workbench.setup.clients.server_json import described
from mcp_workbench.setup.mcp_registry import fetched, found

pytestmark = pytest.mark.processes
RECORDED = Path(__file__).parent / "recorded_registry"
PAGES = [json.loads((RECORDED / f"servers-{number}.json").read_bytes()) for number in (1, 2)]
HISTORY, BLAME, GITEA = (
    "io.github.example-one/git-history",
    "io.github.example-two/git-blame",
    "io.github.example-three/gitea",
)


class Answering(BaseHTTPRequestHandler):
    """Answers with the recorded pages under one version of the API."""

    version = "v0.1"
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        answer = None
        if address.path == f"/{self.version}/servers":
            answer = PAGES[query.get("cursor") == [PAGES[0]["metadata"]["nextCursor"]]]
        elif address.path.startswith(f"/{self.version}/servers/"):
            name = unquote(address.path.split("/")[3])
            every = [each for page in PAGES for each in page["servers"]]
            answer = next((each for each in every if each["server"]["name"] == name), None)
        self.send_response(200 if answer else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer or {"error": "Server not found"}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def answering() -> type[Answering]:
    return type("Own", (Answering,), {"asked": []})


@pytest.fixture
def address(answering: type[Answering]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def one_file(tmp_path: Path) -> str:
    (tmp_path / "all.json").write_text(json.dumps({"servers": [each for page in PAGES for each in page["servers"]]}))
    return str(tmp_path / "all.json")


@pytest.fixture(params=["address", "folder", "file"])
def registry(request: pytest.FixtureRequest, one_file: str) -> str:
    if request.param == "address":
        address: str = request.getfixturevalue("address")
        return address
    return str(RECORDED) if request.param == "folder" else one_file


def test_every_page_is_read_and_deleted_entries_are_omitted(registry: str) -> None:
    candidates, has_more = found(registry, "git")
    assert [each.name for each in candidates] == [HISTORY, BLAME, GITEA] and not has_more
    assert candidates[0].publisher == "io.github.example-one"
    assert candidates[1].description == "deprecated: use git-history; Who wrote which line"


def test_downloads_are_those_of_the_registry_not_of_a_publisher(tmp_path: Path) -> None:
    assert [each.downloads for each in found(str(RECORDED), "git")[0]] == ["", "", ""]
    counted = {"server": {"name": "a/b"}, "_meta": {"com.example.mirror/custom": {"download_count": 12345}}}
    (tmp_path / "counted.json").write_text(json.dumps(counted))
    assert [each.downloads for each in found(str(tmp_path), "b")[0]] == ["12,345"]


def test_a_server_is_found_by_its_name_in_any_of_them(registry: str) -> None:
    (way,) = described(fetched(registry, HISTORY), "registry").ways
    assert way.entry({}) == {"command": "npx", "args": ["-y", "--", "@example-one/git-history@1.4.0"]}
    with pytest.raises(DownstreamError, match=r"has no server `io.github.example-one/git-hist`; did you mean"):
        fetched(registry, "io.github.example-one/git-hist")


def test_more_than_anybody_reads_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_registry, "MAX_REGISTRY_CANDIDATES", 2)
    candidates, has_more = found(address, "git")
    assert [each.name for each in candidates] == [HISTORY, BLAME] and has_more


def test_a_cursor_that_never_ends_does(
    address: str, answering: type[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PAGES[1], "metadata", PAGES[0]["metadata"])
    assert len(found(address, "git")[0]) == 3 and len(answering.asked) == 2


def test_an_older_mirror_has_another_version_of_the_api(address: str, answering: type[Answering]) -> None:
    answering.version = "v0"
    assert len(found(address, "git")[0]) == 3 and fetched(address, GITEA)
    answering.asked.clear()
    assert fetched(f"{address}/v0/", GITEA) and len(answering.asked) == 1


def test_of_several_recorded_versions_the_latest_counts(tmp_path: Path) -> None:
    official = "io.modelcontextprotocol.registry/official"
    for number, latest in (("1", False), ("2", True), ("3", False)):
        entry = {"server": {"name": "a/b", "version": number}, "_meta": {official: {"isLatest": latest}}}
        (tmp_path / f"{number}.json").write_text(json.dumps(entry))
    assert json.loads(fetched(str(tmp_path), "a/b"))["server"]["version"] == "2"


@pytest.mark.parametrize("content", ["{", "[]", '"x"', '{"servers": [3]}', '{"servers": 3}', '{"server": []}'])
def test_a_file_that_holds_something_else_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    for ask in (found, fetched):
        if content != "[]" or ask is found:
            with pytest.raises(DownstreamError, match=r"did not answer with servers|has no server"):
                ask(str(tmp_path / "x.json"), "x")
    with pytest.raises(DownstreamError, match=r"missing.json` cannot be read: No such file"):
        found(str(tmp_path / "missing.json"), "x")
