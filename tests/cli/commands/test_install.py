"""`install`, `uninstall` and `undo`: files of clients in a home of their own."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_workbench.cli.commands import install
from tests.cli.in_process import command
from tests.cli.shell import Done, run, under

SERVER = {"command": "uvx", "args": ["mcp-server-time"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    config = tmp_path / ".config" / "mcp-workbench" / "workbench-config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"toolboxes": {"desk": {"description": "The clock", "mcpServers": {"time": SERVER}}}}))
    return tmp_path


def variables(home: Path) -> dict[str, str]:
    # No program of any client is on the path.
    empty = home / "bin"
    empty.mkdir(exist_ok=True)
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "CODEX_HOME")
    return {"HOME": str(home), "PATH": str(empty), **dict.fromkeys(names, ""), "WORKBENCH_CONFIG": ""}


def shell(home: Path, *words: object) -> Done:
    return command(pytest.MonkeyPatch(), *words, env=variables(home), cwd=home)


def in_a_process(home: Path, *words: object) -> Done:
    return run(*words, env=variables(home), cwd=home)


def write(home: Path, name: str, text: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_install_undo_and_uninstall_keep_every_byte(home: Path) -> None:
    before = '{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"other": {"command": "x"}\r\n\t}\r\n}'
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(before.encode())
    done = shell(home, "install", "cursor")
    assert done.status == 0 and "installed" in done.stdout and '+\t\t"workbench": {' in done.stderr
    assert "holds comments" in done.stderr
    entry = json.loads(path.read_text().replace("// mine", ""))["mcpServers"]["workbench"]
    assert os.path.isabs(entry["command"]) and os.path.isabs(entry["args"][-1]) and entry["env"]["PATH"]
    again = shell(home, "install", "cursor")
    assert again.status == 0 and "already has the workbench" in again.stderr and again.stdout == ""
    assert shell(home, "undo", "cursor") == Done(0, f"{under(home, path)}: as it was before\n", "")
    assert path.read_bytes() == before.encode()
    assert shell(home, "undo", "cursor").status == 2
    assert shell(home, "install", "cursor").status == 0
    assert shell(home, "uninstall", "cursor").status == 0
    assert path.read_bytes() == before.encode()


def test_where_a_client_writes_right_after_us_undo_still_knows_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(home, ".cursor/mcp.json", "{}")

    def the_client_writes(target: str) -> None:
        if target == os.path.realpath(path):
            path.write_text("{ }")

    monkeypatch.setattr("mcp_workbench.setup.file_replacement._sync_folder", the_client_writes)
    done = shell(home, "install", "cursor")
    assert done.status == 2 and "right after it was written" in done.stderr
    monkeypatch.undo()
    assert shell(home, "undo", "cursor") == Done(0, f"{under(home, path)}: there was nothing left to undo\n", "")
    assert path.read_text() == "{ }"


def test_a_file_that_install_made_is_gone_after_undo(home: Path) -> None:
    assert shell(home, "install", "kiro").status == 0
    path = home / ".kiro" / "settings" / "mcp.json"
    assert "workbench" in path.read_text()
    assert shell(home, "undo", "kiro").status == 0 and not (home / ".kiro").exists()
    assert shell(home, "install", "kiro").status == 0
    write(home, ".kiro/theirs", "")
    assert shell(home, "undo", "kiro").status == 0
    assert [*(home / ".kiro").iterdir()] == [home / ".kiro" / "theirs"]


@pytest.mark.parametrize(("client", "folder"), [("codex", ".codex"), ("cursor", ".cursor"), ("continue", ".continue")])
def test_a_file_that_install_made_is_gone_after_uninstall_too(home: Path, client: str, folder: str) -> None:
    assert shell(home, "install", client).status == 0 and (home / folder).exists()
    assert shell(home, "uninstall", client).status == 0 and not (home / folder).exists()
    assert shell(home, "undo", client).status == 0 and (home / folder).exists()
    assert shell(home, "undo", client).status == 0 and not (home / folder).exists()


def test_an_existing_file_and_later_entries_survive_uninstall(home: Path) -> None:
    empty = write(home, ".codex/config.toml", "")
    assert shell(home, "install", "codex").status == 0 and shell(home, "uninstall", "codex").status == 0
    assert empty.read_text() == ""
    assert shell(home, "install", "cursor").status == 0
    path = home / ".cursor" / "mcp.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "theirs": 1}))
    assert shell(home, "uninstall", "cursor").status == 0
    assert json.loads(path.read_text())["theirs"] == 1


@pytest.mark.parametrize("name", ["../x", "a\nb", "a\x1b[2J", "--foo", "-x", "a b", "a.b", "", "x" * 65])
def test_a_name_that_clients_would_refuse_or_misread_is_refused(home: Path, name: str) -> None:
    done = shell(home, "install", "cursor", f"--name={name}", "--print")
    if not name:
        assert done.status == 0, "as if it had not been given"
        return
    assert done.status == 2 and "is not a name that every client accepts" in done.stderr and not done.stdout


def test_printed_entry_equals_the_written_one(home: Path) -> None:
    path = write(home, ".cursor/mcp.json", "")
    printed = json.loads(shell(home, "install", "cursor", "--print").stdout)
    assert shell(home, "install", "cursor").status == 0
    assert json.loads(path.read_text()) == printed and printed["mcpServers"]["workbench"]["env"]["PATH"]


def test_every_profile_of_an_editor_gets_the_workbench_and_one_undo_takes_all_back(home: Path) -> None:
    """Its own command writes into the default profile alone."""
    user = ".config/Code/User"
    default = write(home, f"{user}/mcp.json", '{"servers": {}}\n')
    profiles = [write(home, f"{user}/profiles/{name}/mcp.json", "{}\n") for name in ("-1a", "-2b")]
    done = shell(home, "install", "vscode")
    assert done.status == 0, done.stderr
    assert all('"workbench"' in path.read_text() for path in (default, *profiles))
    changed = profiles[1].read_text()
    profiles[1].write_text(changed + "}")
    done = shell(home, "undo", "vscode")
    assert done.status == 2 and under(home, profiles[1]) in done.stderr
    assert all('"workbench"' in path.read_text() for path in (default, *profiles)), "all of it, or nothing"
    profiles[1].write_text(changed)
    done = shell(home, "undo", "vscode")
    assert (done.status, done.stdout.count("as it was before")) == (0, 3)
    assert [path.read_text() for path in (default, *profiles)] == ['{"servers": {}}\n', "{}\n", "{}\n"]


def test_insiders_has_files_of_its_own(home: Path) -> None:
    (home / ".config" / "Code - Insiders").mkdir(parents=True)
    assert shell(home, "install", "insiders").status == 0
    assert '"workbench"' in (home / ".config/Code - Insiders/User/mcp.json").read_text()
    assert not (home / ".config/Code").exists()


def test_dry_run_and_print_write_nothing(home: Path) -> None:
    path = write(home, ".cursor/mcp.json", "{}")
    done = shell(home, "install", "cursor", "--dry-run")
    assert done.status == 0 and '+    "workbench": {' in done.stdout and path.read_text() == "{}"
    printed = shell(home, "install", "codex", "--print")
    assert printed.status == 0 and printed.stdout.startswith("[mcp_servers.workbench]\n")
    assert json.loads(shell(home, "install", "zed", "--print").stdout)["context_servers"]["workbench"]
    claude = shell(home, "install", "claude-code", "--print")
    assert claude.stdout.startswith("claude mcp add-json -s user workbench '{")
    assert not (home / ".local").exists() or not list((home / ".local").rglob("changes.json"))


@pytest.mark.parametrize("program", ["codex", "gemini", "copilot", "code"])
def test_files_are_edited_although_their_client_has_a_command(home: Path, program: str) -> None:
    """Theirs drop comments, write the file anew, or put values where variables were."""
    write(home, f"bin/{program}", "#!/bin/sh\ntouch ~/was-run\n").chmod(0o755)
    name = {"code": "vscode"}.get(program, program)
    before = {"gemini": '{ // mine\n "mcpServers": {\n  "a": {"command": "a", "env": {"K": "$API_TOKEN"}}\n }\n}'}
    codex = '# mine\n[mcp_servers.a]\ncommand = "a" # this\n'
    files = {"codex": ".codex/config.toml", "copilot": ".copilot/mcp-config.json", "gemini": ".gemini/settings.json"}
    path = write(
        home,
        files.get(program, ".config/Code/User/mcp.json"),
        codex if program == "codex" else before.get(program, "{}"),
    )
    text = path.read_text()
    assert shell(home, "install", name).status == 0
    assert "workbench" in path.read_text() and not (home / "was-run").exists()
    assert [line for line in text.splitlines() if line not in path.read_text()] in ([], ["{}"])
    assert shell(home, "uninstall", name).status == 0 and path.read_text() == text


def test_codex_without_its_program_and_goose_are_edited(home: Path) -> None:
    toml = write(home, ".codex/config.toml", '# mine\nmodel = "x"\n')
    yaml = write(home, ".config/goose/config.yaml", "# mine\nGOOSE_MODE: auto\n")
    done = shell(home, "install", "codex", "goose", "--json")
    assert done.status == 0
    assert [(each["client"], each["changed"]) for each in json.loads(done.stdout)] == [("codex", True), ("goose", True)]
    assert toml.read_text().startswith('# mine\nmodel = "x"\n') and "[mcp_servers.workbench]" in toml.read_text()
    assert yaml.read_text().startswith("# mine\nGOOSE_MODE: auto\n") and "workbench:" in yaml.read_text()


def test_new_file_has_the_members_that_its_client_requires(home: Path) -> None:
    """Continue takes no file without a name and a version."""
    path = home / ".continue" / "config.yaml"
    assert shell(home, "install", "continue", "--print").stdout.startswith("name: Local Config\n")
    assert shell(home, "install", "continue").status == 0
    assert path.read_text().startswith("name: Local Config\nversion: 1.0.0\nschema: v1\nmcpServers:\n")
    assert shell(home, "undo", "continue").status == 0 and not path.exists()
    write(home, ".continue/config.yaml", "name: mine\n")
    assert shell(home, "install", "continue").status == 0 and path.read_text().startswith("name: mine\nmcpServers:\n")


def test_two_installs_at_once_lose_nothing(home: Path) -> None:
    path = write(home, ".cursor/mcp.json", '{"mcpServers": {"other": {"command": "x"}}}')
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda name: in_a_process(home, "install", "cursor", "--name", name), ("a", "b", "c")))
    servers = json.loads(path.read_text())["mcpServers"]
    written = [name for name, one in zip("abc", done, strict=True) if one.status == 0]
    assert written and set(servers) == {"other", *written}
    assert all(one.status == 0 or "changed by another program meanwhile" in one.stderr for one in done)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("install",), "name a client, or use --all"),
        (("install", "cursor", "--all"), "name a client, or use --all"),
        (("install", "cursr"), "unknown client `cursr`; did you mean `cursor`?"),
        (("install", "roo"), "nothing is installed into Roo Code"),
        (("install", "claude-code"), "the program `claude` of Claude Code is not on the PATH"),
        (("install", "cursor", "--project"), "does not exist"),
        (("uninstall", "cursor"), "Cursor does not have the workbench"),
        (("undo", "cursor"), "there is nothing to undo for Cursor"),
        (("undo",), "name a client, or use --all"),
        (("undo", "cursor", "--all"), "name a client, or use --all"),
        (("undo", "--all"), "there is nothing to undo for any client"),
        (("undo", "--purge", "--all"), "there is nothing to undo for any client"),
        (("uninstall", "--all"), "no client on this machine has the workbench"),
    ],
)
def test_impossible_actions_are_explained(home: Path, words: tuple[str, ...], said: str) -> None:
    done = shell(home, *words)
    assert done.status == 2 and said in done.stderr and "hint: " in done.stderr and done.stdout == ""


def test_a_broken_file_is_left_alone(home: Path) -> None:
    path = write(home, ".cursor/mcp.json", '{"mcpServers": {"a": ')
    done = shell(home, "install", "cursor")
    assert done.status == 2 and "mcp.json:1:" in done.stderr and path.read_text() == '{"mcpServers": {"a": '


def test_another_server_of_that_name_is_not_replaced(home: Path) -> None:
    write(home, ".cursor/mcp.json", '{"mcpServers": {"Workbench": {"command": "x"}}}')
    done = shell(home, "install", "cursor")
    assert done.status == 2 and "already has a server `Workbench`" in done.stderr
    assert shell(home, "install", "cursor", "--name", "desk").status == 0


def test_without_a_configuration_nothing_is_installed(home: Path) -> None:
    (home / ".config" / "mcp-workbench" / "workbench-config.json").unlink()
    done = shell(home, "install", "cursor")
    assert done.status == 2 and "there is no configuration yet" in done.stderr


def test_all_clients_that_are_here(home: Path) -> None:
    write(home, ".cursor/mcp.json", "{}")
    write(home, ".kiro/settings/mcp.json", "broken")
    done = shell(home, "install", "--all", "--json")
    assert done.status == 1 and "Kiro: " in done.stderr
    assert {each["client"]: "error" in each for each in json.loads(done.stdout)} == {"cursor": False, "kiro": True}


def test_uninstall_goes_on_with_the_next_client(home: Path) -> None:
    path = write(home, ".kiro/settings/mcp.json", "{}")
    assert shell(home, "install", "kiro").status == 0
    done = shell(home, "uninstall", "cursor", "kiro")
    assert done.status == 1 and "error: Cursor does not have the workbench" in done.stderr
    assert "Kiro: workbench removed in" in done.stdout and "workbench" not in path.read_text()
    assert shell(home, "uninstall", "cursor", "kiro").status == 2


def test_a_client_that_is_not_here_and_paths_of_this_machine_are_noted(home: Path) -> None:
    assert "Kiro was not found on this machine" in shell(home, "install", "kiro").stderr
    assert "was not found" not in shell(home, "install", "kiro").stderr
    lacking = shell(home, "install", "claude-code").stderr
    assert "the program `claude` of Claude Code is not on the PATH" in lacking and "created anyway" not in lacking
    config = write(home, "workbench-config.json", json.dumps({"mcpServers": {"time": SERVER}}))
    done = shell(home, "install", "kiro", "--project", "--config", config)
    assert done.status == 0 and "paths of this machine are written into the project's file" in done.stderr


CLAUDE = """#!{python}
import json, os, sys
home, words = os.environ["HOME"], sys.argv[1:]
path = os.path.join(home, ".claude.json")
root = json.load(open(path))
servers = root.setdefault("mcpServers", {{}})
name = words[4]
if os.path.exists(os.path.join(home, "refuse-" + words[1] + "-" + name)):
    sys.exit("it refuses")
