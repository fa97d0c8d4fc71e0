"""`find`, `prompt` and `resource`: what an agent gets, from a shell."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mcp_workbench.cli.flags import UsageError
from tests.cli.in_process import carried_out as run
from tests.support.workbench import scripted_entry, write_config


def demo(server: str, *arguments: str) -> dict[str, object]:
    return {"command": sys.executable, "args": ["-m", f"mcp_workbench.cli.demo.{server}", *arguments]}


NOTES = [sys.executable, "-m", "mcp_workbench.cli.demo.notes", "--with-samples"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    servers = {"notes": demo("notes", "--with-samples"), "clock": demo("clock")}
    return write_config(tmp_path, {"desk": servers, "odd": {"one": scripted_entry("--offers", "test")}})


@pytest.mark.requirement("cli.find")
def test_tools_are_found_by_their_purpose(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("find", "--config", config, "what", "time", "is", "it") == 0
    shown = capsys.readouterr().out
    assert "desk/clock/now" in shown and "(zone" not in shown
    assert run("find", "--config", config, "--as-agent", "what", "time", "is", "it") == 0
    assert "desk/clock/now(zone?: string)" in capsys.readouterr().out
    assert run("find", "--config", config, "--toolbox", "desk", "--limit", "1", "--json", "note") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["query"] == "note" and "desk/notes/" in answer["text"]
    assert run("find", "--config", config, "quantum", "zebra") == 1
    shown = capsys.readouterr().out
    assert shown == "Nothing matches. Try other words; mcp-workbench list shows all servers.\n"
    assert run("find", "--config", config, "--as-agent", "quantum", "zebra") == 1
    assert "- desk (" in capsys.readouterr().out


def test_advice_at_the_end_suits_its_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, {"desk": {"clock": demo("clock"), "notes": demo("notes")}})
    assert run("find", "--config", config, "delete") == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\n--as-agent also shows the arguments.\n")
    assert "open_toolbox" not in shown
    assert run("find", "--config", config, "--limit", "1", "note") == 0
    assert "1 of 4 matches; --limit N shows more. " in capsys.readouterr().out
    assert run("find", "--config", config, "--json", "delete") == 0
    assert json.loads(capsys.readouterr().out)["text"].endswith("`open_toolbox` with `tools`.")


def test_a_server_that_cannot_be_used_takes_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('one\\ntwo\\n' + 'three ' * 50)"]}
    config = write_config(tmp_path, {"desk": {"clock": demo("clock"), "noisy": noisy}})
    assert run("find", "--config", config, "time") == 0
    *found, reason, more = capsys.readouterr().out.splitlines()
    assert any(line.startswith("desk/clock/now") for line in found) and not any("noisy" in line for line in found)
    assert reason.startswith("Not available: noisy: ") and len(reason) <= 100
    assert more == "More about servers: mcp-workbench doctor"
    unset = {"url": "http://127.0.0.1:9", "headers": {"X": "${NOT_SET_ANYWHERE}"}}
    write_config(tmp_path, {"desk": {"clock": demo("clock"), "unset": unset}})
    assert run("find", "--config", config, "time") == 0
    assert "\nNot available: unset: the variable `NOT_SET_ANYWHERE` is not set\n" in capsys.readouterr().out


def test_words_are_words_and_never_a_command_or_an_address(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert run("find", "--config", config, "--", "touch", made, "note") == 0
    assert not made.exists() and "desk/notes/" in capsys.readouterr().out
    assert run("find", "--config", config, "http://127.0.0.1:9/mcp", "note") == 0
    assert "desk/notes/" in capsys.readouterr().out


def test_a_search_that_cannot_be_is_refused(config: Path) -> None:
    with pytest.raises(UsageError, match="toolbox `dsek` does not exist; did you mean `desk`"):
        run("find", "--config", config, "--toolbox", "dsek", "x")
    for limit in ("0", "x", "100000"):
        with pytest.raises(UsageError, match="--limit is a number from 1 to 1000"):
            run("find", "--config", config, "--limit", limit, "x")
    with pytest.raises(UsageError, match="WORDS is missing"):
        run("find", "--config", config)


@pytest.mark.requirement("cli.find")
def test_find_works_with_split_use_tool(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With split `use_tool` as without: searching reads."""
    written = json.loads(config.read_text())
    config.write_text(json.dumps({**written, "useTool": "split"}))
    assert run("find", "--config", config, "convert", "a", "time") == 0
    assert "desk/clock/convert_time" in capsys.readouterr().out
    # And a person calls what they typed, whatever agents are asked.
    assert run("call", "--config", config, "desk/notes/add_note", "title=x", "text=y") == 0


