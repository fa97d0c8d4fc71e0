"""Which command is meant, and how every command behaves at its edges."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_workbench import __main__ as entry_point
from mcp_workbench.cli import main as main_module
from mcp_workbench.cli.usage import ACTIONS_OF_COMMANDS, COMMAND_GROUPS, COMMANDS, SPELLED, resolved
from mcp_workbench.engine.version import full_version
from mcp_workbench.setup.clients.table import clients
from tests.cli import shell
from tests.cli.in_process import command, run
from tests.cli.shell import COMMAND, CTRL_D, Done, environment, on_terminal
from tests.support.processes import available
from tests.support.workbench import scripted_entry, write_config

HINT = "\nhint: mcp-workbench --help lists the commands; name a configuration with --config\n"


def test_every_command_is_in_the_overview() -> None:
    status, shown, complaints = run("--help")
    assert (status, complaints) == (0, "")
    assert shown.startswith("Usage: mcp-workbench COMMAND [OPTIONS] …\n")
    listed = re.findall(r"^  ([a-z]+) +\S", shown, re.MULTILINE)
    assert listed == [name for group in COMMAND_GROUPS.values() for name in group] and len(listed) <= 18
    assert re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE) == list(COMMAND_GROUPS)
    assert run("help") == run("-h") == Done(0, shown, "")
    assert len({command.summary for command in COMMANDS.values()}) == len(COMMANDS)


def test_the_overview_fits_a_terminal_of_80_columns_with_one_line_for_each_command() -> None:
    listed = run("--help").stdout.partition("Set up:")[2].rpartition("\n\n")[0]
    assert max(map(len, listed.splitlines())) <= 80


def test_every_command_is_listed_or_an_action_of_one_that_is() -> None:
    listed = {name for group in COMMAND_GROUPS.values() for name in group}
    actions = {name for each in ACTIONS_OF_COMMANDS.values() for name in each.values()}
    # The last line of the overview names the demo.
    assert (
        listed | actions | {"demo"} == set(COMMANDS) and not listed & actions and ACTIONS_OF_COMMANDS.keys() <= listed
    )


@pytest.mark.parametrize("name", [name for name, spelled in SPELLED.items() if name != spelled])
def test_an_action_is_the_command_of_its_former_name(name: str) -> None:
    parent, action = SPELLED[name].split()
    status, shown, complaints = run(parent, action, "--help")
    assert (status, complaints) == (0, "") and shown.startswith(f"Usage: mcp-workbench {parent} {action}")
    assert run(name, "--help") == run("help", parent, action) == Done(0, shown, "")
    assert re.search(rf"^  {parent} {action} +{re.escape(COMMANDS[name].summary)}$", run(parent, "--help").stdout, re.M)


def test_an_action_keeps_the_words_around_it(tmp_path: Path) -> None:
    assert resolved(["install", "cursor", "--undo", "--dry-run"]) == ["undo", "cursor", "--dry-run"]
    assert resolved(["auth", "login", "logout"]) == ["login", "logout"]
    # A server's own option, a server's own name: not ours.
    assert resolved(["call", "a/b/c", "--", "--prompt"]) == ["call", "a/b/c", "--", "--prompt"]
    assert resolved(["team", "nothing", "key"]) == ["team", "nothing", "key"]
    status, _, complaints = run("team", "kye")
    assert status == 2 and "unknown action `kye`; did you mean `key`?" in complaints


def test_the_help_of_install_names_every_client() -> None:
    named = re.search(r"^Clients: ([^.]+)\.", run("install", "--help").stdout, re.MULTILINE)
    assert named is not None and re.split(r",\s+", named[1]) == list(clients())


def test_serve_has_its_options_to_itself() -> None:
    status, shown, complaints = run("serve", "--help")
    assert (status, complaints) == (0, "") and shown.startswith("Usage: mcp-workbench [serve] [OPTIONS] [CONFIG]\n")
    assert "--http ADDRESS" in shown and "uninstall" not in shown
    assert run("help", "serve") == Done(0, shown, "")


def test_help_and_complaints_about_a_command_line_load_less_than_importing_asyncio_does() -> None:
    """They are to take at most twice as long as that; modules are counted because time depends on the machine. All of
    them in one process: what any of them loads is counted."""
    lines = [["--help"], ["help", "call"], ["liste"], ["completion", "words", "--", "ca"]]
    lines += [[name, "--help"] for name in COMMANDS]
    lines += [[name, action, "--help"] for name, command in COMMANDS.items() for action in command.actions]
    lines += [[*SPELLED[name].split(), "--help"] for name in COMMANDS]
    lines += [[name, "--no-such-option"] for name in COMMANDS]
    lines += [[name] for name, command in COMMANDS.items() if command.names]
    lines += [["completion", "words", "--", name, "--"] for name in COMMANDS]
    code = f"""