if words[1] == "remove":
    del servers[name]
else:
    assert name not in servers, name
    servers[name] = json.loads(words[5])
json.dump(root, open(path, "w"))
"""


@pytest.fixture
def claude(home: Path) -> Path:
    """Claude Code's file in a home whose `claude` adds and removes, unless a file says that it refuses."""
    program = write(home, "bin/claude", CLAUDE.format(python=sys.executable))
    program.chmod(0o755)
    return write(home, ".claude.json", json.dumps({"mcpServers": {"time": SERVER, "url": {"url": "https://x"}}}))


def names_in(path: Path) -> set[str]:
    return set(json.loads(path.read_text())["mcpServers"])


def test_an_install_that_fails_on_the_way_leaves_nothing_less(home: Path, claude: Path) -> None:
    refusal = write(home, "refuse-add-json-workbench", "")
    assert shell(home, "install", "claude-code", "--replace").status == 2
    assert names_in(claude) == {"time", "url"}
    assert "there is nothing to undo for Claude Code" in shell(home, "undo", "claude-code").stderr
    refusal.unlink()
    write(home, "refuse-remove-time", "")
    assert shell(home, "install", "claude-code", "--replace").status == 2
    assert names_in(claude) == {"time", "url", "workbench"}
    assert shell(home, "undo", "claude-code").status == 0
    assert names_in(claude) == {"time", "url"}


