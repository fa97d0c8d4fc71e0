"""Shells complete our command lines, from what is remembered; nothing is started for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.json import encode

from mcp_workbench.cli.commands import completion
from mcp_workbench.cli.commands.completion import SCRIPTS, completed, completed_line
from mcp_workbench.cli.flags import UsageError
from mcp_workbench.cli.usage import COMMAND_GROUPS, COMMANDS
from tests.cli.in_process import carried_out
from tests.support.workbench import write_config


def demo(server: str, *arguments: str) -> dict[str, object]:
    return {"command": sys.executable, "args": ["-m", f"mcp_workbench.cli.demo.{server}", *arguments]}


@pytest.fixture
def config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A configuration whose servers have been listed, but for one that must never be started."""
    never = {"command": sys.executable, "args": ["-c", f"open({str(tmp_path / 'started')!r}, 'w')"]}
    known = {"notes": demo("notes"), "clock": demo("clock")}
    path = write_config(tmp_path, {"desk": known})
    carried_out("list", "--config", path, "--connect")
    capsys.readouterr()
    remote = {"url": "https://example.test/mcp"}
    return write_config(tmp_path, {"desk": known, "other": {"never": never, "remote": remote}})


def words(config: Path, *typed: str) -> list[str]:
    command, *rest = typed
    return [word.partition("\t")[0] for word in completed([command, "--config", str(config), *rest])]


@pytest.mark.requirement("cli.completion")
def test_commands_and_options_are_completed() -> None:
    listed = [name for group in COMMAND_GROUPS.values() for name in group]
    assert [word.partition("\t")[0] for word in completed([""])] == [*listed, "demo"]
    assert completed(["che"]) == [f"check\t{COMMANDS['check'].summary}"]
    assert completed(["auth", "logi"]) == ["login"] and completed(["team", "k"]) == ["key"]
    assert completed(["up", "--rest"]) == [f"--restart\t{COMMANDS['restart'].summary}"]
    assert completed(["install", "--completion", "b"]) == completed(["completion", "b"]) == ["bash"]
    assert [word.partition("\t")[0] for word in completed(["call", "--ou"])] == ["--output"]
    assert "--http\t" in "\n".join(completed(["serve", "--"]))
    assert completed(["nonsense", "--"]) == []
    assert [word.partition("\t")[0] for word in completed(["serve", "--face", ""])] == [
        *("proxy", "flat", "dynamic", "auto")
    ]
    assert completed(["help", "und"]) == ["undo"] and completed(["help", "reli"]) == ["reliability"]
    assert completed(["completion", ""]) == ["bash", "zsh", "fish"]
    assert [word.partition("\t")[0] for word in completed(["install", "claude-code", "claude-"])] == ["claude-desktop"]
    assert [word.partition("\t")[0] for word in completed(["init", "--from", "cod"])] == ["codex"]


@pytest.mark.requirement("cli.completion")
def test_completion_uses_cached_offers_and_starts_nothing(config: Path, tmp_path: Path) -> None:
    assert words(config, "open", "") == ["desk", "other"]
    assert words(config, "find", "--toolbox", "d") == ["desk"]
    assert words(config, "remove", "") == ["notes", "clock", "never", "remote"]
    assert words(config, "login", "") == ["other/remote"]
    assert words(config, "call", "desk/clock/") == ["desk/clock/now", "desk/clock/convert_time", "desk/clock/wait"]
    assert words(config, "call", "--raw", "desk/clock/n") == ["desk/clock/now"]
    assert words(config, "prompt", "") == ["desk/notes/summarize_notes"]
    assert "notes:///index" in words(config, "resource", "notes:")
    assert not (tmp_path / "started").exists()


def test_names_of_arguments_are_completed(config: Path) -> None:
    assert words(config, "call", "desk/clock/convert_time", "") == ["time=", "from_zone=", "to_zone="]
    assert words(config, "call", "desk/clock/convert_time", "time=9", "") == ["from_zone=", "to_zone="]
    assert words(config, "call", "desk", "clock", "now", "z") == ["zone="]
    assert words(config, "call", "now", "") == []
    assert words(config, "call", "desk/clock/no_such", "") == []
    assert words(config, "prompt", "desk/notes/summarize_notes", "") == ["tag="]


def test_values_are_completed_where_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {"mode": {"enum": ["fast", "slow"]}, "deep": {"type": "boolean"}, "text": {}}}
    monkeypatch.setattr(completion, "_definition", lambda *_: {"inputSchema": schema})
    assert completed(["call", "a/b/c", "mode=f"]) == ["mode=fast"]
    assert completed(["call", "a/b/c", "deep="]) == ["deep=true", "deep=false"]
    assert completed(["call", "a/b/c", "text="]) == []


