"""What a server in `bwrap` finds, tried by real processes."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from mcp_workbench.engine.sandbox import bwrap_backend
from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.machine import capabilities
from mcp_workbench.engine.sandbox.sandbox import Sandbox
from mcp_workbench.engine.sandbox.server_sandbox import Owner, enforce, sandbox_of
from mcp_workbench.engine.transport import landlock
from mcp_workbench.engine.transport.child import spawn
from mcp_workbench.engine.transport.confinement import start_confined
from mcp_workbench.engine.transport.processes import ProcessTable
from mcp_workbench.engine.transport.write_batch import WriteBatch
from mcp_workbench.errors import DownstreamError
from tests.engine.sandbox.test_server_sandbox import shell
from tests.engine.transport.rigs import Recorder

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        capabilities().why_no_bwrap() is not None or not capabilities().has_filters,
        reason=f"needs seccomp, and bwrap to work: {capabilities().why_no_bwrap()}",
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path.resolve()
    (found / "home").mkdir()
    monkeypatch.setenv("HOME", str(found / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(found / "data"))
    return found


def decided(folder: Path, *args: object, **settings: object) -> Sandbox:
    config = ServerConfig(
        name="s",
        command="/bin/cat",
        args=tuple(map(str, args)),
        sandbox=SandboxConfig(**settings),  # type: ignore[arg-type]
    )
    environment = {"HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"}
    return sandbox_of(config, environment, None, Owner(str(folder / "work" / "config.json"), "box"))


@pytest.fixture
def work(folder: Path) -> Path:
    found = folder / "work"
    (found / ".git" / "hooks").mkdir(parents=True)
    (found / ".git" / "config").write_text("[core]\n")
    (found / ".git" / "config.worktree").write_text("[core]\n")
    (found / ".mcp.json").write_text("{}")
    (found / "config.json").write_text("{}")
    return found


@pytest.mark.parametrize(
    "attack",
    [
        "echo x > .git/hooks/pre-commit",
        "mv .git .moved && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        "mv .git/hooks .git/moved && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "echo x > .git/new && mv .git/new .git/config",
        "rm -f .mcp.json && echo x > .mcp.json",
        "ln -f .mcp.json other && echo x > other",
        "mkdir -p .vscode && echo x > .vscode/tasks.json",
        "rmdir .idea && mkdir .idea && echo x > .idea/workspace.xml",
        "echo x > config.json",
        "ln -sfn /tmp .vscode",
        "echo x > .git/config.worktree",
        "echo ../evil > .git/commondir",
        "rm -f .git/commondir; ln -s ../evil .git/commondir",
        "echo ../evil > .git/new && mv .git/new .git/commondir",
    ],
)
def test_trusted_files_cannot_be_written_replaced_or_created(folder: Path, work: Path, attack: str) -> None:
    sandbox = decided(folder, work)
    assert choose(sandbox, capabilities()).backend.name == "bwrap", "Landlock could not keep it"
    before = {path.relative_to(work): path.read_bytes() for path in work.rglob("*") if path.is_file()}
    done = shell(sandbox, f'cd "$1" && echo fine > new && {{ {attack}; }}', str(work))
    assert done.returncode, done.stderr
    after = {path.relative_to(work): path.read_bytes() for path in work.rglob("*") if path.is_file()}
    after.pop(Path(".git/new"), None)
    assert after == before | {Path("new"): b"fine\n"}
    assert not (work / ".moved").exists() and not (work / ".vscode").is_symlink()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_runs_nothing_of_a_server_that_names_another_folder_for_hooks_and_works_as_before(folder: Path) -> None:
    project = str(folder / "project")
    os.mkdir(project)

    def git(*words: str) -> str:
        own = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        command = "git", "-C", project, *words
        return subprocess.run(command, env=own, check=True, capture_output=True, text=True).stdout

    for words in (("init", "-q"), ("config", "user.email", "a@example.org"), ("config", "user.name", "a")):
        git(*words)
    attack = """cd "$1" && mkdir evil && cp -r .git/config .git/objects .git/refs evil
        printf '[core]\\n\\tfsmonitor = touch pwned; false\\n' >> evil/config; echo ../evil > .git/commondir"""
    assert "Read-only file system" in shell(decided(folder, project), attack, project).stderr
    assert git("status", "--short") == "?? evil/\n" and not os.path.exists(os.path.join(project, "pwned"))
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", str(folder / "linked"))
    assert git("worktree", "list").count("\n") == 2 and git("log", "--format=%s", "linked") == "first\n"


@pytest.mark.parametrize("settings", ["[core]\n\tworktree = ../x\n", "[core] WorkTree=../x\n"])
def test_nothing_is_created_in_a_repository_whose_files_are_elsewhere_that_would_have_git_forget_it(
    folder: Path, work: Path, settings: str
) -> None:
    (work / ".git/config").write_text(settings)
    assert (
        shell(decided(folder, work), 'test -d "$1/.vscode" && ! test -e "$1/.git/commondir"', str(work)).returncode == 0
    )


def test_read_only_placeholders_are_removed_afterwards(folder: Path, work: Path) -> None:
    (work / ".git" / "hooks").rmdir()
    (work / ".idea").mkdir()
    sandbox = decided(folder, work)
    assert len(sandbox.created) == 5
    assert shell(sandbox, 'ls -d "$@"', *sandbox.created).returncode == 0
    assert not any(map(os.path.lexists, sandbox.created)) and (work / ".idea").is_dir()


def test_explicit_write_grants_override_protection(folder: Path, work: Path) -> None:
    (work / ".vscode" / "snippets").mkdir(parents=True)
    sandbox = decided(folder, work, write=(str(work / ".git/config"), str(work / ".vscode/snippets")), backend="bwrap")
    script = 'cd "$1" && echo x > .git/config && echo x > .vscode/snippets/a; echo x > .vscode/tasks.json'
    assert shell(sandbox, script, str(work)).returncode
    assert (work / ".git/config").read_text() == "x\n" and (work / ".vscode/snippets/a").exists()
    assert not (work / ".vscode/tasks.json").exists()


def test_landlock_starts_the_server_and_reports_unprotected_paths(folder: Path, work: Path) -> None:
    enforced = enforce(decided(folder, work, backend="landlock"))
    assert enforced.missing == () and str(work / ".git/hooks") in enforced.unprotected
    assert not (work / ".vscode").exists()


def test_links_to_granted_paths_are_available(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real/file").write_text("found")
    for name, target in (("second", "real"), ("first", "second")):
        (folder / name).symlink_to(target)
    sandbox = decided(folder, read=(str(folder / "first/file"),), backend="bwrap")
    assert shell(sandbox, 'cat "$1"', str(folder / "first/file")).stdout == "found"


@pytest.mark.skipif(not bwrap_backend._binds_descriptors(), reason="needs a bwrap that takes descriptors")
@pytest.mark.parametrize("grant", ["write", "read", "unix_sockets"])
def test_a_link_that_is_put_there_after_the_last_look_is_not_followed(folder: Path, grant: str) -> None:
    for name in ("granted", "secret"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    sandbox = decided(folder, **{grant: (str(folder / "granted"),)}, backend="bwrap")
    launch = enforce(sandbox).launch
    (folder / "granted").rename(folder / "moved")
    (folder / "granted").symlink_to(folder / "secret")
    command = [*launch.wrapper, "/bin/cat", str(folder / "granted/file")]
    try:
        done = start_confined(
            launch.confinement,
            lambda: subprocess.run(
                command, capture_output=True, text=True, env=sandbox.environment, pass_fds=launch.descriptors
            ),
        )
    finally:
        launch.abandon()
    assert done.stdout == "granted", done.stderr


def test_without_descriptors_a_link_that_was_there_before_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older `bwrap`."""
    monkeypatch.setattr(bwrap_backend, "_binds_descriptors", lambda: False)
    for name in ("granted", "secret"):
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
    sandbox = decided(folder, write=(str(folder / "granted"),), backend="bwrap")
    assert shell(sandbox, 'cat "$1/file"', str(folder / "granted")).stdout == "granted"
    (folder / "granted").rename(folder / "moved")
    (folder / "granted").symlink_to(folder / "secret")
    assert shell(sandbox, 'cat "$1/file"', str(folder / "granted")).stdout == ""


