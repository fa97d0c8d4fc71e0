"""`init`: a configuration made of what the clients have. Their files are in a home of the test's own."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from mcp_workbench.errors import ConfigError
from tests.cli.in_process import command, live_in
from tests.cli.in_process import run as in_process_run
from tests.cli.shell import Done, on_terminal, run, under
from tests.support import fake_keyring

CLOCK = {"command": sys.executable, "args": ["-m", "mcp_workbench", "demo", "clock"]}
TIME = {"command": "uvx", "args": ["mcp-server-time"]}


def environment(home: Path) -> dict[str, str]:
    names = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "CODEX_HOME", "WORKBENCH_CONFIG")
    (home / "bin").mkdir(exist_ok=True)
    return {**dict.fromkeys(names, ""), "HOME": str(home), "PATH": str(home / "bin")}


def shell(home: Path, *words: object, env: dict[str, str] | None = None) -> Done:
    # A keychain that fails unless a test brings another.
    chain = {**fake_keyring.environment(home / "keys"), "FAKE_KEYRING_FAULT": "locked"} if env is None else env
    return command(pytest.MonkeyPatch(), "init", *words, env={**environment(home), **chain}, cwd=home)


def write(home: Path, name: str, servers: object, key: str = "mcpServers") -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: servers}))
    return path


def config_of(home: Path) -> Path:
    return home / ".config" / "mcp-workbench" / "workbench-config.json"


def test_servers_of_several_clients_become_toolboxes(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "github": {"command": "gh", "disabled": True}})
    write(tmp_path, ".kiro/settings/mcp.json", {"Clock": CLOCK, "github": {"command": "other", "disabled": True}})
    done = shell(tmp_path, "--yes")
    assert done.status == 0, done.stderr
    boxes = json.loads(config_of(tmp_path).read_text())["toolboxes"]
    assert {name: list(box["mcpServers"]) for name, box in boxes.items()} == {
        "code": ["github", "github-kiro"],
        "desk": ["clock"],
    }
    assert "cursor, kiro" in done.stderr and "all" not in boxes
    assert "desk     clock   ready" in done.stdout, "it ends with a check"
    assert done.stderr.endswith(
        "install cursor kiro adds the workbench; with --replace, in place of the servers there\n"
    )
    again = shell(tmp_path, "--yes")
    assert again.status == 2 and "already exists; it was left unchanged" in again.stderr


def test_literal_secrets_go_to_a_file_for_the_user_alone_and_are_never_shown(tmp_path: Path) -> None:
    servers = {
        "search": {
            "command": "s",
            "args": ["--api-key", "sk-abcdefghijklmnop"],
            "env": {"SEARCH_TOKEN": "hunter2hunter2"},
        },
        "remote": {
            "url": "https://x.example.com/mcp?api_key=hunter3hunter3",
            "headers": {"Authorization": "Bearer hunter4"},
        },
        "kept": {"command": "k", "env": {"K_TOKEN": "${K_TOKEN}", "LEVEL": "debug"}},
    }
    write(tmp_path, ".cursor/mcp.json", servers)
    done = shell(tmp_path, "--yes", "--no-check")
    assert done.status == 0, done.stderr
    text = config_of(tmp_path).read_text()
    assert "hunter" not in text + done.stdout + done.stderr and "sk-abc" not in text + done.stderr
    found = {name: one for box in json.loads(text)["toolboxes"].values() for name, one in box["mcpServers"].items()}
    assert found["search"] == {
        "command": "s",
        "args": ["--api-key", "${SEARCH_API_KEY}"],
        "envFile": "secrets/search.env",
    }
    assert found["remote"]["headers"] == {"Authorization": "Bearer ${REMOTE_AUTHORIZATION}"}
    assert found["remote"]["url"] == "https://x.example.com/mcp?api_key=${REMOTE_URL_KEY}"
    assert found["kept"] == servers["kept"]
    file = config_of(tmp_path).parent / "secrets" / "search.env"
    assert file.read_text() == "SEARCH_TOKEN='hunter2hunter2'\nSEARCH_API_KEY='sk-abcdefghijklmnop'\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(config_of(tmp_path).stat().st_mode) == 0o600


def test_with_a_keychain_secrets_go_there(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"search": {"command": "s", "env": {"SEARCH_TOKEN": "hunter2hunter2"}}})
    chain = fake_keyring.environment(tmp_path / "keys")
    assert shell(tmp_path, "--yes", "--no-check", env=chain).status == 0
    assert "${keyring:search-SEARCH_TOKEN}" in config_of(tmp_path).read_text()
    assert json.loads(Path(chain["FAKE_KEYRING"]).read_text()) == {
        "mcp-workbench/search-SEARCH_TOKEN": "hunter2hunter2"
    }


def test_dry_run_and_json_write_nothing_and_list_omissions(tmp_path: Path) -> None:
    write(tmp_path, ".config/zed/settings.json", {"ext": {"settings": {}}, "time": TIME}, "context_servers")
    write(tmp_path, ".cursor/mcp.json", {"workbench": {"command": "/opt/mcp-workbench", "args": ["serve"]}})
    (tmp_path / ".kiro" / "settings").mkdir(parents=True)
    (tmp_path / ".kiro" / "settings" / "mcp.json").write_text("{")
    done = shell(tmp_path, "--yes", "--dry-run", "--json")
    assert done.status == 0
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["servers"]] == ["time"]
    assert [one["what"] for one in told["leftOut"]] == ["ext (Zed)", "Kiro"]
    plain = shell(tmp_path, "--from", "zed", "--dry-run")
    assert json.loads(plain.stdout)["toolboxes"]["desk"]["mcpServers"] == {"time": TIME}
    assert not config_of(tmp_path).exists()


def cloned(home: Path) -> tuple[Path, Path]:
    """A project that somebody else made, and what appears where a server of it is started."""
    project, made = home / "project", home / "made"
    script = {"command": "/bin/sh", "args": ["-c", f": > {made}"], "env": {"NODE_OPTIONS": "--require ./x.js"}}
    remote = {"url": "https://evil.example/mcp", "headers": {"X": f"${{cmd:touch {made}}}"}}
    write(project, ".mcp.json", {"script": script, "remote": remote})
    return project, made


def in_project(home: Path, project: Path, *words: object, typed: str | None = None) -> Done:
    chain = {**fake_keyring.environment(home / "keys"), "FAKE_KEYRING_FAULT": "locked"}
    patch = pytest.MonkeyPatch()
    return command(patch, "init", "--project", *words, env={**environment(home), **chain}, cwd=project, typed=typed)


@pytest.mark.requirement("config.trust")
def test_servers_of_a_project_are_shown_and_neither_started_nor_trusted(tmp_path: Path) -> None:
    project, made = cloned(tmp_path)
    done = in_project(tmp_path, project, "--yes")
    assert done.status == 0 and not made.exists(), done.stderr
    assert f"/bin/sh -c ': > {made}'" in done.stderr and "with the variables NODE_OPTIONS" in done.stderr
    assert "https://evil.example/mcp" in done.stderr and "with the headers X" in done.stderr
    assert "`${cmd:…}` means nothing to the client, so it is kept as text" in done.stderr
    config = project / "workbench-config.json"
    assert "${DOLLAR:-$}{cmd:touch" in config.read_text() and not done.stdout
    checked = run("check", env=environment(tmp_path), cwd=project)
    assert checked.status == 2 and "is not trusted yet" in checked.stderr
    assert done.stderr.endswith("run mcp-workbench team trust, then mcp-workbench check --connect\n")


@pytest.mark.parametrize("answer", ["", "\n", "n\n"])
def test_only_yes_starts_servers_of_a_project(tmp_path: Path, answer: str) -> None:
    project, made = cloned(tmp_path)
    done = in_project(tmp_path, project, typed=f"y\ny\n\n{answer}")
    assert done.status == 0 and not made.exists() and (project / "workbench-config.json").exists()
    assert done.stderr.index("/bin/sh -c") < done.stderr.index("Trust them, and start each once? [y/N]")
    (project / "workbench-config.json").unlink()
    done = in_project(tmp_path, project, typed="y\ny\n\ny\n")
    assert done.status == 1 and made.exists(), "it is no MCP server"
    assert run("check", env=environment(tmp_path), cwd=project).status == 0, "it is trusted"


def test_the_end_of_the_input_agrees_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(monkeypatch, tmp_path, environment(tmp_path))
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})
    done = command(monkeypatch, "init", typed="")
    assert done.status == 2 and "nothing was read, and nothing was written" in done.stderr
    done = command(monkeypatch, "init", typed="\n")
    assert done.status == 2 and "nothing was written: the input ended" in done.stderr
    done = command(monkeypatch, "init", typed="\nn\nnet\n")
    assert done.status == 2 and not config_of(tmp_path).exists()


def test_servers_of_a_project_in_a_file_of_its_user_are_theirs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write(tmp_path, ".claude.json", {str(project): {"mcpServers": {"local": CLOCK}}}, "projects")
    done = in_project(tmp_path, project, "--yes")
    assert done.status == 0 and "local   ready" in done.stdout, done.stderr
    assert run("check", env=environment(tmp_path), cwd=project).status == 0, "it is trusted"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "there is no terminal to ask for permission to read them"),
        (("--from", "cursr"), "did you mean `cursor`"),
        (("--from", "zed"), "no client on this machine has a file with MCP servers"),
        (("extra",), "unexpected argument"),
    ],
)
def test_impossible_actions_are_explained(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})
    done = shell(tmp_path, *words)
    assert done.status == 2 and said in done.stderr and "hint: " in done.stderr
    assert not config_of(tmp_path).exists()


def test_servers_of_claude_code_for_single_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    mine = {"mcpServers": {"local": {"command": "x"}, "w": {"command": "mcp-workbench", "args": ["serve"]}}}
    projects = {str(tmp_path / "proj"): mine, str(tmp_path / "gone"): mine, str(tmp_path): {"mcpServers": {}}, "x": 1}
    (tmp_path / ".claude.json").write_text(json.dumps({"projects": projects}))
    said = "Claude Code has servers for these folders: `~/proj` (local); run mcp-workbench init --project there"
    only = shell(tmp_path, "--yes")
    assert only.status == 2 and f"note: {said}\n" in only.stderr and "none of the files has" in only.stderr
    assert only.stderr.endswith("hint: mcp-workbench init --project, run in one of these folders\n")
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})
    done = shell(tmp_path, "--yes", "--dry-run")
    assert done.status == 0 and said in done.stderr
    assert "for these folders" not in shell(tmp_path, "--from", "cursor", "--dry-run").stderr, "not read"
    (tmp_path / ".claude.json").write_text("{")
    assert "for these folders" not in shell(tmp_path, "--yes", "--dry-run").stderr


def test_the_client_of_an_authorization_server_is_taken_over_by_reference(tmp_path: Path) -> None:
    auth = {"CLIENT_ID": "me", "CLIENT_SECRET": "hunter2hunter2"}
    write(tmp_path, ".cursor/mcp.json", {"docs": {"url": "https://x.example.com/mcp", "auth": auth}})
    assert shell(tmp_path, "--yes", "--no-check").status == 0
    text = config_of(tmp_path).read_text()
    assert '"clientSecret": "${DOCS_CLIENT_SECRET}"' in text and "hunter" not in text


def test_where_the_file_cannot_be_written_no_secret_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ".cursor/mcp.json", {"x": {"command": "x", "env": {"X_TOKEN": "hunter2hunter2"}}})

    def failing(*arguments: object) -> None:
        raise ConfigError("the disk is full")

    monkeypatch.setattr("mcp_workbench.cli.commands.init.create_file", failing)
    done = shell(tmp_path, "--yes", "--no-check")
    assert done.status == 2 and "the disk is full" in done.stderr
    assert not (config_of(tmp_path).parent / "secrets").exists()
    chain = fake_keyring.environment(tmp_path / "keys")
    assert shell(tmp_path, "--yes", "--no-check", env=chain).status == 2
    assert json.loads(Path(chain["FAKE_KEYRING"]).read_text()) == {}


def test_a_server_that_is_none_does_not_stand_in_the_way_of_the_others(tmp_path: Path) -> None:
    odd = {"no": {"url": "none"}, "env": {"command": "x", "env": {"A=B": "x"}}, "nul": {"command": "x\0"}}
    scopes = {"url": "https://x.example/mcp", "oauth": {"scopes": 5}}
    write(tmp_path, ".cursor/mcp.json", {**odd, "scopes": scopes, "time": TIME})
    done = shell(tmp_path, "--yes", "--no-check", "--json")
    assert done.status == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["name"] for one in told["servers"]] == ["scopes", "time"]
    assert [one["what"] for one in told["leftOut"]] == ["no (Cursor)", "env (Cursor)", "nul (Cursor)"]
    assert "without `http://`" in told["leftOut"][0]["why"]
    assert "$.toolboxes.x" not in json.dumps(told["leftOut"]), "nobody has seen such a toolbox"


def test_where_every_server_is_disabled_it_says_so(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"clock": {**CLOCK, "disabled": True}})
    done = shell(tmp_path, "--yes")
    assert done.status == 2 and not config_of(tmp_path).exists()
    assert "every server that was found is disabled in its client: clock\n" in done.stderr
    assert "workbench-config" not in done.stderr


def test_without_clients_it_points_to_add(tmp_path: Path) -> None:
    done = shell(tmp_path, "--yes")
    assert done.status == 2 and "hint: mcp-workbench add NAME -- COMMAND" in done.stderr


def test_the_status_is_1_where_the_file_is_written_and_a_server_lacks_a_variable(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "a": {"command": "a", "args": ["${NOT_SET_ANYWHERE}"]}})
    done = shell(tmp_path, "--yes")
    assert done.status == 1 and "NOT_SET_ANYWHERE" in done.stderr and config_of(tmp_path).exists()
    assert done.stderr.endswith("fix the servers that failed before you use --replace\n")


def test_on_a_terminal_it_asks_before_it_reads(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})
    for key, status in ((b"n\n", 2), (b"\n\n\n", 0)):
        done, shown = on_terminal(
            "init",
            "--no-check",
            env=environment(tmp_path),
            width=80,
            type_when=lambda text: "Read them?" in text,
            key=key,
        )
        assert done == status, shown
        assert config_of(tmp_path).exists() == (status == 0)


def test_names_and_descriptions_of_toolboxes_can_be_changed_at_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_in(monkeypatch, tmp_path, environment(tmp_path))
    write(tmp_path, ".cursor/mcp.json", {"time": TIME, "fetch": {"command": "f"}, "git": {"command": "g"}})
    typed = "y\nn\nnet\nThe net\ndaily\n\ndaily\nignored\n\n"
    done = command(monkeypatch, "init", "--no-check", typed=typed)
    assert done.status == 0, done.stderr
    boxes = json.loads(config_of(tmp_path).read_text())["toolboxes"]
    assert {name: list(box["mcpServers"]) for name, box in boxes.items()} == {
        "net": ["fetch"],
        "daily": ["git", "time"],
    }
    assert boxes["net"]["description"] == "The net"
    assert boxes["daily"]["description"] == "Code, files and documentation of the project: git"
    assert "Name of web [web]:" in done.stderr and "Description of net [Search, read" in done.stderr


def test_in_the_end_it_says_where_secrets_are_and_which_clients_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = {**fake_keyring.environment(tmp_path / "keys"), "FAKE_KEYRING_FAULT": "locked"}
    live_in(monkeypatch, tmp_path, {**environment(tmp_path), **chain})
    write(tmp_path, ".cursor/mcp.json", {"x": {"command": "x", "env": {"X_TOKEN": "hunter2hunter2"}}})
    write(tmp_path, ".gemini/settings.json", {"y": {"command": "y"}})
    write(tmp_path, ".aws/amazonq/mcp.json", {"z": {"command": "z"}})
    done = command(monkeypatch, "init", "--yes", "--no-check")
    assert done.status == 0, done.stderr
    folder = config_of(tmp_path).parent / "secrets"
    assert (
        f"files that only you can read in {under(tmp_path, folder)}, and the configuration refers to them: x: X_"
        in done.stderr
    )
    assert "hint: mcp-workbench install cursor gemini adds" in done.stderr, "not into what is discontinued"


def test_ctrl_c_while_it_checks_says_that_the_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mcp_workbench.cli.commands.check.connect", interrupted)
    done = in_process_run("init", "--yes", env=environment(tmp_path), cwd=tmp_path)
    assert done.status == 130 and config_of(tmp_path).exists()
    assert f"interrupted; `{under(tmp_path, config_of(tmp_path))}` is written" in done.stderr
    assert "hint: mcp-workbench install cursor adds" in done.stderr


@pytest.mark.requirement("cli.init-face")
def test_clients_see_two_tools_by_default(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"time": TIME})
    for words, face in (((), "proxy"), (("--face", "auto"), "auto"), (("--face=flat",), "flat")):
        done = shell(tmp_path, "--yes", "--dry-run", *words)
        assert done.status == 0 and json.loads(done.stdout)["face"] == face
    done = shell(tmp_path, "--yes", "--face", "both")
    assert done.status == 2 and "--face is proxy, flat, dynamic or auto, not `both`" in done.stderr
    assert not config_of(tmp_path).exists()


@pytest.mark.requirement("cli.init-face")
def test_terminal_is_asked_once_for_the_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(monkeypatch, tmp_path, environment(tmp_path))
    write(tmp_path, ".gemini/settings.json", {"git": {"command": "g"}})
    write(tmp_path, ".cursor/mcp.json", {"time": TIME, "git": {"command": "g"}})
    write(tmp_path, ".config/Code - Insiders/User/mcp.json", {"time": TIME}, "servers")
    for typed, face, asked in (("y\n\n\n", "proxy", 1), ("y\n\ntwo\nAuto\n", "auto", 2)):
        done = command(monkeypatch, "init", "--no-check", typed=typed)
        assert done.status == 0 and done.stderr.count("Which one? [proxy]") == asked, done.stderr
        assert "proxy    Two tools, open_toolbox and use_tool" in done.stderr
        seen = "every tool at once for Cursor; every tool at once, up to 100, for VS Code Insiders; two tools that open"
        assert f"Here: {seen}" in " ".join(done.stderr.split())
        assert json.loads(config_of(tmp_path).read_text())["face"] == face
        config_of(tmp_path).unlink()
    named = command(monkeypatch, "init", "--no-check", "--face", "dynamic", typed="y\n\n")
    assert named.status == 0 and "Which one?" not in named.stderr
    ended = command(monkeypatch, "init", "--no-check", "--dry-run", typed="y\n")
    assert ended.status == 0 and "Which one?" not in ended.stderr


def test_agents_are_not_told_of_disabled_servers_and_no_disabled_twin_is_imported(tmp_path: Path) -> None:
    off = {"disabled": True}
    cursor = {"git": {"command": "git-old", **off}, "time": TIME, "notes": {"command": "n", **off}}
    write(tmp_path, ".cursor/mcp.json", cursor)
    zone = {**TIME, "env": {"ZONE": "UTC"}, **off}
    write(tmp_path, ".kiro/settings/mcp.json", {"Git": {"command": "git-new"}, "zone": zone, "time": {**TIME, **off}})
    done = shell(tmp_path, "--yes", "--dry-run", "--json")
    told = json.loads(done.stdout)
    boxes = told["config"]["toolboxes"]
    assert {name: box["mcpServers"] for name, box in boxes.items()} == {
        "code": {"Git": {"command": "git-new"}},
        "desk": {"time": TIME, "notes": {"command": "n", "disabled": True}},
    }
    assert [box["description"].partition(": ")[2] for box in boxes.values()] == ["Git", "time"]
    assert [one["from"] for one in told["servers"]] == [["cursor", "kiro"], ["cursor"], ["kiro"]]
    assert [one["what"] for one in told["leftOut"]] == ["git (Cursor)", "zone (Kiro)"]


def test_keys_are_not_written_through_a_link_that_came_with_a_project(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    write(project, ".mcp.json", {"a": {"command": "a"}, "x": {"command": "x", "env": {"X_TOKEN": "hunter2hunter2"}}})
    (project / "secrets").symlink_to(elsewhere)
    done = in_project(tmp_path, project, "--yes")
    assert (
        done.status == 2
        and f"secrets` is a link to `{under(tmp_path, elsewhere)}`, and no keys are written" in done.stderr
    )
    assert not list(elsewhere.iterdir()) and not (project / "workbench-config.json").exists()
    (project / "secrets").unlink()
    assert in_project(tmp_path, project, "--yes").status == 0
    assert (project / "secrets" / "x.env").read_text() == "X_TOKEN='hunter2hunter2'\n"
    # The user's own folder may be linked to where they keep such things.
    write(tmp_path, ".cursor/mcp.json", {"x": {"command": "x", "env": {"X_TOKEN": "hunter2hunter2"}}})
    config_of(tmp_path).parent.mkdir(parents=True)
    (config_of(tmp_path).parent / "secrets").symlink_to(elsewhere)
    assert shell(tmp_path, "--yes", "--no-check").status == 0 and (elsewhere / "x.env").exists()
