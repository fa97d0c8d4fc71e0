"""`add` and `remove`: a server more or fewer in the configuration, and every other byte stays."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mcp_workbench.cli.flags import parse
from mcp_workbench.engine.config import trust
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.sandbox.machine import this_machine
from mcp_workbench.engine.sandbox.server_sandbox import Owner, home_name
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.secret_store import SecretStore
from mcp_workbench.signin.secrets import dotenv
from tests.cli.commands.test_init import config_of, environment
from tests.cli.in_process import command, live_in
from tests.cli.shell import Done, under
from tests.support import fake_keyring

CLOCK = [sys.executable, "-m", "mcp_workbench", "demo", "clock"]
COMMENTED = """{
  // mine
  "toolboxes": {
    "desk": { "description": "Everyday things",
      "mcpServers": {
        "notes": { "command": "n" }, // the first
      },
    },
    "web": { "description": "The web", "mcpServers": { "fetch": { "command": "f" } } },
  },
}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chain = {**fake_keyring.environment(tmp_path / "keys"), "FAKE_KEYRING_FAULT": "locked"}
    live_in(monkeypatch, tmp_path, {**environment(tmp_path), **chain})
    return tmp_path


def shell(*words: object, typed: str | None = None) -> Done:
    return command(pytest.MonkeyPatch(), *words, typed=typed)


def written(home: Path, text: str = COMMENTED) -> Path:
    path = config_of(home)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def servers_of(path: Path) -> dict[str, Any]:
    boxes = json.loads(path.read_text())["toolboxes"]
    return {f"{box}/{name}": one for box, inside in boxes.items() for name, one in inside["mcpServers"].items()}


@pytest.mark.processes
def test_without_a_configuration_one_is_made_and_the_tools_are_shown(home: Path) -> None:
    done = shell("add", "clock", "--", *CLOCK)
    assert done.status == 0, done.stderr
    assert servers_of(config_of(home)) == {"desk/clock": {"command": CLOCK[0], "args": CLOCK[1:]}}
    assert stat.S_IMODE(config_of(home).stat().st_mode) == 0o600
    assert "desk     clock   ready" in done.stdout and "\nnow" in done.stdout
    assert f"note: clock: added to toolbox desk in {under(home, config_of(home))}" in done.stderr
    assert "the toolbox desk is new" in done.stderr


@pytest.mark.processes
def test_a_server_that_does_not_work_is_added_and_reported(home: Path) -> None:
    done = shell("add", "broken", "--toolbox", "desk", "--", sys.executable, "-c", "raise SystemExit('no luck')")
    assert done.status == 1
    assert "no luck" in done.stdout and "mcp-workbench remove desk/broken" in done.stderr
    assert "desk/broken" in servers_of(config_of(home))


def test_everything_else_in_the_file_stays_to_the_byte_and_remove_restores_it(home: Path) -> None:
    path = written(home)
    done = shell("add", "time", "--no-check", "--share", "user", "--", "uvx", "mcp-server-time", "--zone=UTC")
    assert done.status == 0, done.stderr
    assert "note: agents choose the toolbox desk by its description; edit it there if it does not" in done.stderr
    new = '        "time": {\n          "command": "uvx",\n          "args": ["mcp-server-time", "--zone=UTC"],\n'
    new += '          "share": "user"\n        },\n'
    before = '        "notes": { "command": "n" }, // the first\n'
    assert path.read_text() == COMMENTED.replace(before, before + new)
    done = shell("remove", "desk/time")
    assert done == Done(0, f"time: removed from toolbox desk in {under(home, path)}\n", "")
    assert path.read_text() == COMMENTED


def test_removing_the_last_server_of_a_toolbox_removes_the_toolbox_and_the_last_of_all_is_refused(home: Path) -> None:
    path = written(home)
    assert shell("remove", "fetch").status == 0
    assert '"web"' not in path.read_text() and "// mine" in path.read_text()
    done = shell("remove", "notes")
    assert done.status == 2 and "`notes` is the only server in" in done.stderr
    done = shell("remove", "note")
    assert done.status == 2 and "did you mean `notes`?" in done.stderr