@pytest.mark.parametrize("has_descriptors", [True, False])
@pytest.mark.parametrize("replaced", [".git/hooks", ".git"])
@pytest.mark.parametrize("moment", ["before", "while"])
def test_a_server_is_not_started_if_what_stays_read_only_is_replaced_meanwhile(
    folder: Path, work: Path, moment: str, replaced: str, has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be written through the folder that it is in."""
    monkeypatch.setattr(bwrap_backend, "_binds_descriptors", lambda: has_descriptors)
    found = bwrap_backend.kept_read_only

    def replace() -> None:
        (work / replaced).rename(folder / "moved")
        (work / replaced).symlink_to(folder / "moved")

    def looked_and_replaced(sandbox: Sandbox, roots: Sequence[str]) -> list[tuple[str, bool]]:
        mounts = found(sandbox, roots)
        replace()
        return mounts

    sandbox = decided(folder, work, backend="bwrap")
    if moment == "before":
        replace()
    else:
        monkeypatch.setattr(bwrap_backend, "kept_read_only", looked_and_replaced)
    with pytest.raises(DownstreamError, match=r"cannot be kept read-only \(`.*/work/\.git"):
        enforce(sandbox)


def test_a_repository_in_a_folder_that_stays_read_only_does_not_make_it_writable(folder: Path, work: Path) -> None:
    (work / ".claude/.git/hooks").mkdir(parents=True)
    script = 'cd "$1" && echo x > new; echo x > .claude/settings.json; echo x > .claude/.git/new; ls .claude/.git'
    done = shell(decided(folder, work), script, str(work))
    assert (work / "new").exists() and "hooks" in done.stdout
    assert not (work / ".claude/settings.json").exists() and not (work / ".claude/.git/new").exists()


def test_a_granted_folder_that_is_replaced_meanwhile_is_left_out(folder: Path, work: Path) -> None:
    (work / ".vscode" / "snippets").mkdir(parents=True)
    snippets = work / ".vscode" / "snippets"
    sandbox = decided(folder, work, write=(str(snippets),), backend="bwrap")
    snippets.rename(folder / "moved")
    snippets.symlink_to(folder / "moved")
    assert shell(sandbox, 'echo x > "$1/a"', str(snippets)).returncode and not (folder / "moved/a").exists()


NEEDS_LANDLOCK = pytest.mark.skipif(capabilities().landlock_abi < landlock.RENAMES_ABI, reason="needs Landlock")


@pytest.mark.parametrize("backend", [pytest.param("landlock", marks=NEEDS_LANDLOCK), "bwrap"])
def test_the_kernels_settings_cannot_be_changed_also_by_root(folder: Path, backend: str) -> None:
    # Opened, and left as they are: root owns them, and needs no capability to write them.
    script = "for path; do true >> $path && echo $path; done"
    settings = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/self/comm")
    for profile in ("contained", "sealed"):
        done = shell(decided(folder, profile=profile, backend=backend), script, "/dev/null", *settings)
        assert done.stdout == "/dev/null\n", done.stderr


@pytest.mark.parametrize("backend", [pytest.param("landlock", marks=NEEDS_LANDLOCK), "bwrap"])
def test_shared_memory_of_the_users_programs_cannot_be_attached(folder: Path, backend: str) -> None:
    library = ctypes.CDLL(None)
    number = library.shmget(0, 4096, 0o1600)
    assert number >= 0
    attach = (
        f"import ctypes; c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_ssize_t; print(c.shmat({number}, None, 0))"
    )
    try:
        for profile in ("contained", "sealed"):
            run = f"/usr/bin/python3 -I -S -c '{attach}'"
            assert shell(decided(folder, profile=profile, backend=backend), run).stdout == "-1\n"
    finally:
        library.shmctl(number, 0, None)


def test_only_the_sockets_that_are_named_can_be_connected_to(folder: Path) -> None:
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    try:
        for name, listener in zip(("other", "named"), listeners, strict=True):
            listener.bind(str(folder / name))
            listener.listen()
        sandbox = decided(folder, unix_sockets=(str(folder / "named"), str(folder / "missing")))
        assert choose(sandbox, capabilities()).backend.name == "bwrap" and sandbox.skipped == (
            f"`{folder}/missing` does not exist",
        )
        script = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        run = f"/usr/bin/python3 -I -S -c '{script}' \"$1\""
        assert shell(sandbox, run, str(folder / "named")).returncode == 0
        assert "FileNotFoundError" in shell(sandbox, run, str(folder / "other")).stderr
    finally:
        for listener in listeners:
            listener.close()


def test_a_server_has_room_for_many_descriptors_and_gets_none_for_it(folder: Path) -> None:
    """`bwrap` starts it from a process of its own, whose table of descriptors would be the smallest again."""
    sandbox = decided(folder)
    assert shell(sandbox, "exec grep FDSize /proc/self/status").stdout.split() == ["FDSize:", "256"]
    assert shell(sandbox, "exec ls /proc/self/fd").stdout.split() == ["0", "1", "2", "3"]


async def test_the_only_listener_of_its_network_is_ours_and_nothing_is_left_when_it_ends(folder: Path) -> None:
    sandbox = decided(folder, network=("other.org", "example.com"))
    script = 'echo "$HTTPS_PROXY"; cat /proc/net/tcp | wc -l; cat /proc/net/dev | wc -l; read go'
    table = ProcessTable()
    descriptors = []
    try:
        for _ in range(3):
            recorder = Recorder()
            link = spawn(
                "/bin/sh",
                ("-c", script),
                sandbox.environment,
                sandbox.folder,
                table=table,
                batch=WriteBatch(),
                receiver=recorder,
                limit=1 << 20,
                launch=enforce(sandbox).launch,
            )
            await recorder.wait_messages(3)
            await link.stop()
            # The heads of both tables, and one line for the listener, and two for the loopback.
            assert recorder.messages == [b"http://127.0.0.1:3128", b"2", b"3"]
            descriptors.append(len(os.listdir("/proc/self/fd")))
    finally:
        table.close()
    assert descriptors[1:] == descriptors[:-1]
