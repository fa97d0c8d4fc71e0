"""The checks of `doctor` that are not about servers or clients: small functions that return what is wrong.

Each may block within its time limit: they run concurrently in threads. Checks that `check` has are called there.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable
from typing import Final

from mcp_workbench.engine.catalog.manifests import default_folder
from mcp_workbench.engine.config.model import ServerConfig, references_in
from mcp_workbench.engine.config.state_folder import state_path
from mcp_workbench.engine.portable_os import is_own
from mcp_workbench.engine.sandbox.machine import this_machine
from mcp_workbench.setup.diagnosis import Diagnosis, Examined

# Below this, writing caches, logs and the packages that servers download soon fails.
MIN_FREE_DISK_BYTES: Final = 200 * 1024 * 1024
# For the workbench itself, and for each server with its pipes, link and log.
FILES_OF_ITS_OWN: Final = 64
FILES_PER_SERVER: Final = 10
# Programs that run packages as servers, and how to install them.
WHERE_FROM: Final = {
    "npx": "install Node.js (nodejs.org, or `nvm`, `brew install node`, `apt install npm`)",
    "node": "install Node.js (nodejs.org, or `nvm`, `brew install node`, `apt install nodejs`)",
    "npm": "install Node.js (nodejs.org, or `nvm`, `brew install node`, `apt install npm`)",
    "bunx": "install Bun (bun.sh)",
    "bun": "install Bun (bun.sh)",
    "deno": "install Deno (deno.com)",
    "uvx": "install uv (docs.astral.sh/uv, or `pipx install uv`, `brew install uv`)",
    "uv": "install uv (docs.astral.sh/uv, or `pipx install uv`, `brew install uv`)",
    "pipx": "install pipx (`brew install pipx`, `apt install pipx`)",
    "python": "install Python, or write `python3` as `command`",
    "docker": "install Docker (docs.docker.com/get-docker), or use `podman`",
    "podman": "install Podman (podman.io)",
    "dnx": "install the .NET SDK, version 10 or newer",
    "dotnet": "install the .NET SDK",
    "java": "install a Java runtime",
    "go": "install Go (go.dev)",
    "cargo": "install Rust (rustup.rs)",
}
_INSTALL_IT: Final = "install it, or give its full path as `command`"


def missing_program(server: ServerConfig, subject: Examined) -> str | None:
    """Return the program that a server names and this machine does not have."""
    command = server.command
    if (
        command is None
        or command == "mcp-workbench"
        or (server.sandbox is not None and server.sandbox.image is not None)
    ):
        return None
    if os.sep in command:
        path = command if server.cwd is None else os.path.join(server.cwd, command)
        # As the system does: a path with a slash is never searched on `PATH`.
        return None if os.path.exists(path) else command
    # The server's own `PATH` counts, where users often add version managers such as nvm.
    return None if shutil.which(command, path=server.env.get("PATH", subject.environ.get("PATH"))) else command


def programs(subject: Examined) -> list[Diagnosis]:
    """Report missing programs, and how to get them."""
    missing: dict[str, list[str]] = {}
    for label, server in subject.servers.items():
        if program := missing_program(server, subject):
            missing.setdefault(program, []).append(label)
    return [
        Diagnosis(
            "error",
            "programs",
            f"the program `{program}` is missing, which {_listed(labels)} {'needs' if len(labels) == 1 else 'need'}",
            WHERE_FROM.get(program, _INSTALL_IT),
        )
        for program, labels in missing.items()
    ]


def secrets(subject: Examined) -> list[Diagnosis]:
    """Report references that cannot be resolved, and files of secrets that others can read."""
    if subject.config is None:
        return []
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.setup.check_references import look

    looked = look(subject.config, Redactor(subject.config.secrets))
    found = [
        Diagnosis("error", "secrets", f"{each.label}: {each.message}", each.hint or "") for each in looked.unfetched
    ]
    paths = dict.fromkeys(path for server in subject.servers.values() for path in server.env_files)
    open_files = [path for path in paths if _is_open(path)]
    found += [
        Diagnosis(
            "warning", "secrets", f"`{path}` holds secrets and can be read by other users", "chmod 600", _closed(path)
        )
        for path in open_files
    ]
    reported = tuple(f"`{path}` " for path in open_files)
    found += [
        Diagnosis("warning", "secrets", text) for text in looked.warnings if not text.startswith(reported or ("\0",))
    ]
    return found


def keychain(subject: Examined) -> list[Diagnosis]:
    """Check the keychain, if anything needs it."""
    needs = {
        label: names
        for label, server in subject.servers.items()
        if (names := [each.words[0] for each in references_in(server) if each.kind == "keyring"])
    }
    is_for_sign_ins = subject.config is not None and subject.config.keychain
    if not needs and not is_for_sign_ins:
        return []
    from mcp_workbench.signin.secrets import keychain as system

    try:
        # Whether the entry exists does not matter: a keychain that is locked or missing fails either way.
        system.get(system.SERVICE, "doctor", os.environ)
    except system.KeychainUnusable as error:
        if isinstance(error, system.NO_KEYCHAIN):
            needs = {label: names for label, names in needs.items() if not all(map(_is_in_file, names))}
        if not needs and not is_for_sign_ins:
            return []
        if needs:
            text = f"{error.message}; {_listed([*needs])} cannot start without it"
            return [Diagnosis("error", "keychain", text, system.hint_for_secret(error))]
        return [
            Diagnosis("error", "keychain", f"{error.message}; sign-ins are to be encrypted with it", error.hint or "")
        ]
    return []


def _is_in_file(name: str) -> bool:
    """Whether `secret set` has written this secret to its own file, as it does without a keychain."""
    from mcp_workbench.signin.secrets import private_files
    from mcp_workbench.signin.secrets.keychain import entry_of

    try:
        return bool(private_files.get(*entry_of(name), os.environ))
    except private_files.PrivateFileUnusable:
        # Another check reports what is wrong with the file.
        return True


def cache(subject: Examined) -> list[Diagnosis]:
    """Check that what servers offer can be cached."""
    from mcp_workbench.engine.catalog.manifests import default_folder

    folder = default_folder()
    if folder is None:
        return [
            Diagnosis(
                "warning", "cache", "there is no folder for the cache, so every start asks all servers", "set `HOME`"
            )
        ]
    place = folder
    # It is created when the first server is listed, so new users do not have it yet.
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
        return []
    text = f"the cache `{folder}` cannot be written, so every start asks all servers again"
    return [Diagnosis("warning", "cache", text, f"make `{place}` a folder that you can write to")]


def sockets(subject: Examined) -> list[Diagnosis]:
    """Check the folder where workbenches listen for `status`, `up` and each other."""
    from mcp_workbench.engine.process_context import MAX_SOCKET_PATH_BYTES, SOCKET, is_private, runtime_folder

    folder = runtime_folder()
    found = []
    if len(os.fsencode(os.path.join(folder, SOCKET))) > MAX_SOCKET_PATH_BYTES:
        text = (
            f"the path of `{folder}` is too long for a socket, so a workbench cannot be shared or asked for its status"
        )
        found.append(Diagnosis("warning", "sockets", text, "set `XDG_RUNTIME_DIR` to a folder with a short path"))
    if os.path.lexists(folder) and not is_private(folder):
        text = f"`{folder}` can be entered by other users, or belongs to one, so no workbench listens there"
        # `chmod` on another user's folder would fail, and is not ours to try.
        owned = os.path.isdir(folder) and is_own(os.lstat(folder))
        found.append(Diagnosis("warning", "sockets", text, "chmod 700", _closed(folder, 0o700) if owned else None))
    return found


def approvals(subject: Examined) -> list[Diagnosis]:
    """Check that servers can be told from commands of the user: otherwise no command may approve a call."""
    from mcp_workbench.engine.socket_peers import is_confined

    if not is_confined():
        return []
    text = (
        "everything here runs with no_new_privs, as servers do, so `mcp-workbench team approve` cannot be told from a "
        "server and is refused"
    )
    hint = "use a client that can ask you, or start the container without `no-new-privileges`"
    asks = subject.config is not None and any(rule.then == "ask" for rule in subject.config.policy)
    return [Diagnosis("warning" if asks else "note", "approvals", text, hint)]


def sandboxes(subject: Examined) -> list[Diagnosis]:
    """What this machine can enforce, what each server with a sandbox has of it, and all others as one."""
    from mcp_workbench.engine.sandbox.machine import capabilities, described

    programs = {label: server for label, server in subject.servers.items() if server.command is not None}
    found = [Diagnosis("note", "sandbox", f"this machine has {described(capabilities())}")]
    if usual := [label for label, server in programs.items() if server.sandbox is None]:
        found.append(_sandbox_of_all(usual))
    for label, server in programs.items():
        if server.sandbox is not None:
            found += _sandbox_of(label, server, subject)
    return found


def _sandbox_of_all(labels: list[str]) -> Diagnosis:
    """Of servers without a setting, which get as much of `guard` as there is."""
    from mcp_workbench.engine.sandbox.backends import choose
    from mcp_workbench.engine.sandbox.machine import capabilities
    from mcp_workbench.engine.sandbox.sandbox import Sandbox

    missing = choose(Sandbox("guard", is_best_effort=True, is_asked=False), capabilities()).missing
    lacking = f"; this machine {'; it '.join(missing)}" if missing else ""
    text = f"{_listed(labels)} {'runs' if len(labels) == 1 else 'run'} in `guard`, the default{lacking}"
    return Diagnosis("note", "sandbox", text)


def _sandbox_of(label: str, server: ServerConfig, subject: Examined) -> list[Diagnosis]:
    from mcp_workbench.engine.config.environment import server_environment
    from mcp_workbench.engine.sandbox.backends import choose
    from mcp_workbench.engine.sandbox.machine import capabilities
    from mcp_workbench.engine.sandbox.server_sandbox import Owner, sandbox_of
    from mcp_workbench.errors import DownstreamError

    path = "" if subject.config is None else subject.config.path
    environment = server_environment(subject.environ, server.inherit_env, server.env)
    try:
        sandbox = sandbox_of(server, environment, None, Owner(path, label.partition("/")[0]))
        chosen = choose(sandbox, capabilities())
    except DownstreamError as error:
        # A program that does not exist is reported by another check.
        return [Diagnosis("error", "sandbox", f"`{label}` cannot start: {error.message}", error.hint or "")]
    found = [Diagnosis("warning", "sandbox", f"`{label}`: this machine {each}") for each in chosen.missing]
    found += [Diagnosis("warning", "sandbox", f"`{label}`: not granted: {each}") for each in sandbox.skipped]
    if chosen.unprotected:
        text = (
            f"`{label}` can write {', '.join(f'`{each}`' for each in chosen.unprotected)}, which other programs trust"
        )
        found.append(Diagnosis("warning", "sandbox", text, "install bubblewrap: it can keep this read-only"))
    by = f" by {chosen.backend.name}" if sandbox.limits_files else ""
    if sandbox.image is not None:
        by += f" from the image `{sandbox.image}`"
    if sandbox.home is not None:
        by += f"; its home folder is `{sandbox.home}`"
    return [*found, Diagnosis("note", "sandbox", f"`{label}` runs in `{sandbox.profile}`{by}")]


def versions(subject: Examined) -> list[Diagnosis]:
    """Check that what runs, and what a shell would start, is the installed version."""
    from mcp_workbench.engine.observe.status_socket import running_workbenches
    from mcp_workbench.engine.run import run
    from mcp_workbench.engine.version import full_version

    found = []
    for status in run(running_workbenches()):
        # After a restart, one that finishes the calls of its clients ends by itself.
        if status.get("version") != full_version() and status.get("serving") != "ending":
            this = full_version()
            text = f"process {status['pid']} is a workbench of version {status.get('version')}; this is {this}"
            shared = status.get("serving") == "shared"
            hint = "mcp-workbench up --restart" if shared else "restart the client that started it"
            found.append(Diagnosis("warning", "versions", text, hint))
        rejected = (status.get("configuration") or {}).get("rejected")
        if rejected:
            text = f"process {status['pid']} still uses the previous configuration: {rejected}"
            hint = "" if "hint: " in rejected else "correct the file; it takes effect when you save it"
            found.append(Diagnosis("error", "configuration", text, hint))
    # A venv next to a `pipx` installation is how two versions come about.
    own = os.path.join(os.path.dirname(sys.executable), "mcp-workbench")
    on_path = shutil.which("mcp-workbench")
    if on_path is not None and os.path.exists(own) and os.path.realpath(on_path) != os.path.realpath(own):
        text = f"a shell starts `{on_path}`, which is a different installation from this one, `{own}`"
        found.append(Diagnosis("warning", "versions", text, "uninstall one of them, or put the other first on PATH"))
    return found


def limits(subject: Examined) -> list[Diagnosis]:
    """Check the limits of the system: open files and disk space."""
    found = []
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return []
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    wanted = FILES_OF_ITS_OWN + FILES_PER_SERVER * len(subject.servers)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        text = f"only {allowed} files may be open at once, and {wanted} may be needed for all servers"
        found.append(Diagnosis("warning", "limits", text, "raise the limit with `ulimit -n`"))
    # By disk, so that each is named once.
    for folder in {_disk_of(each): each for each in reversed(_written_folders())}.values():
        free = shutil.disk_usage(folder).free
        if free < MIN_FREE_DISK_BYTES:
            text = f"only {free // 1024**2} MiB are free on the disk of `{folder}`"
            hint = "free some space; logs, caches and servers that download packages need it"
            found.append(Diagnosis("warning", "limits", text, hint))
    return found


def _written_folders() -> list[str]:
    """The caches of npx and uvx are in the home folder or a private one, their temporary files in `/tmp`; our logs and
    lists are in folders of our own."""
    home = os.path.expanduser("~")
    found = []
    for folder in filter(None, (home, "/tmp", state_path(""), default_folder(), this_machine(home).homes)):
        while not os.path.isdir(folder) and folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _disk_of(folder: str) -> int:
    return os.stat(folder).st_dev


def _listed(labels: list[str]) -> str:
    shown = ", ".join(f"`{label}`" for label in labels[:3])
    return shown + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")


def _is_open(path: str) -> bool:
    try:
        about = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and is_own(about) and bool(about.st_mode & 0o077)


def _closed(path: str, mode: int = 0o600) -> Callable[[], str]:
    def fix() -> str:
        os.chmod(path, mode)
        return f"only you can use `{path}` now"

    return fix
