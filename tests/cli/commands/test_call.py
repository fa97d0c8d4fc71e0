from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import run
from tests.cli.shell import Done, on_terminal
from tests.support.workbench import logged, scripted_entry, write_config

Json = dict[str, Any]


def demo(server: str, *arguments: str, **settings: Any) -> Json:
    return {"command": sys.executable, "args": ["-m", f"mcp_workbench.cli.demo.{server}", *arguments], **settings}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(
        tmp_path,
        {
            "desk": {"notes": demo("notes", "--with-samples"), "clock": demo("clock")},
            "lab": {
                "notes": demo("notes", toolFilters=["*", "!delete_note"]),
                "timer": demo("clock", "--with-crash"),
            },
            "odd": {
                "legacy": scripted_entry("--era", "legacy"),
                "modern": scripted_entry("--era", "modern"),
                "missing": {"command": "no-such-program"},
            },
        },
    )


def call(config: Path, *words: object, **options: Any) -> Done:
    return run("call", "--config", config, *words, **options)


@pytest.mark.requirement("cli.call")
def test_stdout_is_exactly_the_result_of_the_tool(config: Path) -> None:
    assert call(config, "lab", "timer", "wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
    assert call(config, "desk", "notes", "list_notes", "tag=home") == Done(
        0, "- 1: Groceries #home\n- 3: Book to read #home #books\n", ""
    )
    assert call(config, "lab", "notes", "list_notes") == Done(0, "No notes.\n", "")


def test_arguments_are_typed_by_the_tool_s_schema(config: Path) -> None:
    words = ("title=7", "text=true", "tags=1", "tags=[2]")
    assert call(config, "lab", "notes", "add_note", *words) == Done(0, "Added note 1: 7\n", "")
    assert call(config, "desk", "clock", "wait", "seconds=0").stdout == "Waited 0 s.\n"


def test_arguments_can_be_given_as_json_also_on_stdin(config: Path) -> None:
    arguments = '{"seconds": 0}'
    expected = Done(0, "Waited 0 s.\n", "")
    assert call(config, "lab", "timer", "wait", "--json", arguments) == expected
    assert call(config, "lab", "timer", "wait", "--json", "-", stdin=arguments) == expected
    assert call(config, "lab", "timer", "wait", "seconds:=0") == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dsek", "clock", "now"], "toolbox `dsek` does not exist; did you mean `desk`?"),
        (["desk", "clokc", "now"], "server `clokc` does not exist in toolbox `desk`; did you mean `clock`?"),
        (
            ["desk", "clock", "nwo"],
            "tool `nwo` does not exist on server `clock` of toolbox `desk`; did you mean `now`?",
        ),
        (
            ["lab", "notes", "delete_note", "id=1"],
            "tool `delete_note` on server `notes` of toolbox `lab` is excluded by `toolFilters` in the configuration",
        ),
        (["desk", "clock", "wait"], "missing: `seconds` (number)"),
        (["desk", "clock", "wait", "seconds=x"], "`seconds` must be of type number, found `x`"),
        (["desk", "clock", "now", "zon=UTC"], "the tool has no argument `zon`; did you mean `zone`?"),
        (["desk/clock/now", "Europe/Berlin"], "`Europe/Berlin` is not key=value"),
        (
            ["desk", "clock", "wait", "--json", '{"second": 1}'],
            "[desk/clock/wait] the arguments are invalid, so it was not called:",
        ),
        (["desk", "clock", "now", "--json", "[]"], "--json takes an object, found array"),
        (["desk", "clock", "now", "zone=UTC", "--json", "{}"], "`zone=UTC` and --json were both given"),
    ],
)
def test_impossible_call_ends_with_2_and_lists_alternatives(config: Path, words: list[str], message: str) -> None:
    status, shown, complaints = call(config, *words)
    assert (status, shown, complaints.splitlines()[0]) == (2, "", f"error: {message}")
    assert "\n\nhint: " in complaints


def test_an_error_of_the_tool_goes_to_stderr_with_its_place_and_ends_with_1(config: Path) -> None:
    assert call(config, "desk", "notes", "delete_note", "id=7") == Done(
        1, "", "error: [desk/notes/delete_note] there is no note 7; the notes are [1, 2, 3]\n"
    )
    assert call(config, "odd", "legacy", "fail") == Done(1, "", "error: [odd/legacy/fail] failed as asked\n")