@pytest.mark.requirement("cli.prompt")
def test_prompts_are_listed_and_got(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prompt", "--config", config) == 0
    listed = capsys.readouterr().out
    assert "desk/notes/summarize_notes [tag=…]\n    Ask for a summary" in listed
    assert run("prompt", "--config", config, "--json") == 0
    assert "desk/notes/summarize_notes" in [each["name"] for each in json.loads(capsys.readouterr().out)]
    assert run("prompt", "--config", config, "desk/notes/summarize_notes", "tag=home") == 0
    assert capsys.readouterr().out.startswith("Summarize my notes")
    assert run("prompt", "--config", config, "--raw", "desk/notes/summarize_notes") == 0
    assert json.loads(capsys.readouterr().out)["messages"][0]["role"] == "user"


def test_a_prompt_that_cannot_be_got_is_refused(config: Path) -> None:
    with pytest.raises(UsageError, match="did you mean `desk/notes/summarize_notes`"):
        run("prompt", "--config", config, "desk/notes/sumarize_notes")
    with pytest.raises(UsageError, match="is not key=value"):
        run("prompt", "--config", config, "desk/notes/summarize_notes", "home")


@pytest.mark.requirement("cli.resource")
def test_resources_are_listed_and_read(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run("resource", "--config", config) == 0
    listed = capfdbinary.readouterr().out.decode()
    assert "notes:///index  desk/notes\n    All notes." in listed and "notes:///{id}" in listed
    assert run("resource", "--config", config, "--json") == 0
    assert "notes:///1" in [each.get("uri") for each in json.loads(capfdbinary.readouterr().out)]
    assert run("resource", "--config", config, "notes:///1") == 0
    assert capfdbinary.readouterr().out.startswith(b"# Groceries")
    assert run("resource", "--config", config, "--raw", "notes:///1") == 0
    assert json.loads(capfdbinary.readouterr().out)["contents"][0]["uri"] == "notes:///1"
    assert run("resource", "--config", config, "nobody:///x") == 1
    said = capfdbinary.readouterr()
    assert said.out == b"" and b"was not found" in said.err


def test_an_address_of_two_servers_is_read_from_the_one_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"notes": demo("notes", "--with-samples"), "copy": demo("notes", "--with-samples")}
    config = write_config(tmp_path, {"desk": servers, "lab": {"notes": demo("notes")}})
    assert run("resource", "--config", config) == 0
    assert "notes:///1  desk/notes, desk/copy\n" in capsys.readouterr().out
    assert run("resource", "--config", config, "notes:///1") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "is ambiguous" in said and "open the toolbox" not in said and "alone" not in said
    assert "hint: name the server before it: mcp-workbench call --resource desk/notes URI" in said
    for server in ("desk/notes", "desk/copy"):
        assert run("resource", "--config", config, server, "notes:///1") == 0
        assert capsys.readouterr().out.startswith("# Groceries")
    for words, complaint in (
        (
            ["notes", "notes:///1"],
            "`notes` is not a full path: `toolbox` is missing; it can be `desk/notes` or `lab/",
        ),
        (["copy", "notes:///1"], "`copy` is not a full path: `toolbox` is missing; it can be `desk/copy`"),
        (["desk/nots", "notes:///1"], "did you mean `desk/notes`"),
        (["desk/notes", "notes:///1", "more"], "unexpected argument `more`"),
    ):
        with pytest.raises(UsageError, match=complaint):
            run("resource", "--config", config, *words)


@pytest.mark.requirement("proxy.identity")
def test_a_prompt_without_its_toolbox_or_server_is_refused_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, {"desk": {"notes": demo("notes"), "copy": demo("notes")}})
    assert run("prompt", "--config", config) == 0
    capsys.readouterr()
    for name in ("summarize_notes", "notes/summarize_notes"):
        with pytest.raises(UsageError, match="is not a full path: it can be `desk/notes/summarize_notes`"):
            run("prompt", "--config", config, name, "tag=home")
    with pytest.raises(UsageError, match="prompt `nobody_has_it` does not exist"):
        run("prompt", "--config", config, "nobody_has_it")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", ["prompt", "resource"])
