"""`mcp-workbench sandbox`: find the strictest sandbox that a server works in, or install what it needs in one.

A trial gives a server no files and no network that its entry withholds, unless the user agrees: what a server says it
needs, or fails without, may be what it wants to steal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from msgspec.json import encode
from msgspec.structs import replace

from mcp_workbench.cli.consent import agrees
from mcp_workbench.cli.engine import Engine, connect
from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.unlisted_servers import alone
from mcp_workbench.engine.config.model import ServerConfig, WorkbenchConfig
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.config.sandbox_settings import Profile, SandboxConfig, unwritable
from mcp_workbench.engine.sandbox.decide import network_of
from mcp_workbench.engine.sandbox.denials import denied, denied_paths
from mcp_workbench.engine.sandbox.server_sandbox import Owner, private_home
from mcp_workbench.errors import WorkbenchError

# Each start shows at most the next thing that a server lacks.
_MAX_WIDENINGS: Final = 3
_LIMITING_FILES: Final = ("contained", "sealed")
_TAKE_NOTHING: Final = '`"sandbox": "off"` takes nothing from it; check --connect says whether it starts then'
_GRANT_IT: Final = (
    "what it was denied can be granted with `read` and `write` of its `sandbox`, if you trust it with that; at a "
    "terminal, this command asks"
)


def run(parsed: Parsed) -> int:
    action, name = parsed.positional(0), parsed.positional(1)
    if not name:
        raise UsageError("the server is missing", hint=f"mcp-workbench doctor --sandbox {action} TOOLBOX/SERVER")
    config = alone(configuration(parsed), name)
    redactor = log_for(parsed, config)
    ((label, server),) = config.servers()
    if server.command is None:
        raise UsageError(f"`{label}` is an address: it runs elsewhere", hint="only programs are started in a sandbox")
    return _prepare(config, label, redactor) if action == "prepare" else _try(config, label, redactor)


def _prepare(config: WorkbenchConfig, label: str, redactor: Redactor) -> int:
    failure = _failure(config, _in_profile(config, "contained", network="all"), redactor)
    ((_, server),) = config.servers()
    hosts = server.sandbox if server.sandbox is not None and isinstance(server.sandbox.network, tuple) else None
    if failure is None and hosts is not None:
        # Some package runners ask their registry at every start.
        failure = _failure(config, hosts, redactor)
    if failure is not None:
        return complain(redactor.text(f"[{label}] {failure.message}"), failure.hint, status=FAILED_STATUS)
    how = "starts with the hosts in its `network` alone" if hosts is not None else "can start without the network now"
    stdout().line((label, "name"), f" has what it needs in its private home; it {how}")
    return 0


def _try(config: WorkbenchConfig, label: str, redactor: Redactor) -> int:
    screen = stdout()
    best: SandboxConfig | None = None
    ((_, server),) = config.servers()
    is_contained = server.sandbox is not None and server.sandbox.profile in _LIMITING_FILES

    def may(what: str) -> bool:
        return not is_contained or (sys.stdin.isatty() and agrees(f"{what} Allow that for this trial?"))

    for each in _candidates(config, server):
        if each.profile == "guard" and is_contained and best is not None:
            continue
        if (more := _more(each, server)) and not may(f"In `{each.profile}` it {more}."):
            continue
        sandbox, failure = _tried(config, each, redactor, may)
        shown = f"{each.profile:10}"
        with_hosts = " with every host" if _has_more_hosts(each, server) else ""
        if failure is None:
            best = sandbox if best is None or _strictness(sandbox) > _strictness(best) else best
            screen.line(
                (shown, "name"),
                ("works", "good"),
                with_hosts,
                *([f", if it {granted}"] if (granted := _granted(sandbox)) else ()),
            )
        else:
            reason = redactor.text(failure.message.splitlines()[0])
            screen.line((shown, "name"), ("fails", "bad"), f"{with_hosts}: {reason}")
            if said := denied(failure.hint or ""):
                screen.line(" " * len(shown), redactor.text(said))
    screen.flush()
    if best is None:
        hint = _GRANT_IT if is_contained else _TAKE_NOTHING
        return complain(f"`{label}` works in none of them", hint, status=FAILED_STATUS)
    remark("note", f"the strictest that `{label}` starts in: {written(best)}; whether its tools work is for you to try")
    if not is_contained and best.profile != "guard" and best.home == "private":
        home = private_home(server, Owner(config.path, label.partition("/")[0]))
        remark(
            "note",
            f"there it has a new home folder, `{home}`, and does not find what it stored in yours: to keep that, name "
            "the file in its `env` or `args`, or move it there",
        )
    return 0


def _candidates(config: WorkbenchConfig, server: ServerConfig) -> list[SandboxConfig]:
    """What is tried. The first has the network, so that a package runner can install what it needs in the server's
    private home; the others then find it there."""
    contained = _in_profile(config, "contained")
    found = [contained, _in_profile(config, "sealed")]
    if isinstance(contained.network, tuple):
        found.insert(0, replace(contained, network=None))
    # In guard its command would be run here, not in the image.
    return found if contained.image is not None else [*found, _in_profile(config, "guard")]


def _strictness(sandbox: SandboxConfig) -> tuple[int, bool]:
    return ("guard", "contained", "sealed").index(sandbox.profile), sandbox.network is not None


def _tried(
    config: WorkbenchConfig, sandbox: SandboxConfig, redactor: Redactor, may: Callable[[str], bool]
) -> tuple[SandboxConfig, WorkbenchError | None]:
    """Try it, and where that `may` be done, again with what the server says that it was denied. Returns the last that
    was tried."""
    for _ in range(_MAX_WIDENINGS):
        failure = _failure(config, sandbox, redactor)
        wider = sandbox if failure is None else _wider(sandbox, failure)
        if wider == sandbox or not may(f"The server says that it needs to {_granted(wider, 'read', 'write')}."):
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


def _has_more_hosts(sandbox: SandboxConfig, server: ServerConfig) -> bool:
    own = None if server.sandbox is None else server.sandbox.network
    return sandbox.profile == "contained" and sandbox.network is None and isinstance(own, tuple)


def _more(sandbox: SandboxConfig, server: ServerConfig) -> str:
    """What it could do in this one that its entry keeps it from, in words; empty if that is nothing."""
    own = server.sandbox
    if own is None or own.profile not in _LIMITING_FILES:
        return ""
    if sandbox.profile == "guard":
        return "reaches all of your files"
    found = ["may write its `cwd`"] if own.profile == "sealed" != sandbox.profile else []
    if network_of(sandbox) == "all" != network_of(own):
        found.append("reaches the whole network")
    return " and ".join(found)


def _granted(sandbox: SandboxConfig, read: str = "reads", write: str = "writes") -> str:
    return " and ".join([f"{read} {each}" for each in sandbox.read] + [f"{write} {each}" for each in sandbox.write])


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
    if sandbox.profile not in _LIMITING_FILES:
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