def test_a_name_in_several_toolboxes_has_to_be_said_in_full(home: Path) -> None:
    path = written(home)
    assert shell("add", "notes", "--toolbox", "web", "--no-check", "--", "x").status == 0
    done = shell("remove", "notes")
    assert done.status == 2 and "it can be `desk/notes` or `web/notes`" in done.stderr
    assert shell("remove", "web/notes").status == 0
    assert path.read_text() == COMMENTED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], "`x` needs a program, an address"),
        (["--", "uvx"], "the server needs a name"),
        (["x", "localhost:8080/mcp"], "for example: http://localhost:8080/mcp"),
        (["x", "uvx", "y"], "unexpected argument `y`\n\nhint: a program goes after --, for example"),
        (["x", "npm:files", "my files"], "go after --: mcp-workbench add x npm:files -- 'my files'\n"),
        (["x", "missing.json"], "the server.json `missing.json` does not exist"),
        (["x", "--env", "hunter2", "--", "y"], "--env takes NAME=VALUE\n"),
        (["x", "https://x.example", "--env", "hunter2="], "an address takes no variables, found --env\n"),
        (["x", "--header", "A=b", "--", "y"], "a program takes no headers"),
        (["x", "https://x.example", "--env", "A=b"], "an address takes no variables"),
        (["x", "--share", "nobody", "--", "y"], "$.toolboxes.desk.mcpServers.x.share"),
        (["notes", "--toolbox", "desk", "--", "y"], "toolbox `desk` already has a server `notes`"),
        (["postgres", "--", "y"], "which toolbox should it go into: `desk`, `web`?"),
    ],
)
def test_a_failed_add_changes_nothing(home: Path, words: list[str], said: str) -> None:
    path = written(home)
    if "nobody" in words:
        words = [*words[:1], "--toolbox", "desk", *words[1:]]
    done = shell("add", *words)
    assert done.status == 2 and said in done.stderr, done.stderr
    assert path.read_text() == COMMENTED and not done.stdout and "hunter" not in done.stderr
    assert not (path.parent / "secrets").exists()


def test_a_plain_file_gets_the_server_beside_the_others(home: Path) -> None:
    path = home / "plain.json"
    path.write_text('{"mcpServers": {"a": {"command": "a"}}}\n')
    assert shell("add", "b", "--config", path, "--no-check", "--", "b").status == 0
    assert path.read_text() == '{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}\n'
    done = shell("add", "c", "--toolbox", "desk", "--config", path, "--", "c")
    assert done.status == 2 and "has no toolboxes" in done.stderr
    assert shell("remove", "b", "--config", path).stdout == f"b: removed in {under(home, path)}\n"


@pytest.mark.parametrize("text", ["{}", '{"toolboxes": {}} // mine', '{"mcpServers": {}}', '{"face": "auto"}'])
def test_a_file_without_servers_gets_its_first(home: Path, text: str) -> None:
    path = written(home, text)
    assert shell("add", "time", "--no-check", "--", "uvx", "mcp-server-time").status == 0
    assert '"time":{"command":"uvx","args":["mcp-server-time"]}' in "".join(path.read_text().split())
    assert ("// mine" in text) is ("// mine" in path.read_text())
    assert shell("check").status == 0


@pytest.mark.parametrize("text", ["[]", "{", '{"face": "none"}', '{"toolboxes": []}'])
def test_other_mistakes_are_still_refused(home: Path, text: str) -> None:
    path = written(home, text)
    done = shell("add", "time", "--no-check", "--", "uvx", "mcp-server-time")
    assert done.status == 2 and under(home, path) in done.stderr and path.read_text() == text


def test_a_file_of_another_program_and_one_in_another_encoding_are_not_edited(home: Path) -> None:
    path = home / "claude.json"
    path.write_text('{"numStartups": 3, "mcpServers": {"a": {"command": "a"}}}')
    done = shell("add", "b", "--config", path, "--", "b")
    assert done.status == 2 and "also holds `numStartups`, so it belongs to another program" in done.stderr


@pytest.mark.requirement("config.trust")
def test_a_trusted_file_stays_trusted_and_one_that_is_not_is_not_edited(home: Path) -> None:
    path = home / "workbench-config.json"
    path.write_text(COMMENTED)
    done = shell("add", "x", "--toolbox", "web", "--no-check", "--", "x")
    assert done.status == 2 and "is not trusted yet" in done.stderr
    trust.trust(str(path), path.read_bytes())
    assert shell("add", "x", "--toolbox", "web", "--no-check", "--", "x").status == 0
    assert trust.verdict(str(path), path.read_bytes()) is trust.TrustVerdict.TRUSTED
    assert shell("remove", "x").status == 0
    assert trust.verdict(str(path), path.read_bytes()) is trust.TrustVerdict.TRUSTED
    assert path.read_text() == COMMENTED