def test_a_crash_is_reported_with_the_end_of_stderr(config: Path) -> None:
    assert call(config, "lab", "timer", "crash") == Done(
        1,
        "",
        "error: [lab/timer/crash] the server exited with status 70\n"
        "  last lines of its stderr:\n"
        "    clock: crashing because it was asked to\n",
    )


def test_a_server_that_does_not_start_is_an_error_of_the_server(config: Path) -> None:
    assert call(config, "odd", "missing", "anything") == Done(
        1,
        "",
        "error: [odd/missing] command `no-such-program` was not found on PATH\n\n"
        "hint: install it, or give its full path as `command`\n",
    )


def test_a_tool_that_wants_a_model_is_told_no_and_the_user_is_told_why(config: Path) -> None:
    status, shown, complaints = call(config, "odd", "modern", "sample")
    assert (status, shown) == (1, "")
    assert "written by its client's model (sampling)" in complaints and "terminal" not in complaints
    # This server takes the refusal as its result.
    assert "does not support" in call(config, "odd", "legacy", "sample").stdout


def test_a_call_that_needs_approval_is_not_referred_to_a_workbench_that_has_ended(tmp_path: Path) -> None:
    boxes = {"desk": {"clock": demo("clock")}}
    config = write_config(tmp_path, boxes, policy=[{"tools": ["**"], "then": "ask"}, {"then": "allow"}])
    status, shown, complaints = call(config, "desk", "clock", "now")
    assert (status, shown) == (1, "") and "mcp-workbench team approve" not in complaints
    assert "at a terminal, or through a running workbench (`mcp-workbench up`)" in complaints


@pytest.mark.parametrize("server", ["legacy", "modern"])
def test_in_a_pipe_a_server_is_told_that_nothing_can_be_asked(config: Path, server: str) -> None:
    status, shown, complaints = call(config, "odd", server, "ask")
    if server == "legacy":
        # It asks all the same, and takes the refusal as its result.
        assert (status, complaints) == (0, "") and "does not support" in json.loads(shown)["error"]["message"]
    else:
        assert (status, shown) == (1, "") and "there is no terminal to answer at" in complaints


@pytest.mark.parametrize("server", ["legacy", "modern"])
def test_a_question_is_asked_at_the_terminal(config: Path, server: str) -> None:
    status, shown = on_terminal(
        *("call", "--config", config, "odd", server, "ask"),
        type_when=lambda shown: "name [string]: " in shown,
        key=b"Ada\n",
    )
    assert status == 0
    assert "What is your name?" in shown
    assert '"action": "accept"' in shown and '"name": "Ada"' in shown


def test_ctrl_c_cancels_the_call_at_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(tmp_path, {"box": {"one": scripted_entry("--era", "legacy", "--log", log)}})
    status, _ = on_terminal(
        *("call", "--config", config, "box/one/hang"),
        type_when=lambda _: log.exists() and bool(logged(log, "tools/call")),
    )
    assert status == 130
    [cancelled] = logged(log, "notifications/cancelled")
    [called] = logged(log, "tools/call")
    assert cancelled["params"]["requestId"] == called["id"]