def test_that_there_is_nothing_to_list_is_reported(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path, {"desk": {"clock": demo("clock")}})
    assert run(kind, "--config", config) == 0
    assert capsys.readouterr() == ("", f"note: no server has {kind}s\n")


def test_a_resource_is_saved_where_that_is_asked_for(config: Path, tmp_path: Path) -> None:
    assert run("resource", "--config", config, "--output", tmp_path / "note.md", "notes:///1") == 0
    assert (tmp_path / "note.md").read_text().startswith("# Groceries")


def test_a_server_in_no_file_is_asked_by_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prompt", "--", *NOTES, "summarize_notes", "tag=home") == 0
    assert capsys.readouterr().out.startswith("Summarize my notes")
    assert run("resource", "--", *NOTES, "notes:///1") == 0
    assert capsys.readouterr().out.startswith("# Groceries")
    assert run("call", "--", *NOTES, "list_notes", "tag=home") == 0
    assert capsys.readouterr().out.startswith("- 1: Groceries")


def test_a_server_that_cannot_be_reached_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prompt", "--", "no-such-program", "x") == 1
    assert "command `no-such-program` was not found on PATH" in capsys.readouterr().err
    assert run("call", "http://127.0.0.1:9/mcp", "tool") == 1
    assert "127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["npx", "-y", "@scope/server"], ["uvx", "server", "zone=UTC"], ["docker", "run", "-i", "image"]]
)
def test_a_package_is_not_taken_for_a_forgotten_tool(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"starts no server: the last word, .* is taken as the name of what to use"):
        run("call", "--", *words)


def test_a_forgotten_tool_is_said_where_no_server_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("call", "--", sys.executable, "-c", "raise SystemExit(3)", "echo") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "the last word, `echo`, as the name of what to use" in said and "startupTimeout" not in said


@pytest.mark.parametrize(("command", "word"), [("call", "search"), ("prompt", "hello"), ("resource", "docs://x")])
def test_a_token_for_a_server_in_no_file_goes_into_a_header(
    command: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            assert run(command, f"http://127.0.0.1:{server.server_port}/mcp", word) == 1
        finally:
            server.shutdown()
            serving.join()
    said = " ".join(capsys.readouterr().err.split())
    assert "--header Authorization='Bearer …'" in said and "--config" not in said


@pytest.mark.parametrize(
    ("command", "name"), [("prompt", "desk/notes/summarize_notes"), ("resource", "notes:///index")]
)
@pytest.mark.parametrize(
    "answer", [b'{"messages": 5, "contents": 5}', b'{"messages": null}', b'{"contents": [%b]}' % (b"9" * 5_000)]
)
def test_an_answer_that_is_none_says_nothing(
    config: Path, command: str, name: str, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"mcp_workbench.cli.commands.{command}.result_of", lambda *_: (answer, 0))
    assert run(command, "--config", config, name) == 0


def test_a_server_in_no_file_has_to_be_named_whole(config: Path) -> None:
    for words in (["--", "x"], ["--", "a=b"]):
        with pytest.raises(UsageError, match="after `--` come the command of a server"):
            run("call", *words)
    with pytest.raises(UsageError, match="--header is for a server given by URL"):
        run("call", "--config", config, "--header", "A=b", "desk/clock/now")
    for secret in ("hunter2", "Bearer hunter2=", "=hunter2", ": hunter2"):
        with pytest.raises(UsageError, match=r"^--header takes NAME=VALUE$"):
            run("call", "--header", secret, "https://example.test/mcp", "x")
    with pytest.raises(UsageError, match="is not an address"):
        run("call", "http://", "x")