def test_literal_secrets_become_references_and_an_older_file_of_secrets_stays(home: Path) -> None:
    path = written(home)
    words = ["--env", "API_TOKEN=hunter2hunter2", "--env", "LEVEL=debug", "--no-check", "--", "x"]
    assert shell("add", "x", "--toolbox", "web", *words).status == 0
    done = shell("add", "x", "--toolbox", "desk", *words)
    assert done.status == 0 and done.stderr.count("x: API_TOKEN\n") == 1
    assert "stored in files that only you can read in" in done.stderr
    assert "hunter2" not in path.read_text() + done.stdout + done.stderr
    assert '"envFile": "secrets/x-2.env"' in path.read_text() and '"LEVEL": "debug"' in path.read_text()
    for name in ("x.env", "x-2.env"):
        file = path.parent / "secrets" / name
        assert file.read_text() == "API_TOKEN='hunter2hunter2'\n" and stat.S_IMODE(file.stat().st_mode) == 0o600
    done = shell("remove", "desk/x")
    assert done.stderr == "note: its variables are still in `secrets/x-2.env`, next to the configuration\n"


@pytest.mark.processes
def test_with_a_keychain_secrets_go_there_and_no_other_entry_is_overwritten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEYRING_FAULT", "")
    path = written(home)
    for box, secret in (("desk", "hunter2hunter2"), ("web", "hunter3hunter3")):
        words = ["--header", f"Authorization: Bearer {secret}", "--toolbox", box, "--no-check"]
        assert shell("add", "x", "https://x.example/mcp", *words).status == 0
    kept = json.loads((home / "keys").read_text())
    assert kept == {
        "mcp-workbench/x-X_AUTHORIZATION": "hunter2hunter2",
        "mcp-workbench/x-X_AUTHORIZATION-2": "hunter3hunter3",
    }
    assert "Bearer ${keyring:x-X_AUTHORIZATION-2}" in path.read_text()
    done = shell("remove", "web/x")
    assert "mcp-workbench secret remove x-X_AUTHORIZATION-2 deletes it" in done.stderr


SERVER_JSON = {
    "name": "io.example/weather",
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@x/weather",
            "version": "1.0.0",
            "transport": {"type": "stdio"},
            "packageArguments": [{"type": "named", "name": "--units", "isRequired": True, "choices": ["c", "f"]}],
            "environmentVariables": [
                {"name": "WEATHER", "description": "your key", "isRequired": True, "isSecret": True},
                {"name": "PLACE", "isRequired": True, "default": "Berlin"},
                {"name": "OPTIONAL"},
            ],
        }
    ],
    "remotes": [{"type": "sse", "url": "https://weather.example/sse"}],
}


def described(home: Path) -> Path:
    program = home / "bin" / "npx"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = home / "server.json"
    path.write_text(json.dumps(SERVER_JSON))
    return path


def test_required_inputs_of_a_server_json_are_asked_for_at_a_terminal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(home)
    monkeypatch.setattr("getpass.getpass", lambda prompt: "my-own-key" if "your key; secret" in prompt else "")
    done = shell("add", "weather", described(home), "--toolbox", "web", "--no-check", typed="y\nk\nf\n\n")
    assert done.status == 0, done.stderr
    assert done.stderr.count("units (one of c, f): ") == 2, "what is none of them is asked again"
    shown = done.stderr.partition("Add it? [y/N]")[0]
    assert (
        "npx -y -- @x/weather@1.0.0 --units '<units>'\n  with the variables WEATHER='<WEATHER>', PLACE=Berlin\n"
        in shown
    )
    assert "one of c, f" not in shown, "nothing is asked for before it is agreed to"
    assert "PLACE [Berlin]: " in done.stderr and "my-own-key" not in path.read_text() + done.stderr
    text = path.read_text()
    assert '"args": ["-y", "--", "@x/weather@1.0.0", "--units", "f"]' in text and '"PLACE": "Berlin"' in text
    assert '"envFile": "secrets/weather.env"' in text and "OPTIONAL" not in text
    assert (path.parent / "secrets/weather.env").read_text() == "WEATHER='my-own-key'\n"
    assert "it also offers https://weather.example/sse" in done.stderr
    assert "it also takes `OPTIONAL`; --env NAME=VALUE gives one" in done.stderr