HOSTILE = (
    "x;touch${IFS}made",
    "x`touch made`",
    "x$(touch made)",
    "x|sh",
    "x y",
    "x\ny",
    "x\x1b[2J",
    "x*",
    "x'",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_candidates_with_shell_metacharacters_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"properties": {name: {}, "mode": {"enum": [name, "fast"]}, "odd": {"enum": 5}}}
    offered: dict[str, dict[str, object]] = {
        "tools": {f"t{name}": {}, "ok": {"inputSchema": schema}},
        "prompts": {f"p{name}": {}},
    }
    offered |= {"resources": {name: {}, "file:///ok": {}}}
    names = {kind: {each: encode(about) for each, about in many.items()} for kind, many in offered.items()}
    entry = SimpleNamespace(label="a/s", name="s", tools=names["tools"], definitions=names.__getitem__, config=None)
    catalog = SimpleNamespace(entries=lambda: [entry], described={name: SimpleNamespace(description="")})
    monkeypatch.setattr(completion, "_catalog", lambda rest: catalog)
    assert completed(["call", "a/s/"]) == ["a/s/ok"]
    assert completed(["call", "a/s/ok", ""]) == ["mode=", "odd="]
    assert completed(["call", "a/s/ok", "mode="]) == ["mode=fast"]
    assert completed(["call", "a/s/ok", "odd="]) == []
    assert completed(["prompt", "a/s/p"]) == []
    assert completed(["resource", ""]) == ["file:///ok"]
    assert completed(["open", ""]) == []


def test_no_server_offers_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(definitions=lambda kind: {"--config=x": b"{}", "=ls": b"{}", "file:///ok": b"{}"})
    monkeypatch.setattr(completion, "_catalog", lambda rest: SimpleNamespace(entries=lambda: [entry]))
    assert completed(["resource", ""]) == ["file:///ok"]


def test_unknown_value_matches_no_rule(tmp_path: Path) -> None:
    assert words(tmp_path / "missing.json", "call", "") == []
    (tmp_path / "broken.json").write_text("{")
    assert words(tmp_path / "broken.json", "open", "") == []
    assert completed(["call", "--", "npx", ""]) == []
    assert completed(["call", "--output", ""]) == []


def test_bash_gets_only_the_part_after_its_word_break(config: Path) -> None:
    line = f"mcp-workbench call --config '{config}' desk/clock/convert_time "
    assert completed_line(line) == ["time=", "from_zone=", "to_zone="]
    assert completed_line(f"mcp-workbench call --resource --config {config} notes:///in") == ["///index "]
    assert completed_line("mcp-workbench doc") == ["doctor "]
    assert completed_line("mcp-workbench 'doc") == ["doctor "]
    assert completed_line("mcp-workbench und \"'") == []


def test_the_command_prints_scripts_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried_out("completion", "bash") == 0
    assert capsys.readouterr().out == SCRIPTS["bash"]
    assert carried_out("completion", "words", "--", "doc") == 0
    assert capsys.readouterr().out.startswith("doctor\t")
    assert carried_out("completion", "words", "--line", "mcp-workbench doc") == 0
    assert capsys.readouterr().out == "doctor \n"
    with pytest.raises(UsageError, match="SHELL is bash, zsh or fish, not `tcsh`"):
        carried_out("completion", "tcsh")


BASH = """
source {script}
COMP_LINE="mcp-workbench {typed}"; COMP_POINT=${{#COMP_LINE}}
COMP_WORDS=(mcp-workbench {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_mcp_workbench
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# What zsh's completion would offer, without its line editor.
ZSH = """
compdef() {{ :; }}
compadd() {{ while [[ "$1" != -- ]]; do shift; done; shift; printf '%s\\n' "$@"; }}
_files() {{ print files; }}
source {script}
words=(mcp-workbench {typed}); CURRENT=${{#words}}
_mcp_workbench
"""
FISH = """
source {script}
complete --do-complete 'mcp-workbench {typed}'
"""


@pytest.mark.processes
@pytest.mark.parametrize(("shell", "program"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_shells_complete_with_the_scripts(config: Path, tmp_path: Path, shell: str, program: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"completion.{shell}"
    script.write_text(SCRIPTS[shell])
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "mcp-workbench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mcp_workbench "$@"\n')
    (bin / "mcp-workbench").chmod(0o755)

    def shown(typed: str) -> list[str]:
        import os

        done = subprocess.run(
            [shell, "-c", program.format(script=script, typed=typed)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        )
        assert done.stderr == "", done.stderr
        return [line.partition("\t")[0].strip() for line in done.stdout.splitlines()]

    assert shown("doc") == ["doctor"]
    assert shown(f"call --config {config} desk/clock/n") == ["desk/clock/now"]
    assert shown(f"call --config {config} desk/clock/now z") == ["zone="]


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_names_are_no_patterns_of_files_to_a_shell(tmp_path: Path, shell: str) -> None:
    """Whatever is printed for it: the scripts do not rely on it alone."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"completion.{shell}"
    script.write_text(SCRIPTS[shell])
    program = {"bash": BASH, "zsh": ZSH.replace("compadd() {{ ", 'compadd() {{ [[ "$*" == *-Q* ]] && print raw; ')}[
        shell
    ]
    typed = program.format(script=script, typed="x")
    done = subprocess.run(
        [shell, "-c", f"mcp-workbench() {{ printf '%s\\n' '*' 'a b'; }}\n{typed}"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("*\na b\n", "")