import sys
sys.stdout = sys.stderr
from mcp_workbench.__main__ import main
assert {{main(line) for line in {lines!r}}} == {{0, 2}}
print(*sys.modules, file=sys.__stdout__)
"""
    ours, theirs = (
        subprocess.run([COMMAND[0], "-c", each], capture_output=True, text=True, check=True).stdout.split()
        for each in (code, "import asyncio, sys; print(*sys.modules)")
    )
    assert len(ours) < len(theirs)
    assert {"asyncio", "msgspec", "rich", "mcp_workbench.app.gateway"} & set(ours) == set()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "serve"])
def test_every_command_explains_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, shown, complaints = command(monkeypatch, name, "--help")
    assert (status, complaints) == (0, "")
    assert shown.startswith(f"Usage: mcp-workbench {SPELLED[name]}")
    assert "\nOptions:\n" in shown
    assert command(monkeypatch, "help", name).stdout.startswith(shown)


@pytest.mark.requirement("cli.serve")
def test_the_version_is_ours() -> None:
    assert run("--version") == Done(0, f"mcp-workbench {full_version()}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chekc"], "unknown command `chekc`; did you mean `check`?"),
        (["liste"], "unknown command `liste`; did you mean `list`?"),
        (["frobnicate"], "`frobnicate` is neither a command nor a configuration file"),
    ],
)
def test_a_misspelt_command_gets_the_nearest_one(arguments: list[str], message: str, tmp_path: Path) -> None:
    assert run(*arguments, cwd=tmp_path) == Done(2, "", f"error: {message}\n{HINT}")


def test_a_word_that_is_a_file_or_looks_like_one_is_taken_for_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "chekc").write_text("{}")
    status, _, complaints = run("chekc", cwd=tmp_path)
    assert status == 2
    assert complaints.startswith("error: chekc:1:1: $: ") or "chekc:1:1" in complaints
    status, _, complaints = run("my-config.json", cwd=tmp_path)
    assert status == 2
    assert "the configuration `my-config.json`, named by the argument, does not exist" in complaints


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["list", "--jsn"], "error: unknown option `--jsn`; did you mean `--json`?"),
        (["schema", "extra"], "error: unexpected argument `extra`"),
        (["open"], "error: TOOLBOX is missing"),
        (["call"], "error: TOOLBOX/SERVER/TOOL is missing"),
        (["serve", "--fcae", "flat"], "error: unknown option `--fcae`; did you mean `--face`?"),
        (["demo", "clocks"], "error: there is no demo server `clocks`; available: `clock`"),
    ],
)
def test_wrong_command_line_is_explained_and_ends_with_2(arguments: list[str], complaint: str) -> None:
    status, shown, complaints = run(*arguments)
    assert (status, shown) == (2, "")
    assert complaints.splitlines()[0] == complaint
    assert "\n\nhint: " in complaints


def test_an_unknown_option_of_serve_points_to_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    from mcp_workbench.cli.main import main

    assert main(["serve", "--bogus"]) == 2
    assert "hint: mcp-workbench serve --help" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["check"], ["list"], ["open", "box"], ["call", "a", "b", "c"], ["serve"]])
def test_without_a_configuration_every_command_says_where_it_looked(command: list[str], tmp_path: Path) -> None:
    status, shown, complaints = run(*command, cwd=tmp_path)
    assert (status, shown) == (2, "")
    assert complaints.startswith("error: no configuration found; looked at")
    assert str(tmp_path / "workbench-config.json") in complaints


def test_reader_that_stops_early_is_no_error() -> None:
    script = f"{' '.join(COMMAND)} schema | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, env=environment({"PYTHONUNBUFFERED": "1"})
    )
    assert done.stderr == ""
    assert done.stdout in ("{\n141\n", "{\n0\n")


def test_a_closed_output_is_quiet_and_has_a_status_of_its_own() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "schema"], stdout=writing, stderr=subprocess.PIPE, timeout=60, env=environment(), text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_characters_that_the_encoding_lacks_are_written_out(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"värmland": {"server": scripted_entry()}})
    status, shown, complaints = shell.run("list", config, env={"PYTHONIOENCODING": "ascii"})
    assert (status, complaints) == (0, "")
    assert shown.startswith("v\\xe4rmland")


def test_a_terminal_gets_colours_unless_the_user_does_not_want_them(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"server": scripted_entry()}})
    status, shown = on_terminal("list", config)
    assert status == 0
    assert "\x1b[1;36mbox\x1b[0m" in shown
    _, without = on_terminal("list", config, env={"NO_COLOR": "1"})
    assert "36m" not in without
    _, dumb = on_terminal("list", config, env={"TERM": "dumb"})
    assert "\x1b" not in dumb
    _, complaint = on_terminal("open", "bax", "--config", config)
    assert complaint.startswith("\x1b[1;31merror:\x1b[0m toolbox `bax` does not exist")
    _, plain = on_terminal("open", "bax", "--config", config, env={"NO_COLOR": "1"})
    assert plain.startswith("error: toolbox `bax` does not exist")


def test_serving_on_a_terminal_says_that_it_speaks_mcp_there(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"server": scripted_entry()}})
    status, shown = on_terminal(
        "serve", config, type_when=lambda shown: "this terminal is the MCP client now" in shown, key=CTRL_D
    )
    assert status == 0
    assert "Traceback" not in shown


def at_home(tmp_path: Path, content: str | None = None) -> dict[str, str]:
    """The environment of a user with this configuration."""
    own = tmp_path / ".config" / "mcp-workbench"
    own.mkdir(parents=True, exist_ok=True)
    if content is not None:
        (own / "workbench-config.json").write_text(content)
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "XDG_RUNTIME_DIR": str(tmp_path), "TERM": "dumb"}


def test_without_arguments_a_person_gets_the_state_and_the_next_step(tmp_path: Path) -> None:
    def shown(content: str | None = None) -> str:
        status, text = on_terminal(env=at_home(tmp_path, content), cwd=tmp_path)
        assert status == 0
        return " ".join(text.split())

    text = shown()
    assert text.startswith(f"mcp-workbench {full_version()}, one MCP server in front of many ")
    assert "no configuration yet" in text and "next: mcp-workbench init" in text
    text = shown('{"mcpServers": {"a": {"command": "y"},\n "b": {"comand": "y"}}}')
    assert (
        "workbench-config.json:2:" in text
        and "did you mean `command`?" in text
        and "next: mcp-workbench doctor" in text
    )
    box = {"description": "d", "mcpServers": {"x": {"command": "y"}}}
    boxes = {"a": box, "b": box}
    text = shown(json.dumps({"toolboxes": boxes}))
    assert "workbench-config.json: 2 toolboxes, 2 servers" in text
    assert "nothing is running" in text and "next: mcp-workbench install" in text


def test_without_arguments_and_a_terminal_it_serves(tmp_path: Path) -> None:
    env = at_home(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    ping = '{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n'
    assert json.loads(shell.run(stdin=ping, env=env, cwd=tmp_path).stdout)["id"] == 7


TWO_MISTAKES = """{"mcpServers": {
  "a": {"command": 7},
  "b": {"comand": "y"}}}