def test_in_a_pipe_it_is_refused_by_name_and_can_be_given(home: Path) -> None:
    path, file = written(home), described(home)
    done = shell("add", "weather", file, "--toolbox", "web", "--no-check")
    assert done.status == 2 and path.read_text() == COMMENTED
    assert "for them:\n  units (one of c, f)\n  WEATHER (your key; secret, not shown)\n" in done.stderr
    given = ["--env", "units=c", "--env", "WEATHER=${WEATHER_KEY}", "--env", "EXTRA=${EXTRA}"]
    done = shell("add", "weather", file, "--toolbox", "web", "--no-check", *given, "--", "--verbose")
    assert (
        done.status == 2
        and "hint: review it, then run this again with --yes" in done.stderr
        and path.read_text() == COMMENTED
    )
    assert "npx -y -- @x/weather@1.0.0 --units c --verbose\n" in done.stderr
    assert "  with the variables WEATHER='<WEATHER>', PLACE=Berlin, EXTRA='${EXTRA}'\n" in done.stderr
    done = shell("add", "weather", file, "--toolbox", "web", "--no-check", "--yes", *given, "--", "--verbose")
    assert done.status == 0, done.stderr
    text = path.read_text()
    assert '"WEATHER": "${WEATHER_KEY}"' in text and '"EXTRA": "${EXTRA}"' in text and '"PLACE": "Berlin"' in text
    assert '"args": ["-y", "--", "@x/weather@1.0.0", "--units", "c", "--verbose"]' in text
    done = shell("add", "other", file, "--toolbox", "web", "--env", "units=k", "--env", "WEATHER=${W}")
    assert done.status == 2 and "`units` takes one of `c`, `f`, found `k`" in done.stderr


def test_where_no_program_for_its_package_is_here_the_address_is_taken(home: Path) -> None:
    path = written(home)
    file = described(home)
    (home / "bin" / "npx").unlink()
    done = shell("add", "weather", file, "--toolbox", "web", "--no-check", "--yes")
    assert done.status == 0 and '"url": "https://weather.example/sse"' in path.read_text()


def test_the_input_may_end_in_the_middle(home: Path) -> None:
    path = written(home)
    done = shell("add", "weather", described(home), "--toolbox", "web", typed="")
    assert done.status == 2 and "nothing was added" in done.stderr and path.read_text() == COMMENTED


@pytest.mark.parametrize("answer", ["", "\n", "n\n"])
def test_foreign_description_is_added_only_after_yes(home: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    path = written(home)
    monkeypatch.setattr("getpass.getpass", lambda prompt: pytest.fail("asked for a key"))
    monkeypatch.setenv("FAKE_KEYRING_FAULT", "")
    done = shell("add", "weather", described(home), "--toolbox", "web", typed=answer)
    assert done.status == 2 and "error: nothing was added" in done.stderr, done.stderr
    assert "Start it once, to see its tools? [y/N]" in done.stderr and path.read_text() == COMMENTED
    assert not (home / "keys").exists() and shell("secret", "list").stdout == ""


def test_where_the_server_is_not_added_no_secret_of_it_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home)
    words = ["add", "gh", "--toolbox", "web", "--env", "API_TOKEN=hunter2hunter2", "--no-check", "--", "x"]
    path.chmod(0o400)
    done = shell(*words)
    assert done.status == 2 and "is read-only" in done.stderr and not (path.parent / "secrets").exists()
    path.chmod(0o600)

    def failing(*arguments: object) -> None:
        raise ConfigError("the disk is full")

    monkeypatch.setattr("mcp_workbench.setup.own_configuration.replace_file", failing)
    for fault in ("locked", ""):
        monkeypatch.setenv("FAKE_KEYRING_FAULT", fault)
        done = shell(*words)
        assert done.status == 2 and "the disk is full" in done.stderr and not (path.parent / "secrets").exists()
    assert json.loads((home / "keys").read_text()) == {}
    monkeypatch.undo()


def test_values_come_back_as_they_were_and_files_have_names(tmp_path: Path) -> None:
    values = {"A": "a\rb", "B": "a\r\nb'c\\", "C": "plain", "D": "it's"}
    with SecretStore(str(tmp_path), note=pytest.fail) as store:
        store._has_keychain = False
        for name, value in values.items():
            assert store.keep("..", name, value) == f"${{{name}}}"
        store.write()
    file = tmp_path / "secrets" / "server.env"
    assert dotenv.parse(file.read_bytes().decode()) == values