def test_settings_that_the_user_gave_our_entry_stay(home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    assert shell(home, "install", "cursor").status == 0
    root = json.loads(path.read_text())
    entry = root["mcpServers"]["workbench"]
    entry |= {"disabled": True, "args": ["serve", "--config", "/old"]}
    entry["env"] |= {"MINE": "1"}
    path.write_text(json.dumps(root))
    assert shell(home, "install", "cursor").status == 0
    after = json.loads(path.read_text())["mcpServers"]["workbench"]
    assert after["disabled"] is True and after["env"]["MINE"] == "1" and after["args"][-1] != "/old"


def test_install_reports_failures_in_json_and_status(home: Path) -> None:
    for name in (".cursor/mcp.json", ".kiro/settings/mcp.json"):
        write(home, name, "{")
    assert shell(home, "install", "cursor", "kiro").status == 2
    done = shell(home, "install", "cursor", "--json")
    assert done.status == 2 and "cursor" in json.loads(done.stdout)[0]["client"]
    (home / ".kiro/settings/mcp.json").unlink()
    assert shell(home, "install", "cursor", "kiro").status == 1
    assert "exclude each other" in shell(home, "install", "cursor", "--print", "--json").stderr


def test_command_that_reports_success_falsely_is_detected(home: Path, claude: Path) -> None:
    """`gemini mcp remove` ends well in a folder that is not trusted, and removes nothing."""
    program = home / "bin" / "claude"
    works = program.read_text()
    program.write_text("#!/bin/sh\n")
    done = shell(home, "install", "claude-code")
    assert (
        done.status == 2
        and f"said that it did so, but `{under(home, claude)}` does not have `workbench`" in done.stderr
    )
    assert "there is nothing to undo for Claude Code" in shell(home, "undo", "claude-code").stderr
    program.write_text(works)
    assert shell(home, "install", "claude-code").status == 0
    program.write_text("#!/bin/sh\n")
    done = shell(home, "uninstall", "claude-code")
    assert done.status == 2 and f"but `{under(home, claude)}` still has `workbench`" in done.stderr


@pytest.mark.parametrize(
    ("program", "is_cached"),
    [
        ("/home/me/.cache/uv/archive-v0/x1/bin/mcp-workbench", True),
        ("C:\\Users\\me\\uv\\cache\\archive-v0\\x1\\Scripts\\mcp-workbench.exe", True),
        ("/home/me/.local/pipx/.cache/x/bin/mcp-workbench", True),
        ("/home/me/.local/share/uv/tools/mcp-workbench/bin/mcp-workbench", False),
        ("/home/me/.local/bin/mcp-workbench", False),
    ],
)
def test_a_program_in_a_cache_is_installed_nowhere(
    home: Path, monkeypatch: pytest.MonkeyPatch, program: str, is_cached: bool
) -> None:
    monkeypatch.setattr(install, "own_command", lambda config: [program, "serve", "--config", config])
    done = shell(home, "install", "cursor")
    assert (done.status, "is in a cache" in done.stderr) == ((2, True) if is_cached else (0, False))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "Gemini CLI starts MCP servers only in folders you trust; it asks when it first runs in one"),
        ("DO_NOT_TRUST", "you have told Gemini CLI not to trust `~`, so it starts no MCP servers there"),
        ("TRUST_FOLDER", None),
    ],
)
def test_install_says_where_gemini_starts_no_servers(home: Path, answer: str | None, said: str | None) -> None:
    write(home, ".gemini/settings.json", "{}")
    if answer is not None:
        write(home, ".gemini/trustedFolders.json", json.dumps({str(home): answer}))
    done = shell(home, "install", "gemini")
    assert done.status == 0 and "Gemini CLI: installed" in done.stdout
    assert ("trust" in done.stderr) is (said is not None)
    assert said is None or f"note: {said}\n" in done.stderr
