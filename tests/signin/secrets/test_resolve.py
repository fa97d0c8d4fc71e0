"""What a server refers to is fetched when it starts; what cannot be is named, and no value ever."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.signin.secrets import private_files
from mcp_workbench.signin.secrets import resolve as resolving
from mcp_workbench.signin.secrets.resolve import ReferenceUnresolved, Resolved, look, resolve
from mcp_workbench.signin.secrets.secret_files import MAX_SECRET_BYTES
from mcp_workbench.signin.secrets.servers import ResolvedServers
from tests.engine.config.loading import server_of
from tests.support import fake_keyring
from tests.support.processes import alive, eventually

pytestmark = pytest.mark.processes

SAYS_TOKEN = "import os, sys; sys.exit('no entry for ' + os.environ['TOKEN'])"


def private(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return path


def script(folder: Path, source: str) -> str:
    """A command that runs this Python."""
    path = folder / "program.py"
    path.write_text(source)
    return f"{sys.executable} {path}"


async def resolved(environ: Mapping[str, str] | None = None, **entry: Any) -> Resolved:
    around = {**os.environ, **(environ or {})}
    return await resolve(server_of({"command": "x", **entry} if "url" not in entry else entry, around), around)


async def refused(environ: Mapping[str, str] | None = None, **entry: Any) -> ReferenceUnresolved:
    with pytest.raises(ReferenceUnresolved) as caught:
        await resolved(environ, **entry)
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    return caught.value


@pytest.mark.requirement("secrets.references")
async def test_everything_is_put_in_its_place(tmp_path: Path) -> None:
    token = private(tmp_path / "token", "hunter2-token\n")
    environ = fake_keyring.environment(tmp_path / "keys", svc__name="hunter2-key")
    found = await resolved(
        environ,
        args=["--a", f"x${{file:{token}}}y", "${cmd:printf hunter2-printed}"],
        env={"A": "plain", "B": "${keyring:svc/name}"},
    )
    assert found.config.args == ("--a", "xhunter2-tokeny", "hunter2-printed")
    assert found.config.env == {"A": "plain", "B": "hunter2-key"}
    assert found.config.references == () and found.warnings == ()
    assert {"hunter2-token", "hunter2-printed", "hunter2-key"} <= found.secrets


async def test_addresses_headers_and_clients(tmp_path: Path) -> None:
    token = private(tmp_path / "token", "hunter2-token\r\n")
    found = await resolved(
        url=f"https://a.example/mcp?key=${{file:{token}}}",
        headers={"X": f"Bearer ${{file:{token}}}"},
        oauth={"clientId": "me", "clientSecret": f"${{file:{token}}}"},
    )
    assert found.config.url == "https://a.example/mcp?key=hunter2-token"
    assert found.config.headers == {"X": "Bearer hunter2-token"}
    assert found.config.oauth is not None and found.config.oauth.client_secret == "hunter2-token"
    assert {"hunter2-token", "Bearer hunter2-token"} <= found.secrets


async def test_a_repeated_reference_is_resolved_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    command = script(tmp_path, f"open({str(count)!r}, 'a').write('x'); print('hunter2')")
    found = await resolved(env={"A": f"${{cmd:{command}}}", "B": f"${{cmd:{command}}}"})
    assert found.config.env == {"A": "hunter2", "B": "hunter2"} and count.read_text() == "x"


# ── files ──


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder, expected a file"),
        (lambda path: os.mkfifo(path), "is a pipe or a device, expected a file"),
        (lambda path: private(path, b"x" * (MAX_SECRET_BYTES + 1)), "is larger than 128 KiB"),
        (lambda path: private(path, b"hunter2\xff"), "is not UTF-8 text"),
        (lambda path: private(path, "\n"), "is empty"),
    ],
)
async def test_a_file_that_cannot_be_used(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "token"
    make(path)
    error = await refused(env={"T": f"${{file:{path}}}"})
    assert str(error).startswith(f"`${{file:{path}}}` in `env.T` cannot be resolved: the file `{path}` {words}")
    assert error.hint


async def test_a_file_that_others_can_read_is_used_with_a_warning(tmp_path: Path) -> None:
    path = private(tmp_path / "token", "hunter2")
    path.chmod(0o644)
    found = await resolved(env={"T": f"${{file:{path}}}"})
    assert found.config.env == {"T": "hunter2"}
    assert found.warnings == (f"`{path}` holds secrets and can be read by other users; chmod 600 makes it private",)


@pytest.mark.parametrize(
    ("entry", "content", "words"),
    [
        ({"env": {"T": "${file:F}"}}, "a\0b", "`env.T` contains a NUL character"),
        ({"url": "https://a.example", "headers": {"X": "${file:F}"}}, "a\nb: c", "`headers.X` contains a line break"),
        ({"url": "${file:F}"}, "ftp://hunter2", "`url`, once expanded: found an address with `…`"),
    ],
)
async def test_a_value_that_does_not_fit(tmp_path: Path, entry: Any, content: str, words: str) -> None:
    path = private(tmp_path / "token", content)
    assert words in str(await refused(**eval(repr(entry).replace(":F}", f":{path}}}"))))


# ── files of variables ──


@pytest.mark.requirement("secrets.env-file")
async def test_a_program_gets_the_variables_of_its_file(tmp_path: Path) -> None:
    one = private(tmp_path / "one.env", "A=one\nB=one\nC=hunter2-c\nPORT=8080\n")
    two = private(tmp_path / "two.env", b"\xef\xbb\xbfB=two\r\n")
    found = await resolved({"SET": "set"}, envFile=[str(one), str(two)], env={"A": "own", "D": "${C}-${SET}"})
    assert found.config.env == {"A": "own", "B": "two", "C": "hunter2-c", "D": "hunter2-c-set", "PORT": "8080"}
    assert "hunter2-c" in found.secrets and "8080" not in found.secrets


@pytest.mark.requirement("secrets.env-file")
async def test_an_address_finds_them_too(tmp_path: Path) -> None:
    path = private(tmp_path / ".env", "TOKEN=hunter2\nEMPTY=\n")
    headers = {"X": "Bearer ${TOKEN}", "Y": "${EMPTY:-default}", "Z": "${GONE:-${TOKEN}}"}
    found = await resolved(url="https://a.example", envFile=str(path), headers=headers)
    assert found.config.headers == {"X": "Bearer hunter2", "Y": "default", "Z": "hunter2"}
    assert found.config.env == {}


@pytest.mark.requirement("secrets.env-file")
async def test_the_environment_comes_first(tmp_path: Path) -> None:
    path = private(tmp_path / ".env", "TOKEN=hunter2\n")
    found = await resolved({"TOKEN": "given"}, url="https://a.example", envFile=str(path), headers={"X": "${TOKEN}"})
    assert found.config.headers == {"X": "given"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "`envFile`: the file `{}` does not exist"),
        ("A=1\nhunter2\n", "`envFile`: the file `{}` cannot be understood: line 2 is not `NAME=value`"),
        (
            "OTHER=1\n",
            "`${{GONE}}` in `args.0` cannot be resolved: the variable `GONE` is neither set nor in `envFile`",
        ),
        ("A='x\0y'\n", "`envFile`: `A` in the file `{}` contains a NUL character"),
    ],
)
async def test_a_file_of_variables_that_cannot_be_used(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / ".env"
    if content is not None:
        private(path, content)
    assert words.format(path) in str(await refused(envFile=str(path), args=["${GONE}"]))


# ── programs ──


@pytest.mark.requirement("secrets.commands")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys; print('hunter2'); sys.exit('not signed in')", "failed with status 1: not signed in"),
        ("import os; print('hunter2', flush=True); os.kill(os.getpid(), 15)", "was ended by signal 15"),
        ("print('hunter2' * 2_000_000)", "printed more than 128 KiB"),
        ("print()", "printed nothing"),
        ("import sys; sys.stdout.buffer.write(b'hunter2\\xff')", "printed something that is not UTF-8 text"),
    ],
)
async def test_a_program_that_fails(tmp_path: Path, source: str, words: str) -> None:
    error = await refused(env={"T": f"${{cmd:{script(tmp_path, source)}}}"})
    assert f"in `env.T` cannot be resolved: the program `{sys.executable}` {words}" in str(error)


async def test_a_program_that_says_secrets_is_quoted_without_them(tmp_path: Path) -> None:
    token = private(tmp_path / "token", "hunter2-token")
    source = "import sys; print('hunter2-printed'); sys.exit('cannot use hunter2-token, hunter2-printed')"
    error = await refused(env={"A": f"${{file:{token}}}", "B": f"${{cmd:{script(tmp_path, source)}}}"})
    assert error.message.endswith("failed with status 1: cannot use ***, ***")


async def test_known_secrets_are_not_quoted(tmp_path: Path) -> None:
    environ = {**os.environ, "TOKEN": "hunter2-variable"}
    server = server_of({"command": "x", "env": {"A": f"${{cmd:{script(tmp_path, SAYS_TOKEN)}}}"}}, environ)
    table = ProcessTable()
    servers = ResolvedServers(table, Redactor(["hunter2-variable"]))
    try:
        with pytest.raises(ReferenceUnresolved, match=r"failed with status 1: no entry for \*\*\*"):
            await servers.resolve("key", "label", server, environ, lambda: False)
    finally:
        table.close()


async def test_a_program_that_is_missing() -> None:
    assert "the program `surely-not-here` was not found on PATH" in str(
        await refused(env={"T": "${cmd:surely-not-here a}"})
    )
    assert "the program `./gone` cannot be started: No such file" in str(await refused(env={"T": "${cmd:./gone}"}))


@pytest.mark.requirement("secrets.commands")
async def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "SECRET_COMMAND_TIMEOUT", 2.0)
    pids = tmp_path / "pids"
    (tmp_path / "hang").write_text(f"sleep 600 & echo $$ $! > {pids}; wait")
    error = await refused(env={"T": f"${{cmd:sh {tmp_path / 'hang'}}}"})
    assert "the program `sh` did not end within 2 s" in str(error)
    # The program itself is waited for; what it started ends by itself a moment later.
    await eventually(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))


@pytest.mark.requirement("secrets.commands")
async def test_no_shell_is_involved(tmp_path: Path) -> None:
    found = await resolved({"V": "; touch owned"}, env={"T": "${cmd:printf %s '$(id)' '`id`' ${V} '*'}"})
    assert found.config.env == {"T": "$(id)`id`; touch owned*"}


async def test_a_program_gets_the_environment_of_the_user_without_our_own(tmp_path: Path) -> None:
    environ = {"OP_SESSION": "yes", "WORKBENCH_TOKEN": "secret-of-ours"}
    found = await resolved(environ, env={"T": "${cmd:env}"})
    assert "OP_SESSION=yes" in found.config.env["T"] and "WORKBENCH_TOKEN" not in found.config.env["T"]


async def test_a_program_is_killed_when_its_resolution_is_cancelled(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    table = ProcessTable()
    server = server_of({"command": "x", "env": {"T": f"${{cmd:{script(tmp_path, source)}}}"}})
    task = asyncio.ensure_future(resolve(server, os.environ, table))
    while not (pid.exists() and pid.read_text()):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: not alive(int(pid.read_text())))
    table.close()


async def test_a_look_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    server = server_of({"url": f"${{cmd:touch {trace}}}", "headers": {"X": "a${cmd:nothing b}"}})
    assert await look(server, os.environ) == ([], [])
    assert not trace.exists()


async def test_a_look_tells_everything_that_is_missing(tmp_path: Path) -> None:
    names = {"A": "gone", "B": "empty", "C": "fine"}
    env = {name: f"${{file:{tmp_path / file}}}" for name, file in names.items()}
    (tmp_path / "empty").touch()
    (tmp_path / "fine").write_text("secret")
    (tmp_path / "fine").chmod(0o644)
    server = server_of({"command": "x", "args": [env["A"]], "env": env})
    problems, warnings = await look(server, os.environ)
    said = [str(each) for each in problems]
    assert [text.partition(" in ")[2].partition(" ")[0] for text in said] == ["`args.0`", "`env.A`", "`env.B`"]
    assert "does not exist" in said[1] and "is empty" in said[2]
    assert any(f"`{tmp_path / 'fine'}` holds secrets and can be read by other users" in each for each in warnings)


async def test_a_file_with_variables_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    settings = {"command": "x", "envFile": gone, "env": {"A": "${NOT_SET_ANYWHERE}", "B": f"${{file:{gone}}}"}}
    problems, _ = await look(server_of(settings), os.environ)
    first, second = map(str, problems)
    assert first.startswith("`envFile`: the file") and "in `env.B` cannot be resolved" in second


# ── the keychain ──


@pytest.mark.requirement("secrets.keychain")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", "the system's keychain has no entry `name` of the service `svc`"),
        ("hang", "the system's keychain did not answer within 3 s"),
        ("locked", "the system's keychain is locked (KeyringLocked: Failed to unlock the collection!)"),
        ("break", "the system's keychain failed (RuntimeError: D-Bus has gone away)"),
    ],
)
async def test_a_keychain_that_does_not_give_it(tmp_path: Path, fault: str, words: str) -> None:
    error = await refused(fake_keyring.environment(tmp_path / "keys", fault), env={"T": "${keyring:svc/name}"})
    assert str(error).startswith(f"`${{keyring:svc/name}}` in `env.T` cannot be resolved: {words}") and error.hint


@pytest.mark.parametrize("backend", ["keyring.backends.fail.Keyring", "tests.support.fake_keyring.Keyring"])
async def test_an_entry_that_is_kept_in_a_file_is_found_with_and_without_a_keychain(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    private_files.put("mcp-workbench", "first", "hunter1", {})
    private_files.put("mcp-workbench", "name", "hunter2", {})
    environ = {**fake_keyring.environment(tmp_path / "keys"), "PYTHON_KEYRING_BACKEND": backend}
    found = await resolved(environ, env={"T": "${keyring:name}"})
    assert found.config.env == {"T": "hunter2"} and found.secrets >= {"hunter2"} and "hunter1" not in found.secrets


@pytest.mark.requirement("secrets.keychain")
async def test_a_machine_without_a_keychain(tmp_path: Path) -> None:
    environ = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    error = await refused(environ, env={"T": "${keyring:name}"})
    assert "this machine has no keychain that can be used" in str(error) and "${file:…}" in (error.hint or "")
    assert (error.hint or "").startswith("`mcp-workbench secret set name` works without a keychain; or ")


async def test_a_workbench_without_the_library(tmp_path: Path) -> None:
    (tmp_path / "keyring").mkdir()
    (tmp_path / "keyring" / "__init__.py").write_text("raise ImportError('not installed')")
    error = await refused({"PYTHONPATH": str(tmp_path)}, env={"T": "${keyring:name}"})
    assert "`keyring`, which is not installed" in str(error) and "`pip install keyring`" in (error.hint or "")
    assert (error.hint or "").startswith("`mcp-workbench secret set name` works without a keychain; or ")


async def test_a_module_in_the_current_folder_is_not_taken_for_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keyring.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    environ = fake_keyring.environment(tmp_path / "keys", **{"mcp-workbench__name": "hunter2"})
    assert (await resolved(environ, env={"T": "${keyring:name}"})).config.env == {"T": "hunter2"}
    assert not (tmp_path / "owned").exists()


# ── for as long as a server runs ──


async def test_it_is_kept_while_the_server_runs_and_fetched_again_afterwards(tmp_path: Path) -> None:
    count = tmp_path / "count"
    command = script(tmp_path, f"file = open({str(count)!r}, 'a+'); file.write('x'); print(f'hunter2-{{file.tell()}}')")
    server = server_of({"command": "x", "env": {"T": f"${{cmd:{command}}}"}})
    table, redactor, running = ProcessTable(), Redactor(()), [True]
    servers = ResolvedServers(table, redactor)

    async def start(of: ServerConfig = server) -> str:
        found = await servers.resolve("key", "box/server", of, os.environ, lambda: running[0])
        return found.env["T"]

    assert {*await asyncio.gather(start(), start(), start())} == {"hunter2-1"}, "several connections share it"
    assert servers.known("key", server).env == {"T": "hunter2-1"}
    running[0] = False
    assert await start() == "hunter2-2"
    assert redactor.text("hunter2-1 hunter2-2") == "*** ***"
    assert await start() == "hunter2-3"
    assert redactor.text("hunter2-1 hunter2-2 hunter2-3") == "hunter2-1 *** ***", "memory is bounded"
    servers.forget(["key"])
    assert servers.known("key", server) is server
    assert redactor.text("hunter2-3") == "***"
    table.close()