"""


def test_the_first_line_of_a_client_that_cannot_connect_names_file_line_and_fix(tmp_path: Path) -> None:
    config = tmp_path / "typo.json"
    config.write_text('{"mcpServers": {"a": {"command": "x"},\n "b": {"command": "x", "cwd": "~/"}}, "face": "flatt"}')
    first, *rest = shell.run("serve", config).stderr.splitlines()
    assert first == f"error: {config}:2:47: $.face: found `flatt`; did you mean `flat`?"
    config.write_text(TWO_MISTAKES)
    done = shell.run("serve", config)
    first, second, *rest = done.stderr.splitlines()
    assert first == (
        f"error: {config}:2:20: $.mcpServers.a.command: found a number `7`, expected a string that is not empty "
        "(the first of 2 problems)"
    )
    assert second == f"  {config}:3:9: $.mcpServers.b.comand: unknown key `comand`; did you mean `command`?"
    assert rest == ["", "hint: once it is corrected, `mcp-workbench doctor` says what else is wrong"]
    assert (done.status, done.stdout) == (2, "")


def test_options_of_serve_are_judged_before_the_configuration_is_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert run("serve", "--face", "flatt", "--config", broken).stderr.startswith(
        "error: --face is proxy, flat, dynamic or auto, not `flatt`"
    )
    assert run("serve", "--log-format", "xml", "--config", broken).stderr.startswith("error: --log-format")


def test_an_option_that_has_no_effect_is_said_to_have_none(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    proxy = run("serve", config, "--separator", "__", "--no-prefix", "--token", "t")
    assert [line for line in proxy.stderr.splitlines() if line.startswith("warning:")] == [
        "warning: --separator has no effect with the face proxy; it applies to --face flat",
        "warning: --no-prefix has no effect with the face proxy; it applies to --face flat",
        "warning: --token has no effect without --http",
    ]
    for face in ("flat", "auto"):
        assert "warning:" not in run("serve", config, "--face", face, "--separator", "__").stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b" \n", "the token is empty"), (b"\xff\xfe", "cannot be read: not UTF-8"), (None, "No such file")],
)
def test_a_token_file_that_holds_no_token_is_refused(content: bytes | None, complaint: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    done = run("serve", config, "--http", "127.0.0.1:0", "--token-file", file)
    assert done.status == 2 and complaint in done.stderr


@pytest.mark.parametrize("token", ["pad ", " pad", "two words", "gebühr", "tab\t", "line\nbreak"])
def test_a_token_that_no_client_could_show_is_refused(token: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    file = tmp_path / "token"
    file.write_text(token + "\n", encoding="utf-8")
    for given in (("--token", token), ("--token-file", file)):
        done = run("serve", config, "--http", "127.0.0.1:0", *given)
        assert done.status == 2 and "characters that a header cannot carry" in done.stderr


@pytest.mark.parametrize(("token", "complaint"), [("", "the token is empty"), ("two words", "cannot carry")])
def test_a_token_of_the_environment_is_looked_at_as_well(token: str, complaint: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    done = run("serve", config, "--http", "127.0.0.1:0", env={"WORKBENCH_TOKEN": token})
    assert done.status == 2 and complaint in done.stderr


@pytest.mark.parametrize("flags", [(), ("--token", "given")])
def test_clients_have_to_show_the_token_of_the_environment_unless_another_is_given(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    command = [*COMMAND, "serve", str(config), "--http", "127.0.0.1:0", *flags]
    served = environment({"WORKBENCH_TOKEN": "of-the-environment"})
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=served) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found
            accepted = flags[1] if flags else "of-the-environment"
            statuses = {token: _status_of(found[0], token) for token in ("given", "of-the-environment", "")}
            assert statuses == {token: 200 if token == accepted else 401 for token in statuses}
            if available():
                # No server has been started yet; other processes can look all the same.
                assert b"of-the-environment" not in Path(f"/proc/{process.pid}/environ").read_bytes()
        finally:
            process.terminate()
            process.communicate(timeout=20)


def _status_of(url: str, token: str) -> int:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--allow-origin", "example.com"), "--allow-origin `example.com` is not an origin"),
        (("--allow-origin", "https://example.com/page"), "is not an origin"),
        (("--allow-host", "http://example.com"), "--allow-host `http://example.com` is not the name of a host"),
        (("--allow-user", "4711"), "--allow-user requires --http unix:PATH"),
    ],
)
def test_invalid_http_flags_are_refused(flags: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    done = run("serve", config, "--http", "127.0.0.1:0", *flags)
    assert done.status == 2 and complaint in done.stderr


@pytest.mark.parametrize("address", ["http://127.0.0.1:8431/mcp", "127.0.0.1:8431/mcp", "https://example.com"])
def test_an_address_of_the_web_is_no_address_to_listen_at(address: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"a": {"command": "x"}}})
    done = run("serve", config, "--http", address)
    assert done.status == 2
    assert f"`{address}` is not an address\n\nhint: write it as host:port" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_workbench_is_not_put_behind_itself(host: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, {"box": {"me": {"url": f"http://{host}:8437/mcp"}, "a": {"command": "x"}}})
    done = run("serve", config, "--http", ":8437")
    assert done.status == 2
    assert f"`box/me` is at http://{host}:8437/mcp, the address this workbench listens on" in done.stderr


def test_a_token_comes_from_one_place() -> None:
    done = run("serve", "--http", "--token", "a", "--token-file", "b")
    assert done.status == 2 and "--token and --token-file were both given" in done.stderr


def test_a_token_file_that_others_can_read_is_warned_about(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    config.write_text('{"mcpServers": {"a": {"command": "a"}}}')
    file = tmp_path / "token"
    # Empty, so that nothing is served: the warning comes first.
    file.write_text("")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        file.chmod(mode)
        done = run("serve", config, "--http", "127.0.0.1:0", "--token-file", file)
        assert "the token is empty" in done.stderr
        assert (f"warning: token file `{file}` can be read by other users; chmod 600" in done.stderr) is warned


@pytest.mark.parametrize("arguments", [["call", "x"], ["serve", "--private"], ["up"]])
def test_our_memory_is_hidden_before_anything_else_is_done(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def noted(what: str, returned: object) -> Callable[..., object]:
        def note(*_: object) -> object:
            done.append(what)
            return returned

        return note

    monkeypatch.setattr(entry_point, "hide_memory", noted("hidden", None))
    monkeypatch.setattr(entry_point, "runtime_folder", noted("looked for others", "/nowhere"))
    monkeypatch.setattr(main_module, "main", noted("run", 0))
    monkeypatch.setattr("gc.disable", lambda: None)
    assert entry_point.main(arguments) == 0
    assert done[0] == "hidden" and done[-1] == "run"


@pytest.mark.parametrize(
    "error",
    [
        SystemError("<built-in function compile> returned NULL without setting an exception"),
        ValueError("field 'target' is required for AnnAssign"),
        SyntaxError("too complex"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("has_room", [False, True])
def test_compiler_error_without_memory_is_a_lack_of_memory(
    error: Exception, has_room: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(main_module, "_dispatch", fail)
    monkeypatch.setattr(main_module, "has_room_for_a_stack", lambda: has_room)
    if has_room:
        with pytest.raises(type(error)):
            main_module.main(["serve"])
    else:
        assert main_module.main(["serve"]) == 1
    assert ("there is not enough memory" in capfd.readouterr().err) is not has_room
