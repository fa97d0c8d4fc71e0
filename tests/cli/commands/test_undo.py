"""`undo` and `uninstall`: what was changed is taken back, whatever the client has written since."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest

from mcp_workbench.setup import client_changes
from tests.cli.commands.test_install import SERVER, names_in, shell, write
from tests.cli.commands.test_install import claude as claude
from tests.cli.commands.test_install import home as home
from tests.cli.shell import Done, under

CODEX = """# mine
model = "x" # this too

[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]

# about the other
[mcp_servers.other]
command = "other"
"""
# What Codex adds once its user trusts a folder.
TRUSTED = '\n[projects."/home/me/work"]\ntrust_level = "trusted"\n'


@pytest.mark.requirement("cli.undo")
def test_a_file_that_its_client_has_written_since_is_restored_entry_by_entry(home: Path) -> None:
    path = write(home, ".codex/config.toml", CODEX)
    assert shell(home, "install", "codex", "--replace").status == 0
    assert "# about the other\n[mcp_servers.other]" in path.read_text() and "mcp-server-time" not in path.read_text()
    path.write_text(path.read_text() + TRUSTED)
    assert shell(home, "undo", "codex") == Done(0, f"{under(home, path)}: workbench removed; time put back\n", "")
    text = path.read_text()
    assert "workbench" not in text and '[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]\n' in text
    assert '# mine\nmodel = "x" # this too\n' in text and "# about the other\n[mcp_servers.other]" in text
    assert 'trust_level = "trusted"' in text
    assert shell(home, "undo", "codex").status == 2


@pytest.mark.requirement("cli.undo")
def test_a_file_that_its_client_has_written_anew_is_restored_entry_by_entry(home: Path) -> None:
    """Qwen Code adds a version at its first run, and formats all of it."""
    entries = {"mine": {"command": "m"}, "time": {**SERVER, "env": {"API_TOKEN": "hunter2hunter2"}}}
    ours = {"mcpServers": {"time": entries["time"]}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps(ours))
    path = write(home, ".qwen/settings.json", json.dumps({"mcpServers": entries}))
    assert shell(home, "install", "qwen-code", "--replace").status == 0
    now = json.loads(path.read_text())
    assert list(now["mcpServers"]) == ["mine", "workbench"]
    # The client may also add to our entry, and to itself.
    now["mcpServers"]["workbench"]["trust"] = False
    now["mcpServers"]["new"] = {"command": "new"}
    path.write_text(json.dumps({"$version": 3, **now}, indent=4))
    done = shell(home, "undo", "qwen-code")
    assert done.status == 0 and "hunter2" not in done.stdout + done.stderr
    after = json.loads(path.read_text())
    assert after == {"$version": 3, "mcpServers": {**entries, "new": {"command": "new"}}}
    assert path.read_text().startswith('{\n    "$version": 3,')


@pytest.mark.requirement("cli.undo")
@pytest.mark.parametrize("command", ["undo", "uninstall"])
def test_a_name_that_the_client_has_taken_again_stays_with_its_client(home: Path, command: str) -> None:
    theirs = {"command": "another"}
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"a": {"command": "a"}, "time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    now = json.loads(path.read_text())
    path.write_text(json.dumps({"mcpServers": {**now["mcpServers"], "time": theirs}}))
    done = shell(home, command, "kiro")
    assert done.status == 0 and "warning: Kiro has changed `time` since, which stays as it is now\n" in done.stderr
    assert json.loads(path.read_text()) == {"mcpServers": {"a": {"command": "a"}, "time": theirs}}


def test_another_server_under_our_name_is_not_removed(home: Path) -> None:
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    path.write_text(json.dumps({"mcpServers": {"workbench": {"command": "carpenter"}}}))
    done = shell(home, "undo", "kiro")
    assert done.status == 0 and "Kiro has changed `workbench` since" in done.stderr
    assert json.loads(path.read_text())["mcpServers"] == {"workbench": {"command": "carpenter"}, "time": SERVER}


@pytest.mark.parametrize("has_written", [False, True])
def test_uninstall_restores_replaced_servers(home: Path, has_written: bool) -> None:
    before = json.dumps({"mcpServers": {"time": SERVER, "mine": {"command": "m"}}}, indent=3)
    path = write(home, ".kiro/settings/mcp.json", before)
    assert shell(home, "install", "kiro", "--replace").status == 0
    assert names_in(path) == {"mine", "workbench"}
    if has_written:
        path.write_text(path.read_text() + "\n")
    done = shell(home, "uninstall", "kiro")
    assert done.stdout == f"Kiro: workbench removed; time put back in {under(home, path)}\n"
    assert json.loads(path.read_text()) == json.loads(before) and (path.read_text() == before) is not has_written
    assert shell(home, "undo", "kiro").status == 0 and names_in(path) == {"mine", "workbench"}
    assert shell(home, "undo", "kiro").status == 0 and names_in(path) == {"mine", "time"}


def test_uninstall_after_several_installs_puts_back_all_that_they_removed(home: Path) -> None:
    other = {"command": "other"}
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    now = json.loads(path.read_text())
    path.write_text(json.dumps({"mcpServers": {**now["mcpServers"], "other": other}}))
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": {"other": other}}))
    assert shell(home, "install", "kiro", "--replace").status == 0 and names_in(path) == {"workbench"}
    assert shell(home, "uninstall", "kiro").status == 0
    assert json.loads(path.read_text())["mcpServers"] == {"time": SERVER, "other": other}


def test_uninstall_that_was_undone_can_be_undone_after_the_client_has_written(home: Path) -> None:
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    assert shell(home, "uninstall", "kiro").status == 0
    path.write_text(path.read_text() + "\n\n")
    assert shell(home, "undo", "kiro").stdout == f"{under(home, path)}: time removed; workbench put back\n"
    assert names_in(path) == {"workbench"}


@pytest.mark.parametrize("client", ["goose", "continue", "opencode"])
def test_every_format_is_restored_entry_by_entry(home: Path, client: str) -> None:
    goose = 'extensions:\n  time:\n    type: stdio\n    cmd: uvx\n    args: ["mcp-server-time"]\n  mine:\n    cmd: m\n'
    listed = 'name: x\nmcpServers:\n  - name: time\n    command: "uvx"\n    args:\n      - mcp-server-time\n'
    opencode = json.dumps({"mcp": {"time": {"type": "local", "command": ["uvx", "mcp-server-time"]}}})
    name, text = {
        "goose": (".config/goose/config.yaml", goose),
        "continue": (".continue/config.yaml", listed),
        "opencode": (".config/opencode/opencode.json", opencode),
    }[client]
    path = write(home, name, text)
    assert shell(home, "install", client, "--replace").status == 0
    assert "mcp-server-time" not in path.read_text()
    comment = "// mine\n" if client == "opencode" else "# mine\n"
    path.write_text(path.read_text() + comment)
    done = shell(home, "undo", client)
    assert done.status == 0 and done.stdout.endswith("workbench removed; time put back\n"), done.stderr
    assert "mcp-server-time" in path.read_text() and "workbench" not in path.read_text()
    assert comment in path.read_text()


def test_a_file_that_we_made_stays_if_its_client_has_put_something_into_it(home: Path) -> None:
    path = home / ".cursor" / "mcp.json"
    assert shell(home, "install", "cursor").status == 0
    path.write_text(json.dumps({**json.loads(path.read_text()), "theirs": 1}))
    assert shell(home, "undo", "cursor").status == 0 and json.loads(path.read_text()) == {"theirs": 1, "mcpServers": {}}
    assert shell(home, "install", "kiro").status == 0
    made = home / ".kiro" / "settings" / "mcp.json"
    made.write_text(made.read_text() + "\n")
    assert shell(home, "undo", "kiro").status == 0 and not (home / ".kiro").exists()


def test_deleted_file_gets_removed_servers_back(home: Path) -> None:
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    path.unlink()
    assert shell(home, "undo", "kiro").status == 0 and json.loads(path.read_text())["mcpServers"] == {"time": SERVER}


def test_without_its_backup_a_change_is_undone_entry_by_entry(home: Path) -> None:
    path = write(home, ".kiro/settings/mcp.json", json.dumps({"mcpServers": {"a": {"command": "a"}, "time": SERVER}}))
    assert shell(home, "install", "kiro", "--replace").status == 0
    (backup,) = kept_files(home, "kiro", "*-mcp.json")
    backup.unlink()
    assert shell(home, "undo", "kiro").status == 0 and names_in(path) == {"a", "time"}


def test_the_file_of_another_project_is_undone_from_anywhere(home: Path) -> None:
    config = write(home, "workbench-config.json", json.dumps({"mcpServers": {"time": SERVER}}))
    path = write(home, ".mcp.json", json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "install", "claude-code", "--project", "--replace", "--config", config).status == 0
    moved = path.read_text().replace("{", "{ ", 1)
    path.write_text(moved)
    (home / "elsewhere").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home / "elsewhere")
        assert shell(home / "elsewhere" / "..", "undo", "claude-code").status == 0
    assert names_in(path) == {"time"}


def test_later_changes_of_claude_code_are_kept(home: Path, claude: Path) -> None:
    claude.write_text(json.dumps({"mcpServers": {"time": SERVER, "url": {"url": "https://x"}}}))
    assert shell(home, "install", "claude-code", "--replace").status == 0
    theirs = {"command": "another"}
    claude.write_text(json.dumps({"numStartups": 3, "mcpServers": {"workbench": theirs, "time": theirs}}))
    done = shell(home, "undo", "claude-code")
    assert done.status == 0 and "Claude Code has changed `workbench`, `time` since" in done.stderr
    assert json.loads(claude.read_text()) == {"numStartups": 3, "mcpServers": {"workbench": theirs, "time": theirs}}


def test_uninstall_restores_replaced_servers_in_claude_code(home: Path, claude: Path) -> None:
    assert shell(home, "install", "claude-code", "--replace").status == 0 and names_in(claude) == {"url", "workbench"}
    assert shell(home, "uninstall", "claude-code").status == 0 and names_in(claude) == {"url", "time"}
    assert shell(home, "undo", "claude-code").status == 0 and names_in(claude) == {"url", "workbench"}


def test_an_undo_that_fails_on_the_way_can_be_called_again(home: Path, claude: Path) -> None:
    assert shell(home, "install", "claude-code", "--replace").status == 0
    assert names_in(claude) == {"url", "workbench"}
    refusal = write(home, "refuse-remove-workbench", "")
    assert shell(home, "undo", "claude-code").status == 2
    assert names_in(claude) == {"time", "url", "workbench"}
    refusal.unlink()
    # What somebody has done by hand meanwhile is done.
    claude.write_text(json.dumps({"mcpServers": {"time": SERVER}}))
    assert shell(home, "undo", "claude-code").status == 0
    assert names_in(claude) == {"time"}
    assert shell(home, "undo", "claude-code").status == 2


def test_several_clients_are_undone_at_once(home: Path) -> None:
    paths = [home / ".cursor" / "mcp.json", home / ".kiro" / "settings" / "mcp.json"]
    assert shell(home, "install", "cursor", "kiro").status == 0
    assert all(path.exists() for path in paths)
    assert shell(home, "undo", "cursor", "kiro").status == 0
    assert not any(path.exists() for path in paths)
    assert shell(home, "install", "cursor").status == 0
    assert shell(home, "undo", "cursor", "kiro").status == 1
    assert shell(home, "undo", "cursor", "kiro").status == 2


@pytest.mark.parametrize("command", ["undo", "uninstall"])
def test_all_is_every_client_that_was_changed_and_no_other(home: Path, command: str) -> None:
    other = write(home, ".cursor/mcp.json", '{"mcpServers": {"other": {"command": "x"}}}')
    paths = [write(home, name, "{}") for name in (".gemini/settings.json", ".kiro/settings/mcp.json")]
    assert shell(home, "install", "gemini", "kiro").status == 0
    done = shell(home, command, "--all")
    assert done.status == 0 and len(done.stdout.splitlines()) == 2, done.stderr
    assert [path.read_text() for path in paths] == ["{}", "{}"] and "other" in other.read_text()


def kept_files(home: Path, client: str, pattern: str = "*") -> list[Path]:
    folder = home / ".local" / "state" / "mcp-workbench" / "clients" / client
    return [path for path in folder.glob(pattern) if path.is_file() and path.suffix != ".lock"]


def test_purge_deletes_backups_and_records_with_the_keys_in_them(home: Path) -> None:
    keyed = {"time": {**SERVER, "env": {"API_TOKEN": "hunter2hunter2"}}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps({"mcpServers": keyed}))
    for name in (".cursor/mcp.json", ".kiro/settings/mcp.json"):
        write(home, name, json.dumps({"mcpServers": keyed}))
    assert shell(home, "install", "cursor", "kiro", "--replace").status == 0
    kept = {client: kept_files(home, client) for client in ("cursor", "kiro")}
    assert all("hunter2" in path.read_text() for paths in kept.values() for path in paths)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for paths in kept.values() for path in paths)
    done = shell(home, "undo", "--purge", "kiro")
    assert done == Done(0, "Kiro: 2 backup files deleted; earlier changes can no longer be undone\n", "")
    assert not kept_files(home, "kiro") and kept_files(home, "cursor") == kept["cursor"]
    assert names_in(home / ".kiro" / "settings" / "mcp.json") == {"workbench"}
    assert "there is nothing to undo for Kiro" in shell(home, "undo", "kiro").stderr
    assert shell(home, "undo", "--purge", "--all").stdout.startswith("Cursor: 2 backup files") and not kept_files(
        home, "cursor"
    )
    assert shell(home, "install", "kiro").status == 0


def test_backups_that_cannot_be_undone_any_more_go(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_changes, "MAX_CHANGES", 3)
    write(home, ".cursor/mcp.json", "{}")
    for number in range(6):
        assert shell(home, "install", "cursor", "--name", f"w{number}").status == 0
    assert len(kept_files(home, "cursor", "*-mcp.json")) == 3
    for _ in range(3):
        assert shell(home, "undo", "cursor").status == 0
    assert shell(home, "undo", "cursor").status == 2


def test_an_undone_change_leaves_no_backup(home: Path) -> None:
    path = write(
        home, ".cursor/mcp.json", json.dumps({"mcpServers": {"mine": {"env": {"API_TOKEN": "hunter2hunter2"}}}})
    )
    assert shell(home, "install", "cursor").status == 0 and len(kept_files(home, "cursor", "*-mcp.json")) == 1
    assert shell(home, "undo", "cursor").status == 0
    assert "hunter2" in path.read_text()
    assert [kept.name for kept in kept_files(home, "cursor")] == ["changes.json"]
    assert "hunter2" not in kept_files(home, "cursor")[0].read_text()


@pytest.mark.parametrize("command", ["undo kiro", "doctor --fix"])
def test_backups_have_a_lifetime(home: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    keyed = {"mcpServers": {"time": {**SERVER, "env": {"API_TOKEN": "hunter2hunter2"}}}}
    write(home, ".config/mcp-workbench/workbench-config.json", json.dumps(keyed))
    for name in (".cursor/mcp.json", ".kiro/settings/mcp.json"):
        write(home, name, json.dumps(keyed))
    assert shell(home, "install", "cursor", "--replace").status == 0
    made = time.time()
    monkeypatch.setattr(time, "time", lambda: made + client_changes.BACKUP_LIFETIME - 60)
    assert shell(home, "install", "kiro", "--replace").status == 0
    monkeypatch.setattr(time, "time", lambda: made + client_changes.BACKUP_LIFETIME + 60)
    shell(home, *command.split())
    assert "hunter2" not in "".join(kept.read_text() for kept in kept_files(home, "cursor"))
    assert "there is nothing to undo for Cursor" in shell(home, "undo", "cursor").stderr
    if command != "undo kiro":
        assert shell(home, "undo", "kiro").stdout.endswith("as it was before\n")


def test_damaged_record_of_one_client_stops_no_other(home: Path) -> None:
    for name in (".cursor/mcp.json", ".kiro/settings/mcp.json"):
        write(home, name, "{}")
    assert shell(home, "install", "cursor", "kiro").status == 0
    (record,) = kept_files(home, "kiro", "changes.json")
    record.write_text("[{")
    assert shell(home, "install", "cursor", "--name", "second").status == 0
    done = shell(home, "undo", "--all")
    assert done.status == 1 and done.stdout.count("Cursor") == 0 and done.stdout.count("cursor") == 1, done
    assert "the record of what was changed, is damaged" in done.stderr and "--undo --purge kiro" in done.stderr
    assert shell(home, "uninstall", "--all").status == 1 and (home / ".cursor" / "mcp.json").read_text() == "{}"
    doctor = shell(home, "doctor")
    assert doctor.status == 1 and "error: clients: Kiro: `" in doctor.stdout and "is damaged" in doctor.stdout
    assert shell(home, "undo", "--purge", "kiro").status == 0 and shell(home, "install", "kiro").status == 0


def test_record_without_a_time_whose_backup_is_gone_can_be_read(home: Path) -> None:
    write(home, ".cursor/mcp.json", "{}")
    assert shell(home, "install", "cursor").status == 0
    (record,) = kept_files(home, "cursor", "changes.json")
    changes = json.loads(record.read_text())
    # As earlier versions wrote it.
    del changes[0]["at"]
    Path(changes[0]["backup"]).unlink()
    record.write_text(json.dumps(changes))
    done = shell(home, "undo", "cursor")
    assert done.status == 0 and "workbench removed" in done.stdout, done
