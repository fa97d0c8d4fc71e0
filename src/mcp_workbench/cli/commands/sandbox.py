"""`mcp-workbench sandbox`: find the strictest sandbox that a server works in, or install what it needs in one."""

from __future__ import annotations

import os
from typing import Final

from msgspec.json import encode
from msgspec.structs import replace

from mcp_workbench.cli.engine import Engine, connect
from mcp_workbench.cli.error_output import FAILED, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.unlisted_servers import alone
from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.config.sandbox_settings import Profile, SandboxConfig, unwritable
from mcp_workbench.engine.sandbox.denials import denied_paths
from mcp_workbench.errors import WorkbenchError

# The first has the network, so that a package runner can install what it needs in the server's private home; the
# second then finds it there.
_TRIED: Final[tuple[Profile, ...]] = ("contained", "sealed", "guard")
_STRICTEST_FIRST: Final[tuple[Profile, ...]] = ("sealed", "contained", "guard")
# Each start shows at most the next thing that a server lacks.
_MAX_WIDENINGS: Final = 3


def run(parsed: Parsed) -> int:
    action, name = parsed.positional(0), parsed.positional(1)
    if not name:
        raise UsageError("the server is missing", hint=f"mcp-workbench sandbox {action} TOOLBOX/SERVER")
    config = alone(configuration(parsed), name)
    redactor = log_for(parsed, config)
    ((label, server),) = config.servers()
    if server.command is None:
        raise UsageError(f"`{label}` is an address: it runs elsewhere", hint="only programs are started in a sandbox")
    return _prepare(config, label, redactor) if action == "prepare" else _try(config, label, redactor)


def _prepare(config: WorkbenchConfig, label: str, redactor: Redactor) -> int:
    failure = _failure(config, _in_profile(config, "contained", network="all"), redactor)
    if failure is not None:
        return complain(redactor.text(f"[{label}] {failure.message}"), failure.hint, status=FAILED)
    stdout().line((label, "name"), " has what it needs in its private home; it can start without the network now")
    return 0


def _try(config: WorkbenchConfig, label: str, redactor: Redactor) -> int:
    screen = stdout()
    working: dict[Profile, SandboxConfig] = {}
    ((_, server),) = config.servers()
    # In another profile its command would be run here, not in the image.
    has_image = server.sandbox is not None and server.sandbox.image is not None
    for profile in _TRIED[:2] if has_image else _TRIED:
        sandbox, failure = _tried(config, _in_profile(config, profile), redactor)
        if failure is None:
            working[profile] = sandbox
            screen.line((f"{profile:10}", "name"), ("works", "good"), *_beyond(sandbox))
        else:
            reason = redactor.text(failure.message.splitlines()[0])
            screen.line((f"{profile:10}", "name"), ("fails", "bad"), f": {reason}")
    best = next((working[profile] for profile in _STRICTEST_FIRST if profile in working), None)
    screen.flush()
    if best is None:
        hint = '`"sandbox": "off"` takes nothing from it; check --connect says whether it starts then'
        return complain(f"`{label}` works in none of them", hint, status=FAILED)
    remark("note", f"the strictest that `{label}` starts in: {written(best)}; whether its tools work is for you to try")
    return 0


def _tried(
    config: WorkbenchConfig, sandbox: SandboxConfig, redactor: Redactor
) -> tuple[SandboxConfig, WorkbenchError | None]:
    """Try it, and again with what the server says that it was denied. Returns the last that was tried."""
    for _ in range(_MAX_WIDENINGS):
        failure = _failure(config, sandbox, redactor)
        wider = sandbox if failure is None else _wider(sandbox, failure)
        if wider == sandbox:
            return sandbox, failure
        sandbox = wider
    return sandbox, _failure(config, sandbox, redactor)


def written(sandbox: SandboxConfig) -> str:
    """The setting as it would be written into the file."""
    members: dict[str, object] = {"profile": sandbox.profile}
    for name, setting in SandboxConfig.SETTINGS.items():
        value = getattr(sandbox, setting.field)
        if name != "profile" and value != setting.default:
            members[name] = value
    return f'"sandbox": {encode(members if len(members) > 1 else sandbox.profile).decode()}'


def _beyond(sandbox: SandboxConfig) -> list[Part]:
    granted = [f"reads {each}" for each in sandbox.read] + [f"writes {each}" for each in sandbox.write]
    return [f", if it {' and '.join(granted)}"] if granted else []


def _in_profile(config: WorkbenchConfig, profile: Profile, **changed: str) -> SandboxConfig:
    """The server's own settings in another profile."""
    ((_, server),) = config.servers()
    if server.sandbox is None or profile == "guard":
        return SandboxConfig(profile=profile, **changed)  # type: ignore[arg-type]
    return replace(server.sandbox, profile=profile, **changed)


def _failure(config: WorkbenchConfig, sandbox: SandboxConfig, redactor: Redactor) -> WorkbenchError | None:
    """Start the server in this sandbox and list what it offers. Returns why that failed."""

    def changed(server: ServerConfig) -> ServerConfig:
        return replace(server, sandbox=sandbox)

    toolboxes = {
        name: replace(box, servers={each: changed(server) for each, server in box.servers.items()})
        for name, box in config.toolboxes.items()
    }
    failures = connect(Engine(replace(config, toolboxes=toolboxes), use_cache=False, redactor=redactor))
    return next(iter(failures.values()), None)


def _wider(sandbox: SandboxConfig, failure: WorkbenchError) -> SandboxConfig:
    """The sandbox with what the server says that it was denied, if that can be granted."""
    if sandbox.profile not in ("contained", "sealed"):
        return sandbox
    home = os.path.expanduser("~")
    read, write = dict.fromkeys(sandbox.read), dict.fromkeys(sandbox.write)
    for path in denied_paths(failure.message):
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if os.path.exists(path) and path not in read:
            read[path] = None
        elif os.path.isdir(folder) and unwritable(folder, home) is None:
            # Reading was not what it was denied.
            read.pop(path, None)
            write[folder] = None
    return replace(sandbox, read=tuple(read), write=tuple(write))