def test_a_server_in_no_file_is_called_by_its_command() -> None:
    words = [sys.executable, "-m", "mcp_workbench.cli.demo.clock"]
    assert run("call", "--", *words, "wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
    assert run("call", "--json", '{"seconds": 0}', "--", *words, "wait") == Done(0, "Waited 0 s.\n", "")
    status, shown, complaints = run("call", "--", *words, "wiat")
    assert (status, shown) == (2, "")
    assert "did you mean `wait`?" in complaints
    assert run("call", "--", "wait").status == 2


def test_raw_is_the_whole_result(config: Path) -> None:
    status, shown, remarks = call(config, "odd", "legacy", "all_content", "--raw")
    assert (status, remarks) == (0, "")
    result = json.loads(shown)
    assert [item["type"] for item in result["content"]] == [
        "text",
        "image",
        "audio",
        "resource",
        "resource_link",
        "x-unknown",
    ]
    assert '"big":12345678901234567890' in shown.replace(" ", "")
    status, shown, _ = call(config, "odd", "legacy", "tool_error", "--raw")
    assert status == 1
    assert json.loads(shown)["isError"] is True


def test_images_and_sounds_go_to_files(config: Path, tmp_path: Path, temporary_folder: Path) -> None:
    status, shown, remarks = call(config, "odd", "legacy", "all_content")
    assert (status, shown) == (0, "text\none\ntest:///two\n")
    image, audio, unknown = remarks.splitlines()
    # In a folder of its own, which the test removes.
    folder = f"{temporary_folder}/mcp-workbench-"
    assert image.startswith(f"note: saved image (image/png, 5 bytes) as {folder}") and image.endswith("/image-1.png")
    assert audio.startswith("note: saved audio (audio/wav, 5 bytes) as /") and audio.endswith("/audio-2.wav")
    assert Path(image.partition(" as ")[2]).read_bytes() == b"image"
    assert unknown == "note: content of type `x-unknown` is not shown; --raw shows it"
    target = tmp_path / "saved.png"
    status, shown, remarks = call(config, "odd", "legacy", "all_content", "--output", target)
    assert (status, shown) == (0, "text\none\ntest:///two\n")
    assert target.read_bytes() == b"image"
    assert f"note: saved image (image/png, 5 bytes) as {target}\n" in remarks
    [second] = tmp_path.glob("saved-2.*")
    assert second.read_bytes() == b"audio"


def test_saved_images_are_removed_after_a_day(config: Path, tmp_path: Path, temporary_folder: Path) -> None:
    before_yesterday = time.time() - 2 * 86400
    elsewhere = tmp_path / "elsewhere"
    new, old, link = (Path(temporary_folder) / f"mcp-workbench-call-{name}" for name in ("new", "old", "link"))
    for folder in (elsewhere, new, old):
        folder.mkdir()
        (folder / "image-1.png").write_bytes(b"image")
    link.symlink_to(elsewhere)
    for folder in (old, link):
        os.utime(folder, (before_yesterday, before_yesterday), follow_symlinks=False)
    assert call(config, "odd", "legacy", "all_content").status == 0
    assert (new / "image-1.png").exists() and not old.exists()
    assert (elsewhere / "image-1.png").exists()


def test_text_is_saved_where_there_is_nothing_else_to_save(config: Path, tmp_path: Path) -> None:
    target = tmp_path / "answer.txt"
    assert call(config, "lab", "timer", "wait", "seconds=0", "--output", target) == Done(
        0, "", f"note: saved text as {target}\n"
    )
    assert target.read_text() == "Waited 0 s."
    status, _, complaints = call(config, "lab", "timer", "wait", "seconds=0", "--output", tmp_path / "no" / "folder")
    assert status == 2
    assert "cannot be written: No such file or directory" in complaints


def test_one_process_is_started_for_one_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = write_config(
        tmp_path,
        {"box": {"one": scripted_entry("--era", "legacy", "--log", log), "other": scripted_entry("--log", log)}},
    )
    assert call(config, "box", "one", "echo", "text=hi").status == 0
    assert len(logged(log, "initialize")) == 1
    assert len(logged(log, "tools/call")) == 1
    [message] = logged(log, "tools/call")
    assert message["params"]["arguments"] == {"text": "hi"}
    # Nobody can be asked, and the server is told so.
    assert logged(log, "initialize")[0]["params"]["capabilities"] == {}


def test_an_argument_that_the_schema_does_not_know_is_sent_with_a_warning(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    status, _, remarks = call(config, "box", "one", "echo", "nod=x")
    assert status == 0
    assert remarks == "warning: the tool has no argument `nod`; did you mean `node`? It is sent anyway.\n"


def test_warnings_of_a_server_are_shown_and_its_small_talk_is_not(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry("--era", "legacy")}})
    for level, expected in (("warning", "warning: the server says: disk nearly full\n"), ("info", "")):
        params = {"level": level, "data": "disk nearly full"}
        arguments = json.dumps({"method": "notifications/message", "params": params})
        assert call(config, "box", "one", "notify", "--json", arguments).stderr == expected


def test_a_terminal_sees_progress_and_the_answer(config: Path) -> None:
    status, shown = on_terminal("call", "--config", config, "desk", "clock", "wait", "seconds=0.5")
    assert status == 0
    assert "desk/clock/wait" in shown
    assert shown.endswith("Waited 0.5 s.\n")


def test_interrupting_a_call_ends_with_130_and_leaves_no_server_behind(config: Path) -> None:
    """That nothing is left behind is checked after every test."""
    words = ("call", "--config", config, "desk", "clock", "wait", "seconds=200")
    status, shown = on_terminal(*words, type_when=lambda shown: "20 of 200 s" in shown or "desk/clock/wait" in shown)
    assert status == 130
    assert "Traceback" not in shown