class Registry(BaseHTTPRequestHandler):
    """Two servers; everything else is not found."""

    def do_GET(self) -> None:
        status, answer = 404, b"{}"
        for each in (SERVER_JSON, PLAIN):
            if self.path == f"/v0/servers/{quote(str(each['name']), safe='')}/versions/latest":
                status, answer = 200, json.dumps({"server": each, "_meta": {}}).encode()
        if status == 200:
            pass
        elif self.path.startswith("/v0/servers?search=git+hub&"):
            counted = {"server": {**SERVER_JSON, "description": "Tells it"}, "_meta": {"x": {"download_count": 12345}}}
            other = {"server": {"name": "io.other/odd", "packages": [{"registryType": "deb", "identifier": "x"}]}}
            status, answer = 200, json.dumps({"servers": [counted, other, counted]}).encode()
        elif self.path.startswith("/v0/servers?search=nothing"):
            status, answer = 200, b'{"servers": []}'
        elif self.path.startswith("/v0/servers?search=wether"):
            status, answer = 200, json.dumps({"servers": [{"server": SERVER_JSON}]}).encode()
        elif "broken" in self.path:
            status = 500
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.processes
def test_a_name_is_looked_up_in_the_registry_of_the_configuration(home: Path, registry: str) -> None:
    alone = written(home, json.dumps({"registry": registry}))
    assert shell("add", "weather", "io.example/weather", "--no-check", "--yes").status == 0
    assert registry in alone.read_text() and "weather.example" in alone.read_text()
    path = written(home, COMMENTED.replace("// mine", f'"registry": "{registry}",'))
    done = shell("add", "weather", "io.example/weather", "--toolbox", "web", "--no-check", "--yes")
    assert done.status == 0 and '"url": "https://weather.example/sse"' in path.read_text(), done.stderr
    done = shell("add", "w", "io.example/wether", "--toolbox", "web")
    assert done.status == 1
    assert (
        f"the registry `{registry}` has no server `io.example/wether`; did you mean `io.example/weather`?"
        in done.stderr
    )
    done = shell("add", "w", "io.example/broken", "--toolbox", "web")
    assert done.status == 1 and "answered with status 500" in done.stderr


