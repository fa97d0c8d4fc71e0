"""`init --update`: what has changed in the clients since is shown, and what is chosen is taken over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands.test_init import CLOCK, TIME, config_of, environment, shell, write
from tests.cli.in_process import command
from tests.cli.shell import Done
from tests.support import fake_keyring

OTHER = {"command": "other-server", "args": ["--fast"]}


def names(home: Path) -> dict[str, list[str]]:
    boxes = json.loads(config_of(home).read_text())["toolboxes"]
    return {name: list(box["mcpServers"]) for name, box in boxes.items()}


def set_up(home: Path, servers: dict[str, object]) -> None:
    write(home, ".cursor/mcp.json", servers)
    assert shell(home, "--yes", "--no-check").status == 0


def typed(home: Path, words: str, *arguments: str) -> Done:
    chain = {**fake_keyring.environment(home / "keys"), "FAKE_KEYRING_FAULT": "locked"}
    env = {**environment(home), **chain}
    return command(pytest.MonkeyPatch(), "init", "--update", *arguments, typed=words, env=env, cwd=home)


def test_new_and_changed_servers_are_taken_over_and_the_rest_keeps_its_bytes(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK, "time": TIME})
    text = config_of(tmp_path).read_text().replace('"toolboxes"', '// mine\n  "toolboxes"')
    config_of(tmp_path).write_text(text)
    write(
        tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "time": {**TIME, "args": ["mcp-server-time==2"]}, "git": OTHER}
    )
    done = shell(tmp_path, "--update", "--yes", "--no-check")
    assert done.status == 0, done.stderr
    assert "changed" in done.stderr and "new" in done.stderr and "changed: time, new: git" in done.stderr
    after = config_of(tmp_path).read_text()
    assert "// mine" in after and after.count("mcp-server-time==2") == 1 and "other-server" in after
    again = shell(tmp_path, "--update", "--yes")
    assert again == Done(0, "", again.stderr) and "nothing is new, changed or gone in your clients" in again.stderr
    assert config_of(tmp_path).read_text() == after


def test_missing_server_is_removed_only_if_chosen(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK, "time": TIME, "git": OTHER})
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK})
    before = config_of(tmp_path).read_bytes()
    shown = shell(tmp_path, "--update", "--dry-run", "--yes")
    assert shown.stderr.count("no client has it any more") == 2 and config_of(tmp_path).read_bytes() == before
    done = typed(tmp_path, "y\n2\n", "--no-check")
    assert done.status == 0, done.stderr
    assert names(tmp_path) == {"desk": ["clock", "time"]}, "the second, `git`"
    assert "nothing is new" in shell(tmp_path, "--update", "--yes").stderr, "what was left is not asked about again"


def test_servers_that_install_replaced_are_not_gone(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK, "time": TIME})
    write(tmp_path, ".cursor/mcp.json", {"workbench": {"command": "mcp-workbench", "args": ["serve"]}})
    done = shell(tmp_path, "--update", "--dry-run", "--yes")
    assert done.status == 0 and "gone" not in done.stderr.replace("changed or gone", ""), done.stderr


def test_servers_of_an_unread_file_are_not_reported_as_gone(tmp_path: Path) -> None:
    write(tmp_path, ".kiro/settings/mcp.json", {"time": TIME, "git": OTHER})
    set_up(tmp_path, {"clock": CLOCK})
    done = shell(tmp_path, "--update", "--from", "cursor")
    assert done.status == 0 and "nothing is new, changed or gone" in done.stderr, done.stderr
    (tmp_path / ".kiro/settings/mcp.json").write_text("{ broken")
    done = shell(tmp_path, "--update", "--yes")
    assert done.status == 0 and "nothing is new, changed or gone" in done.stderr, done.stderr
    write(tmp_path, ".kiro/settings/mcp.json", {"time": TIME})
    assert "gone" in shell(tmp_path, "--update", "--dry-run", "--yes").stderr, "it was not forgotten"


def test_nothing_is_taken_over_without_a_terminal(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK})
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "git": OTHER})
    before = config_of(tmp_path).read_bytes()
    done = shell(tmp_path, "--update", "--from", "cursor")
    assert done.status == 2 and "no terminal to ask what to take over" in done.stderr
    assert typed(tmp_path, "y\n").status == 2, "the end of the input chooses nothing"
    assert config_of(tmp_path).read_bytes() == before
    assert typed(tmp_path, "y\nnone\n").status == 0 and config_of(tmp_path).read_bytes() == before


def test_a_new_server_gets_a_name_and_its_keys_a_place_of_their_own(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK})
    keyed = {**OTHER, "env": {"API_KEY": "hunter2hunter2"}}
    write(tmp_path, ".kiro/settings/mcp.json", {"Clock": keyed})
    done = shell(tmp_path, "--update", "--yes", "--no-check")
    assert done.status == 0, done.stderr
    assert sorted(name for inside in names(tmp_path).values() for name in inside) == ["Clock-kiro", "clock"]
    assert "hunter2" not in config_of(tmp_path).read_text() + done.stderr


def test_it_needs_a_configuration_of_the_users_own(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK})
    done = shell(tmp_path, "--update", "--yes")
    assert done.status == 2 and "does not exist yet" in done.stderr and not config_of(tmp_path).exists()


def test_of_twins_that_differ_in_a_key_one_is_kept_unless_both_are_wanted(tmp_path: Path) -> None:
    first, second = ({**OTHER, "env": {"LEVEL": "x", "API_KEY": key}} for key in ("hunter2hunter2", "hunter3hunter3"))
    write(tmp_path, ".cursor/mcp.json", {"time": TIME, "github": first})
    write(tmp_path, ".kiro/settings/mcp.json", {"time": TIME, "github": second})
    done = shell(tmp_path, "--yes", "--no-check")
    assert done.status == 0 and "that of Cursor is taken over, and they differ only in API_KEY" in done.stderr
    assert "hunter" not in done.stderr
    assert names(tmp_path) == {"code": ["github"], "desk": ["time"]}


def test_at_a_terminal_it_asks_which_twin_to_keep(tmp_path: Path) -> None:
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK})
    assert shell(tmp_path, "--yes", "--no-check").status == 0
    first, second = ({**OTHER, "env": {"LEVEL": level}} for level in ("one", "two"))
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "github": first})
    write(tmp_path, ".kiro/settings/mcp.json", {"github": second})
    done = typed(tmp_path, "y\n2\n\n", "--no-check")
    question = "with a different LEVEL. Keep which? [1: Cursor, 2: Kiro, b: both; Enter: 1]"
    assert done.status == 0 and question in done.stderr
    assert '"two"' in config_of(tmp_path).read_text() and '"one"' not in config_of(tmp_path).read_text()


def asked(home: Path, words: str, *arguments: str) -> Done:
    chain = {**fake_keyring.environment(home / "keys"), "FAKE_KEYRING_FAULT": "locked"}
    env = {**environment(home), **chain}
    return command(pytest.MonkeyPatch(), "init", "--no-check", *arguments, typed=words, env=env, cwd=home)


def levels(home: Path) -> dict[str, object]:
    """The servers of the configuration, with what tells twins apart."""
    boxes = json.loads(config_of(home).read_text())["toolboxes"]
    return {name: each["env"]["LEVEL"] for box in boxes.values() for name, each in box["mcpServers"].items()}


def twin(level: str, **more: object) -> dict[str, object]:
    return {**OTHER, "env": {"LEVEL": level}, **more}


def test_filters_and_sandbox_of_the_configuration_stay_when_a_client_changes(tmp_path: Path) -> None:
    servers = {"git": {**OTHER, "env": {"LEVEL": "one", "OLD": "x", "API_KEY": "hunter2hunter2"}, "cwd": "/srv"}}
    set_up(tmp_path, {"clock": CLOCK, **servers})
    config = json.loads(config_of(tmp_path).read_text())
    ours = config["toolboxes"]["code"]["mcpServers"]["git"]
    ours |= {"toolFilters": ["status"], "sandbox": "contained", "env": {**ours["env"], "MINE": "y"}}
    config_of(tmp_path).write_text(json.dumps(config))
    changed = {"command": "other-server", "args": ["--slow"], "env": {"LEVEL": "two", "API_KEY": "hunter2hunter2"}}
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "git": changed})
    done = shell(tmp_path, "--update", "--yes", "--no-check")
    assert done.status == 0 and "changed: git" in done.stderr, done.stderr
    after = json.loads(config_of(tmp_path).read_text())["toolboxes"]["code"]["mcpServers"]["git"]
    assert after == {
        "command": "other-server",
        "args": ["--slow"],
        "env": {"LEVEL": "two", "MINE": "y"},
        # Its key has not changed, so it is where it was.
        "envFile": ours["envFile"],
        "toolFilters": ["status"],
        "sandbox": "contained",
    }


@pytest.mark.parametrize("theirs", [{}, {"excludeTools": ["zzz"]}])
def test_narrower_filter_of_the_user_stays_when_a_client_changes_its_own(
    tmp_path: Path, theirs: dict[str, object]
) -> None:
    write(tmp_path, ".gemini/settings.json", {"clock": CLOCK, "git": {**OTHER, "includeTools": ["read", "write"]}})
    assert shell(tmp_path, "--yes", "--no-check").status == 0
    config = json.loads(config_of(tmp_path).read_text())
    ours = config["toolboxes"]["code"]["mcpServers"]["git"]
    assert ours["toolFilters"] == ["read", "write"]
    ours["toolFilters"] = ["read"]
    config_of(tmp_path).write_text(json.dumps(config))
    write(tmp_path, ".gemini/settings.json", {"clock": CLOCK, "git": {**OTHER, "args": ["--slow"], **theirs}})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    after = json.loads(config_of(tmp_path).read_text())["toolboxes"]["code"]["mcpServers"]["git"]
    assert (after["args"], after["toolFilters"]) == (["--slow"], ["read"])


def test_server_that_becomes_an_address_keeps_nothing_of_its_program(tmp_path: Path) -> None:
    set_up(tmp_path, {"git": {**OTHER, "env": {"LEVEL": "one"}}, "clock": CLOCK})
    write(tmp_path, ".cursor/mcp.json", {"git": {"url": "https://git.example/mcp"}, "clock": CLOCK})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    after = json.loads(config_of(tmp_path).read_text())["toolboxes"]["code"]["mcpServers"]["git"]
    assert after == {"url": "https://git.example/mcp"}


def test_key_that_was_rotated_in_a_client_is_a_change(tmp_path: Path) -> None:
    keyed = [{**OTHER, "env": {"API_KEY": key}} for key in ("hunter2hunter2", "hunter3hunter3")]
    env = fake_keyring.environment(tmp_path / "keys")
    write(tmp_path, ".cursor/mcp.json", {"git": keyed[0], "clock": CLOCK})
    assert shell(tmp_path, "--yes", "--no-check", env=env).status == 0
    assert "${keyring:git-API_KEY}" in config_of(tmp_path).read_text()
    write(tmp_path, ".cursor/mcp.json", {"git": keyed[1], "clock": CLOCK})
    left = shell(tmp_path, "--update", "--dry-run", "--yes", env=env)
    assert " 1  changed  git " in left.stderr and "hunter" not in left.stderr, left.stderr
    done = shell(tmp_path, "--update", "--yes", "--no-check", env=env)
    assert done.status == 0 and "changed: git" in done.stderr
    assert "${keyring:git-API_KEY-2}" in config_of(tmp_path).read_text()
    assert json.loads((tmp_path / "keys").read_text())["mcp-workbench/git-API_KEY-2"] == "hunter3hunter3"
    assert "nothing is new" in shell(tmp_path, "--update", "--yes", env=env).stderr


def test_change_that_was_left_out_comes_with_the_next_one(tmp_path: Path) -> None:
    set_up(tmp_path, {"git": twin("one"), "clock": CLOCK})
    write(tmp_path, ".cursor/mcp.json", {"git": twin("two"), "clock": CLOCK})
    assert typed(tmp_path, "y\nnone\n").status == 0 and '"one"' in config_of(tmp_path).read_text()
    write(tmp_path, ".cursor/mcp.json", {"git": twin("two", args=["--slow"]), "clock": CLOCK})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    assert '"two"' in config_of(tmp_path).read_text() and '"--slow"' in config_of(tmp_path).read_text()


def test_server_that_is_disabled_in_the_configuration_is_there(tmp_path: Path) -> None:
    set_up(tmp_path, {"git": OTHER, "clock": CLOCK})
    config = json.loads(config_of(tmp_path).read_text())
    config["toolboxes"]["code"]["mcpServers"]["git"]["disabled"] = True
    config_of(tmp_path).write_text(json.dumps(config))
    for record in (tmp_path / ".local/state/mcp-workbench/imported").iterdir():
        record.unlink()
    done = shell(tmp_path, "--update", "--yes")
    assert "nothing is new" in done.stderr, done.stderr
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK})
    done = shell(tmp_path, "--update", "--dry-run", "--yes")
    assert " 1  gone  git " in done.stderr, done.stderr


@pytest.mark.parametrize(("answer", "kept"), [("2", {"git": "two"}), ("b", {"git": "one", "git-kiro": "two"})])
def test_answer_of_the_twin_question_is_remembered(tmp_path: Path, answer: str, kept: dict[str, str]) -> None:
    write(tmp_path, ".cursor/mcp.json", {"git": twin("one")})
    write(tmp_path, ".kiro/settings/mcp.json", {"git": twin("two")})
    done = asked(tmp_path, f"y\n{answer}\n\n\n")
    assert done.status == 0 and levels(tmp_path) == kept, done.stderr
    if answer == "2":
        assert "Cursor still starts its own" in done.stderr and "install kiro cursor adds" in done.stderr
    for words in (("--yes",), ("--yes", "--from", "cursor"), ("--yes", "--from", "kiro")):
        again = shell(tmp_path, "--update", *words)
        assert again == Done(0, "", "note: nothing is new, changed or gone in your clients\n"), "it was answered"
    again = typed(tmp_path, "y\n")
    assert again.status == 0 and "Keep which?" not in again.stderr and levels(tmp_path) == kept
    # What the kept one says now is taken over, under its name.
    write(tmp_path, ".kiro/settings/mcp.json", {"git": twin("three")})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    assert levels(tmp_path) == {**kept, list(kept)[-1]: "three"}
    # Without it, the other is what there is.
    (tmp_path / ".kiro/settings/mcp.json").unlink()
    write(tmp_path, ".kiro/settings/mcp.json", {})
    last = shell(tmp_path, "--update", "--dry-run", "--yes")
    assert ("gone  git-kiro" if answer == "b" else "changed  git ") in last.stderr, last.stderr


def test_twin_in_another_client_does_not_replace_the_existing_server(tmp_path: Path) -> None:
    """Neither without a question nor under a second name."""
    write(tmp_path, ".kiro/settings/mcp.json", {"git": twin("two")})
    assert shell(tmp_path, "--yes", "--no-check").status == 0
    write(tmp_path, ".cursor/mcp.json", {"git": twin("one")})
    done = shell(tmp_path, "--update", "--yes")
    assert done.status == 0 and "git (Cursor): left out: that of Kiro is taken over" in done.stderr
    assert levels(tmp_path) == {"git": "two"}


@pytest.mark.parametrize("is_asked", [True, False])
def test_declined_twin_does_not_replace_the_kept_one_that_install_took_out_of_its_client(
    tmp_path: Path, is_asked: bool
) -> None:
    write(tmp_path, ".cursor/mcp.json", {"git": twin("one")})
    for path in (".kiro/settings/mcp.json", ".gemini/antigravity/mcp_config.json"):
        write(tmp_path, path, {"git": twin("two")})
    done = asked(tmp_path, "y\n1\n\n\n") if is_asked else shell(tmp_path, "--yes", "--no-check")
    assert done.status == 0 and levels(tmp_path) == {"git": "one"}, done.stderr
    write(tmp_path, ".cursor/mcp.json", {"workbench": {"command": "mcp-workbench", "args": ["serve"]}})
    for words in ((), ("--from", "kiro"), ()):
        again = shell(tmp_path, "--update", "--yes", *words)
        assert again == Done(0, "", "note: nothing is new, changed or gone in your clients\n")
    assert levels(tmp_path) == {"git": "one"}


def test_server_that_comes_to_another_client_has_a_name_of_its_own(tmp_path: Path) -> None:
    """The one of that name was taken out of its client by `install --replace`, or its client was not read."""
    set_up(tmp_path, {"clock": CLOCK, "git": OTHER})
    write(tmp_path, ".kiro/settings/mcp.json", {"git": {"command": "third"}})
    done = shell(tmp_path, "--update", "--dry-run", "--yes", "--from", "kiro")
    assert " 1  new  git-kiro " in done.stderr, done.stderr
    write(tmp_path, ".cursor/mcp.json", {"workbench": {"command": "mcp-workbench", "args": ["serve"]}})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    servers = json.loads(config_of(tmp_path).read_text())["toolboxes"]["code"]["mcpServers"]
    assert servers == {"git": OTHER, "git-kiro": {"command": "third"}}


def test_another_server_of_the_name_of_ours_is_never_changed(tmp_path: Path) -> None:
    set_up(tmp_path, {"clock": CLOCK, "git": OTHER})
    write(tmp_path, ".kiro/settings/mcp.json", {"git": {"command": "third"}})
    assert shell(tmp_path, "--update", "--yes", "--no-check").status == 0
    write(tmp_path, ".kiro/settings/mcp.json", {"git": {"command": "third", "args": ["more"]}})
    for words in ((), ("--from", "kiro")):
        assert shell(tmp_path, "--update", "--yes", "--no-check", *words).status == 0
        servers = json.loads(config_of(tmp_path).read_text())["toolboxes"]["code"]["mcpServers"]
        assert servers == {"git": OTHER, "git-kiro": {"command": "third", "args": ["more"]}}


def test_clients_that_start_the_workbench_are_not_told_to_add_it(tmp_path: Path) -> None:
    own = {"workbench": {"command": "mcp-workbench", "args": ["serve"]}}
    set_up(tmp_path, {"clock": CLOCK, **own})
    write(tmp_path, ".cursor/mcp.json", {"clock": CLOCK, "other": CLOCK | {"env": {"LEVEL": "one"}}, **own})
    done = shell(tmp_path, "--update", "--yes")
    assert done.status == 0 and "install cursor --replace removes what the workbench serves from there" in done.stderr


@pytest.mark.parametrize(("answer", "kept"), [("", ["git", "git-work"]), ("1", ["git"])])
def test_twins_whose_names_differ_are_both_kept_unless_one_is_chosen(
    tmp_path: Path, answer: str, kept: list[str]
) -> None:
    write(tmp_path, ".cursor/mcp.json", {"git": twin("one")})
    write(tmp_path, ".kiro/settings/mcp.json", {"git-work": twin("two")})
    done = asked(tmp_path, f"y\n{answer}\n\n\n")
    pair = "`git` in Cursor and `git-work` in Kiro are the same server with a different LEVEL"
    assert f"{pair}. Keep which? [1: Cursor, 2: Kiro, b: both; Enter: both]" in done.stderr
    assert list(levels(tmp_path)) == kept
    config_of(tmp_path).unlink()
    done = shell(tmp_path, "--yes", "--no-check")
    assert f"note: {pair}; both are taken over\n" in done.stderr and list(levels(tmp_path)) == ["git", "git-work"]