def test_debugging_shows_the_log(config: Path) -> None:
    status, shown, log = call(config, "lab", "timer", "wait", "seconds=0", "--debug")
    assert (status, shown) == (0, "Waited 0 s.\n")
    assert "[lab/timer] ready after" in log


def test_a_tool_is_named_in_three_words_or_as_one_path(config: Path) -> None:
    expected = Done(0, "Waited 0 s.\n", "")
    assert call(config, "lab/timer/wait", "seconds=0") == expected
    assert call(config, "lab/timer/wait", "--json", '{"seconds": 0}') == expected


def test_a_path_that_leads_nowhere_is_told_like_wrong_words(config: Path) -> None:
    assert call(config, "lab/timre/wait").stderr.startswith(
        "error: server `timre` does not exist in toolbox `lab`; did you mean `timer`?"
    )
    assert call(config, "lab", "timre", "wait").stderr == call(config, "lab/timre/wait").stderr


def test_names_with_slashes_of_their_own_are_found_in_a_path(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"my/box": {"a/b": demo("clock")}})
    assert call(config, "my/box/a/b/wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
    assert call(config, "my/box", "a/b", "wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")


def test_arguments_that_do_not_fit_are_answered_with_the_tool_s_signature(config: Path) -> None:
    assert "hint: wait(seconds: number)" in call(config, "desk/clock/wait").stderr
    complaints = call(config, "desk/clock/wait", "--json", '{"seconds": "x"}').stderr
    assert complaints.endswith("\n\nhint: wait(seconds: number)\n")
    assert "Its schema" not in complaints


def test_an_unknown_argument_is_sent_with_a_warning_that_names_the_known_ones(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"one": scripted_entry()}})
    remarks = call(config, "box", "one", "echo", "completely=x").stderr
    assert remarks.startswith("warning: ") and "`completely`" in remarks and "`node`" in remarks


@pytest.mark.requirement("proxy.identity")
def test_a_tool_without_its_toolbox_or_server_is_refused_with_the_paths_that_can_be_meant(config: Path) -> None:
    def refused(*words: str) -> str:
        status, shown, complaints = call(config, *words)
        assert (status, shown) == (2, "")
        return " ".join(complaints.split())

    assert "`toolbox` and `server` are missing; what can be meant is not known" in refused("crash")
    assert "mcp-workbench list --connect lists them" in refused("crash")
    run("list", "--connect", config)
    for words in (["crash"], ["crash", "--json", "{}"]):
        assert "`toolbox` and `server` are missing; it can be `lab/timer/crash`" in refused(*words)
    for words in (["timer", "crash"], ["timer/crash"]):
        assert "`toolbox` is missing; it can be `lab/timer/crash`" in refused(*words)
    for words in (["lab", "crash"], ["lab/crash"]):
        assert "`server` is missing; it can be `lab/timer/crash`" in refused(*words)
    for words in (["lab", "timer"], ["lab/timer"]):
        assert "`tool` is missing; it can be `lab/timer/" in refused(*words)
    assert "it can be `desk/notes/list_notes` or `lab/notes/list_notes`" in refused("list_notes")
    assert "did you mean `lab/timer/crash`" in refused("timer/crashs")


@pytest.mark.requirement("proxy.identity")
def test_a_plain_file_has_a_toolbox_too(tmp_path: Path) -> None:
    config = tmp_path / "plain.json"
    config.write_text(json.dumps({"mcpServers": {"clock": demo("clock")}}))
    assert call(config, "default/clock/wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
    assert "it can be `default/clock/wait`" in call(config, "clock", "wait", "seconds=0").stderr


@pytest.mark.requirement("proxy.identity")
def test_a_path_that_names_with_slashes_make_ambiguous_is_refused_and_three_words_are_the_way(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"my": {"box": demo("clock")}, "my/box": {"a": demo("clock")}})
    refused = call(config, "my/box/a/wait", "seconds=0")
    assert refused.status == 2 and "can be split in several ways" in refused.stderr
    assert refused.stderr.endswith("hint: write three words: TOOLBOX SERVER TOOL\n")
    assert call(config, "my/box", "a", "wait", "seconds=0") == Done(0, "Waited 0 s.\n", "")