@contextlib.contextmanager
def answering(*pieces: bytes, until: threading.Event | None = None) -> Iterator[str]:
    """An address where every request is answered with these bytes; with `until`, again and again until it is set."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    for piece in pieces:
                        connection.sendall(piece)
                    while until is not None and not until.wait(0.01):
                        connection.sendall(b" ")

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"garbage\r\n\r\n", "cannot be reached: garbage"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
            "it broke off 98 bytes before the end",
        ),
        (b"", "cannot be reached: Remote end closed connection"),
    ],
)
def test_an_answer_of_a_registry_that_is_none_is_reported(home: Path, answer: bytes, why: str) -> None:
    with answering(answer) as registry:
        path = written(home, COMMENTED.replace("// mine", f'"registry": "{registry}",'))
        done = shell("add", "weather", "io.example/weather", "--toolbox", "web")
    assert done.status == 1 and why in done.stderr and "weather" not in path.read_text(), done.stderr


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_registry_that_drips_does_not_hold_the_command(
    home: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr("mcp_workbench.setup.mcp_registry.REGISTRY_TIMEOUT", 0.2)
    ended = threading.Event()
    with answering(head, until=ended) as registry:
        written(home, COMMENTED.replace("// mine", f'"registry": "{registry}",'))
        done = shell("add", "weather", "io.example/weather", "--toolbox", "web")
        ended.set()
    assert done.status == 1 and "cannot be reached: timed out" in done.stderr


def test_without_network_the_error_says_so(home: Path) -> None:
    path = written(home, COMMENTED.replace("// mine", '"registry": "http://127.0.0.1:9",'))
    before = path.read_text()
    done = shell("add", "weather", "io.example/weather", "--toolbox", "web")
    assert done.status == 1 and path.read_text() == before
    assert "error: the registry `http://127.0.0.1:9` cannot be reached: Connection refused" in done.stderr
    assert "hint: check the network, or pass a server.json" in done.stderr


def test_words_behind_dashes_are_distinguished_from_those_before() -> None:
    assert parse(["a", "--", "b", "--c"], (), positionals=None).before_dashes == 1
    assert parse(["a", "b"], (), positionals=None).before_dashes is None


def test_marks_line_ends_and_links_of_the_file_stay(home: Path) -> None:
    before = "\ufeff" + COMMENTED.replace("\n", "\r\n")
    real = home / "real.json"
    real.write_bytes(before.encode())
    path = config_of(home)
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    assert shell("add", "x", "--toolbox", "web", "--no-check", "--", "x").status == 0
    after = real.read_bytes().decode()
    assert path.is_symlink() and after.startswith("\ufeff{\r\n") and after.count("\n") == after.count("\r\n")
    assert shell("remove", "x").status == 0 and real.read_bytes() == before.encode()


def test_a_file_that_cannot_be_written_or_understood_is_left_as_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(home)
    path.chmod(0o400)
    done = shell("add", "x", "--toolbox", "web", "--no-check", "--", "x")
    assert done.status == 2 and "is read-only" in done.stderr and path.read_text() == COMMENTED
    path.chmod(0o600)

    def changed(file: Any, content: bytes) -> None:
        path.write_text("{}")

    monkeypatch.setattr("mcp_workbench.setup.own_configuration.OwnConfiguration.check", changed)
    done = shell("add", "x", "--toolbox", "web", "--no-check", "--", "x")
    assert done.status == 2 and "has been changed by another program meanwhile" in done.stderr
    assert path.read_text() == "{}"
    monkeypatch.undo()


def test_a_file_in_another_encoding_is_not_edited(home: Path) -> None:
    path = written(home)
    path.write_bytes(COMMENTED.encode("utf-16"))
    before = path.read_bytes()
    done = shell("add", "x", "--toolbox", "web", "--no-check", "--", "x")
    assert done.status == 2 and path.read_bytes() == before


@pytest.mark.requirement("cli.add-shown")
def test_foreign_entry_is_shown_whole_with_unusual_parts_marked(home: Path) -> None:
    path, file = written(home), described(home)
    document = {
        "packages": [
            {
                "registryType": "oci",
                "identifier": "registry.example/x/y",
                "runtimeArguments": [
                    {"type": "named", "name": "--mount", "value": "type=bind,src=/etc,dst=/etc"},
                    {"type": "named", "name": "-v", "value": "/:/host"},
                    {"type": "positional", "value": "--privileged"},
                ],
                "environmentVariables": [
                    {"name": "LEVEL", "value": "info"},
                    {"name": "API_TOKEN", "value": "sk-abcdefghijklmnop"},
                    {"name": "MINE", "isRequired": True},
                ],
            }
        ]
    }
    file.write_text(json.dumps(document))
    given = ["--env", "MINE=ghp_abcdefghijklmnopqrstuvwxyz0123456789"]
    done = shell("add", "y", file, "--toolbox", "web", "--no-check", *given, typed="n\n")
    assert done.status == 2 and path.read_text() == COMMENTED
    assert "LEVEL=info, API_TOKEN=sk-abcdefghijklmnop" in done.stderr and "ghp_" not in done.stderr
    assert "  the container gets type=bind,src=/etc,dst=/etc of this machine\n" in done.stderr
    assert "  the container gets /:/host of this machine\n" in done.stderr
    assert "  the container has more rights than usual: --privileged\n" in done.stderr
    assert "  the image comes from the registry registry.example\n" in done.stderr


def test_a_way_that_is_refused_is_named_beside_the_one_that_is_taken(home: Path) -> None:
    path, file = written(home), described(home)
    document = json.loads(file.read_text())
    document["packages"][0]["environmentVariables"].append({"name": "NODE_OPTIONS", "value": "--import=data:text/x"})
    file.write_text(json.dumps(document))
    done = shell("add", "weather", file, "--toolbox", "web", "--no-check", "--yes")
    assert done.status == 0 and '"url": "https://weather.example/sse"' in path.read_text()
    assert "warning: the npm package @x/weather 1.0.0 sets the variable `NODE_OPTIONS`" in done.stderr


@pytest.mark.processes
def test_registry_search_shows_publisher_and_command(
    home: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(home, COMMENTED.replace("// mine", f'"registry": "{registry}",'))
    before = path.read_bytes()
    done = shell("add", "--search", "git", "hub")
    assert done.status == 0, done.stderr
    rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    assert rows[1][:3] == ["io.example/weather", "io.example", "12,345"] and "npx" in rows[1][3]
    assert "https://weather.example/sse" in done.stdout and "Tells it" in done.stdout
    assert done.stdout.count("io.example/weather") == 1 and "cannot be run here" in done.stdout
    path.write_text(COMMENTED.replace("// mine", '"registry": "recorded",'))
    before = path.read_bytes()
    shutil.copytree(Path(__file__).parents[2] / "setup" / "recorded_registry", path.parent / "recorded")
    done = shell("add", "--search", "git")
    assert done.status == 0 and "downloads" not in done.stdout.lower() and "example-three/gitea" in done.stdout
    shown = command(monkeypatch, "add", "--search", "git", width=80).stdout
    for whole in ("io.github.example-one/git-history", "  npx -y -- @example-one/git-history@1.4.0\n"):
        assert whole in shown
    assert shell("add", "--search", "nothing").status == 1 and path.read_bytes() == before
    assert shell("add", "--search").status == 2


@pytest.fixture
def pinned(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """npm knows one version. Returns the entries that are tried."""
    answer = json.dumps({"version": "1.3.0", "dist.integrity": "sha512-abc"})
    for name, script in (("npm", f"echo '{answer}'"), ("npx", "")):
        (home / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin" / name).chmod(0o755)
    tried: list[dict[str, Any]] = []

    def started(path: str, toolbox: str, name: str, *, as_path: str | None = None) -> str:
        assert as_path != str(config_of(home)), "its private home is not the one that it will have"
        tried.append(json.loads(Path(path).read_bytes())["toolboxes"][toolbox]["mcpServers"][name])
        address = tried[-1].get("url", "")
        return "needs sign-in" if "sign-in" in address else "failed" if "broken" in str(tried[-1]) else "ready"

    monkeypatch.setattr("mcp_workbench.cli.commands.add._started", started)
    return tried


@pytest.mark.processes
def test_a_package_is_pinned_and_tried_in_a_sandbox_before_it_is_asked_about(
    home: Path, pinned: list[dict[str, Any]]
) -> None:
    path = written(home)
    before = path.read_bytes()
    expected = {"command": "npx", "args": ["-y", "--", "@s/memory@1.3.0"], "sandbox": "contained"}
    done = shell("add", "memory", "npm:@s/memory", "--toolbox", "desk", typed="n\n")
    assert done.status == 2 and "nothing was added" in done.stderr and pinned == [expected]
    assert path.read_bytes() == before
    assert shell("add", "memory", "npm:@s/memory", "--toolbox", "desk", typed="y\n").status == 0
    assert "@s/memory@1.3.0" in path.read_text() and '"sandbox": "contained"' in path.read_text()
    assert pinned == [expected] * 2, "once each time, and not again after it was added"


@pytest.mark.processes
def test_a_package_that_does_not_start_is_not_added(home: Path, pinned: list[dict[str, Any]]) -> None:
    path = written(home)
    before = path.read_bytes()
    done = shell("add", "memory", "npm:broken", "--toolbox", "desk", "--yes")
    assert done.status == 2 and "it does not start in the sandbox `contained`" in done.stderr
    assert "--no-check" in done.stderr and path.read_bytes() == before and len(pinned) == 1
    done = shell("add", "memory", "npm:broken", "--toolbox", "desk")
    assert done.status == 2 and "there is no terminal to ask" in done.stderr and len(pinned) == 1
    assert shell("add", "memory", "npm:broken", "--toolbox", "desk", "--yes", "--no-check").status == 0
    assert len(pinned) == 1


PLAIN = {
    "name": "io.example/plain",
    "packages": [{"registryType": "npm", "identifier": "@x/plain", "version": "1.0.0"}],
}


@pytest.mark.processes
@pytest.mark.parametrize("source", ["server.json", "io.example/plain", "npm:@x/plain"])
def test_a_package_goes_the_same_way_wherever_it_is_named(
    home: Path, pinned: list[dict[str, Any]], registry: str, source: str
) -> None:
    path = written(home, COMMENTED.replace("// mine", f'"registry": "{registry}",'))
    before = path.read_bytes()
    (home / "server.json").write_text(json.dumps(PLAIN))
    expected = {"command": "npx", "args": ["-y", "--", "@x/plain@1.3.0"], "sandbox": "contained"}
    words = ["add", "plain", str(home / source) if "." in source and "/" not in source else source]
    done = shell(*words, "--toolbox", "desk", typed="n\n")
    assert done.status == 2 and pinned == [expected] and path.read_bytes() == before, done.stderr
    assert done.stderr.count("[y/N]") == 1 and "Add it? [y/N]" in done.stderr
    assert "npx -y -- @x/plain@1.3.0\n" in done.stderr.partition("Add it?")[0]
    assert shell(*words, "--toolbox", "desk", typed="y\n").status == 0
    assert '"sandbox": "contained"' in path.read_text() and pinned == [expected] * 2
    assert json.loads((path.parent / "workbench.lock").read_text())["toolboxes"]["desk"]["plain"] == {
        "package": "npm:@x/plain@1.3.0",
        "integrity": ["sha512-abc"],
        "sandbox": "contained",
    }


@pytest.mark.processes
def test_a_package_gets_a_key_only_after_a_yes_and_the_key_is_stored_only_after_another(
    home: Path, pinned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = written(home), described(home)
    before = path.read_bytes()
    monkeypatch.setattr("getpass.getpass", lambda prompt: "my-own-key")
    done = shell("add", "weather", file, "--toolbox", "web", typed="y\nf\n\nn\n")
    assert done.status == 2 and path.read_bytes() == before and not (path.parent / "secrets").exists(), done.stderr
    assert done.stderr.index("to see its tools?") < done.stderr.index("units (") < done.stderr.index("Add it?")
    assert pinned[0]["env"] == {"WEATHER": "my-own-key", "PLACE": "Berlin"} and pinned[0]["sandbox"] == "contained"
    done = shell("add", "weather", file, "--toolbox", "web", typed="y\nf\n\ny\n")
    assert done.status == 0 and "my-own-key" not in path.read_text() + done.stdout + done.stderr
    assert (path.parent / "secrets/weather.env").read_text() == "WEATHER='my-own-key'\n"


@pytest.mark.processes
def test_a_container_with_options_of_a_stranger_is_started_only_after_a_yes(
    home: Path, pinned: list[dict[str, Any]]
) -> None:
    path = written(home)
    answer = '["x@sha256:' + "a" * 64 + '"]'
    (home / "bin" / "docker").write_text(f"#!/bin/sh\n[ $1 = pull ] && : > {home}/pulled || echo '{answer}'\n")
    (home / "bin" / "docker").chmod(0o755)
    package = {"registryType": "oci", "identifier": "docker.io/x/y", "version": "1.0"}
    mounts = {"runtimeArguments": [{"type": "named", "name": "-v", "value": "/:/host"}]}
    (home / "plain.json").write_text(json.dumps({"packages": [package]}))
    (home / "mounts.json").write_text(json.dumps({"packages": [{**package, **mounts}]}))
    done = shell("add", "y", home / "mounts.json", "--toolbox", "web", typed="n\n")
    assert done.status == 2 and not pinned and "the container gets /:/host of this machine" in done.stderr
    done = shell("add", "y", home / "plain.json", "--toolbox", "web", typed="n\n")
    assert done.status == 2 and "Pull the image" in done.stderr and not (home / "pulled").exists()
    done = shell("add", "y", home / "plain.json", "--toolbox", "web", "--no-check", typed="n\n")
    assert done.status == 2 and not (home / "pulled").exists() and not pinned
    done = shell("add", "y", home / "plain.json", "--toolbox", "web", typed="y\ny\n")
    assert (home / "pulled").exists()
    assert done.status == 0 and pinned[0]["args"][-1] == "docker.io/x/y@sha256:" + "a" * 64, done.stderr
    assert "sandbox" not in path.read_text(), "a container has limits of its own"


def test_an_address_shows_its_tools_before_it_is_asked_about(home: Path, pinned: list[dict[str, Any]]) -> None:
    path = written(home)
    before = path.read_bytes()
    words = ["add", "docs", "https://docs.example/mcp", "--toolbox", "web"]
    assert shell(*words, typed="n\n").status == 2 and path.read_bytes() == before
    assert shell(*words).status == 2 and len(pinned) == 1, "without a terminal nothing is asked, and nothing connected"
    assert shell(*words, typed="y\n").status == 0 and len(pinned) == 2 and "docs.example" in path.read_text()
    done = shell("add", "no", "https://broken.example/mcp", "--toolbox", "web", "--yes")
    assert done.status == 2 and "it cannot be used" in done.stderr and "--no-check" in done.stderr
    done = shell("add", "mine", "https://sign-in.example/mcp", "--toolbox", "web", typed="")
    assert done.status == 0 and "[y/N]" not in done.stderr and "auth login web/mine" in done.stderr
    assert "it shows its tools only once you have signed in" in done.stderr


def test_a_package_whose_program_is_missing_is_one_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(home)
    before = path.read_bytes()
    (home / "empty").mkdir()
    monkeypatch.setenv("PATH", str(home / "empty"))
    done = shell("add", "fetcher", "pypi:mcp-server-fetch", "--toolbox", "web", "--yes")
    assert (done.status, done.stdout, path.read_bytes()) == (2, "", before)
    assert done.stderr.startswith("error: nothing was added: the program `uvx` is missing\n\nhint: install uv (")
    assert done.stderr.count("hint:") == 1 and "--no-check" not in done.stderr and "warning" not in done.stderr


@pytest.mark.processes
def test_a_package_that_ends_at_once_is_reported_without_the_file_it_was_tried_from(home: Path) -> None:
    written(home)
    for name in ("npm", "npx"):
        (home / "bin" / name).write_text("#!/bin/sh\nexit 3\n")
        (home / "bin" / name).chmod(0o755)
    done = shell("add", "memory", "npm:@s/memory@1.3.0", "--toolbox", "desk", "--yes")
    assert done.status == 2 and "nothing was added: it does not start" in done.stderr
    assert "mcp-workbench remove" not in done.stderr and "correct it in" not in done.stderr
    assert "mcp-workbench doctor --sandbox try desk/memory" in done.stderr


def test_remove_names_files_that_a_server_stored_in_its_sandbox(home: Path) -> None:
    path = written(home)
    owner = Owner(str(path), "web")
    server = ServerConfig(name="fetch", command="f")
    kept = Path(this_machine(str(home)).homes) / home_name(server, owner)
    kept.mkdir(parents=True)
    assert f"still in `{under(home, kept)}`" in shell("remove", "fetch").stderr and kept.is_dir()
    path = written(home)
    assert "sandbox" not in shell("remove", "desk/notes").stderr
