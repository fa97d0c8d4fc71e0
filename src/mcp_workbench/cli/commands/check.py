"""`mcp-workbench check`: is the configuration valid, and with `--connect`, does every server in it work?

Owns how many servers start at once and in which order, and how findings are shown. Always starts the server and never
uses its manifest: the point is to find out. The lists are cached all the same, so that a client's first `open_toolbox`
after a check is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from mcp_workbench.app.gateway import Options, about_programs
from mcp_workbench.cli.commands.list import counted
from mcp_workbench.cli.engine import Engine, StartingPlaces
from mcp_workbench.cli.error_output import FAILED_STATUS, USAGE_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Part, Screen, Style, rich_table, stderr, stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.cli.shared_engine import engine_for
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.filters import is_shown
from mcp_workbench.engine.catalog.offer import KINDS, MAX_NAMED_WITHHELD_ITEMS, SINGULAR, about_oversized
from mcp_workbench.engine.config.exposed_arguments import USE_ENV_HINT, about_exposed_arguments
from mcp_workbench.engine.config.foreign_keys import about_ignored_keys
from mcp_workbench.engine.config.load import unresolved
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.config.problems import ConfigProblems, quote
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED
from mcp_workbench.engine.printable import plural
from mcp_workbench.errors import ConfigError, SignInNeeded, WorkbenchError
from mcp_workbench.setup.check_references import Unfetched, look
from mcp_workbench.team.lock.packages import about_unpinned

CHECK_HEADER: Final = ("toolbox", "server", "state", "MCP", "tools", "ready after")
# Times are right-aligned.
RIGHT: Final = (len(CHECK_HEADER) - 1,)
REFRESH_PER_SECOND: Final = 8
# The most urgent first, in case there are more servers than lines.
_BY_URGENCY: Final = ("failed", SIGN_IN_NEEDED, "starting", "waiting", "ready")
_STATE_STYLES: Final[dict[str, Style]] = {"ready": "good", "failed": "bad", SIGN_IN_NEEDED: "warn"}

UNPINNED_HINT: Final = (
    "mcp-workbench add pins a package (`npm:NAME`, `pypi:NAME`) to its newest version; an image is pinned by its "
    "digest (`IMAGE@sha256:…`)"
)
LOCK_HINT: Final = "mcp-workbench team lock diff shows why"
_UNLOCKED: Final = "solve what the warning says about the lock file; they are shown as soon as that is done"
_HIDDEN_FOUND: Final = ("one definition contains hidden characters", "some definitions contain hidden characters")


class Finding(Struct):
    """What is known about a server so far. `state` is `waiting`, `starting`, `ready`, `needs sign-in` or `failed`."""

    toolbox: str
    server: str
    state: str = "waiting"
    revision: str = ""
    era: str = ""
    tools: tuple[int, int] = (0, 0)
    seconds: float | None = None
    error: str = ""
    hint: str = ""
    remarks: tuple[str, ...] = ()
    # Whether the lock withholds any of its tools.
    is_withheld: bool = False
    # For each tool, the characters in it that are invisible to people but read by models.
    hidden: tuple[str, ...] = ()

    def cells(self) -> list[Part]:
        style: Style = _STATE_STYLES.get(self.state, "dim")
        ready = self.state == "ready"
        return [
            (self.toolbox, "plain"),
            (self.server, "strong"),
            (self.state, style),
            f"{self.revision} ({self.era})" if self.revision else "",
            counted(*self.tools) if ready else "",
            f"{self.seconds:.2f} s" if ready and self.seconds is not None else "",
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "toolbox": self.toolbox,
            "server": self.server,
            "state": self.state,
            "revision": self.revision or None,
            "era": self.era or None,
            "tools": self.tools[0] if self.state == "ready" else None,
            "startSeconds": None if self.seconds is None else round(self.seconds, 3),
            "error": self.error or None,
            "hint": self.hint or None,
            "remarks": list(self.remarks),
            "hidden": list(self.hidden),
        }


def about_policy(config: WorkbenchConfig) -> list[str]:
    """Return rules that can never take effect, judging by the cached lists."""
    if not config.policy:
        return []
    from mcp_workbench.cli.commands.policy import never_taking_effect

    return never_taking_effect(config)


def about_lock(config: WorkbenchConfig) -> ConfigError | None:
    """Return why nothing can be compared with the lock file, if there is to be one."""
    if config.lock is None:
        return None
    from mcp_workbench.team.lock.definition_lock import look_at_lock

    return look_at_lock(config.lock_target).problem


def about_cluster(config: WorkbenchConfig, redactor: Redactor, *, connects: bool) -> list[tuple[str, str]]:
    """Return what is wrong with the key and, if we may connect, the state server of a cluster, each with a hint."""
    if config.cluster is None:
        return []
    try:
        if connects:
            from mcp_workbench.cli.commands.cluster import examined

            return examined(config, redactor).problems
        from mcp_workbench.cluster.seal import read_key

        folder = os.path.dirname(config.path)
        read_key(os.path.join(folder, os.path.expanduser(config.cluster.key.file)))
    except ConfigError as error:
        return [(error.message, error.hint or "")]
    return []


def run(parsed: Parsed) -> int:
    try:
        config = configuration(parsed, parsed.positional(0))
    except ConfigError as error:
        if not parsed.has("json"):
            raise
        stdout().json(_problems_json(error))
        return USAGE_STATUS
    redactor = log_for(parsed, config)
    # On stderr, so that `--json` stays JSON.
    for text in about_ignored_keys(config):
        remark("warning", text)
    for text in (*about_sign_ins(config), *about_policy(config)):
        remark("warning", text)
    exposed = about_exposed_arguments(config)
    for text in exposed:
        # What to do is the same for all of them.
        remark("warning", text, USE_ENV_HINT if text is exposed[-1] else None)
    if (unpinned := about_unpinned(config.servers())) is not None:
        remark("note", unpinned, UNPINNED_HINT)
    for text, hint in about_cluster(config, redactor, connects=parsed.has("connect")):
        remark("warning", text, hint)
    if (missing := about_programs(config)) is not None:
        remark("warning", f"{missing.message}; agents are not offered run_program", missing.hint)
    if (unlocked := about_lock(config)) is not None:
        consequence = "nothing is shown to clients" if config.lock == "enforce" else "nothing can be compared"
        remark("warning", f"{unlocked.message}; {consequence}", unlocked.hint or LOCK_HINT)
    lacking = unresolved(config)
    if not parsed.has("connect"):
        # Without `--connect` nothing is run; with it, the server itself reports what it lacks.
        looked = look(config, redactor)
        for warning in looked.warnings:
            remark("warning", warning)
        if lacking is None and not looked.unfetched:
            return _report_valid(parsed, config)
        return _report_unresolved(parsed, config, lacking, looked.unfetched)
    engine = engine_for(parsed, config, use_cache=False, redactor=redactor)
    findings, warnings = connect(config, engine, remember=not parsed.has("no-cache"), redactor=redactor)
    failed = sum(finding.state in ("failed", SIGN_IN_NEEDED) for finding in findings)
    all_withheld = any(finding.is_withheld for finding in findings) and not any(each.tools[0] for each in findings)
    screen = stdout()
    if parsed.has("json"):
        servers = [finding.as_json() for finding in findings]
        problems = {} if lacking is None else _problems_json(lacking)
        screen.json({"config": config.path, "valid": True, **problems, "servers": servers, "warnings": warnings})
    else:
        show(screen, findings)
        screen.flush()
        for text in warnings:
            remark("warning", text)
        if failed:
            # What a server lacks is already shown as the reason for its failure.
            return _report_failed(findings, FAILED_STATUS if lacking is None else USAGE_STATUS)
        if all_withheld:
            return complain(
                "all tools are withheld", LOCK_HINT if unlocked is None else _UNLOCKED, status=FAILED_STATUS
            )
        if hidden := sum(len(finding.hidden) for finding in findings):
            remark("warning", f"{_HIDDEN_FOUND[hidden > 1]}: read what your agent will read before you use it")
        else:
            remark("note", "all servers are healthy" if len(findings) > 1 else "the server is healthy")
    return USAGE_STATUS if lacking is not None else FAILED_STATUS if failed or all_withheld else 0


def _report_failed(findings: list[Finding], status: int) -> int:
    """Report how many servers cannot be used: at least one."""
    unsigned = [quote(finding.server) for finding in findings if finding.state == SIGN_IN_NEEDED]
    failed = len(unsigned) + sum(finding.state == "failed" for finding in findings)
    which = "the only server" if len(findings) == 1 else f"{failed} of {len(findings)} servers"
    if len(unsigned) == failed:
        verb = "needs" if failed == 1 else "need"
        return complain(f"{which} {verb} you to sign in: {', '.join(unsigned)}", status=status)
    return complain(f"{which} failed", status=status)


def about_sign_ins(config: WorkbenchConfig) -> list[str]:
    """Return warnings about sign-ins that end soon."""
    from mcp_workbench.signin.store_location import may_hold

    addresses = [server.url for _, server in config.servers()]
    # Most configurations have no sign-in, and import no more of the package than this.
    if not any(url is not None and may_hold(url) for url in addresses):
        return []
    from mcp_workbench.cli.commands.auth import warnings

    return warnings(config)


def connect(
    config: WorkbenchConfig,
    engine: Engine,
    *,
    remember: bool,
    redactor: Redactor,
    only: ServerEntry | None = None,
    failed: Mapping[str, str] | None = None,
    seconds: float | None = None,
) -> tuple[list[Finding], list[str]]:
    """Start all servers, or only one, list what they offer, and stop them again. Also returns remarks on what they
    offer together: names and addresses claimed twice, and names that clients refuse. Servers that are known to fail,
    by `toolbox/server` and with the reason, are not started. Those not ready after `seconds` keep their state."""
    every = (entry for toolbox in config.toolboxes for entry in engine.toolbox(toolbox).values())
    entries = [*every] if only is None else [only]
    findings = [Finding(entry.toolbox, entry.name) for entry in entries]
    for finding in findings:
        if why := (failed or {}).get(f"{finding.toolbox}/{finding.server}"):
            finding.state, finding.error = "failed", redactor.text(why)
    places = StartingPlaces()

    async def list_one(entry: ServerEntry, finding: Finding) -> None:
        if finding.error:
            return
        async with places.of(entry):
            finding.state = "starting"
            began = time.monotonic()
            try:
                connection = await engine.listed(entry)
            except WorkbenchError as error:
                finding.error, finding.hint = redactor.text(error.message), redactor.text(error.hint or "")
                finding.state = SIGN_IN_NEEDED if isinstance(error, SignInNeeded) else "failed"
                return
            finding.seconds = time.monotonic() - began
            _learnt(finding, entry)
            # Stopped while others start: hundreds running at once would need too much memory.
            connection.request_stop()
            if remember:
                engine.remember(entry)
        # Others start in the meantime. Programs flush their buffers when they exit.
        await connection.wait_stopped()
        finding.remarks += _about_noise(connection.counts()[2])

    async def list_all() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*map(list_one, entries, findings))

    async def watched() -> None:
        await _watched(list_all, findings)

    engine.run(watched)
    # Collisions depend on the face: only what clients are shown can collide.
    return findings, [redactor.text(text) for text in engine.shown_to_clients(Options()).remarks()]


def _learnt(finding: Finding, entry: ServerEntry) -> None:
    offer = entry.offer
    assert offer is not None
    finding.state = "ready"
    finding.revision, finding.era = offer.profile.version, offer.profile.era
    finding.tools = len(entry.tools), len(offer.tools)
    finding.remarks += offer.left_out
    if nameless := offer.dropped - len(offer.left_out):
        finding.remarks += (f"{nameless} tools are left out: they have no name, or the name of another tool",)
    finding.remarks += tuple(about_oversized(kind, sizes) for kind, sizes in offer.oversized.items())
    finding.hidden = _hidden(entry)
    from mcp_workbench.team.lock.definition_lock import NO_FILE

    finding.is_withheld = bool(entry.withheld.get("tools"))
    for kind, names in entry.withheld.items():
        if names:
            named = ", ".join(quote(name) for name in sorted(names)[:MAX_NAMED_WITHHELD_ITEMS])
            if NO_FILE in names.values():
                # What is to be done is said once, for all servers.
                finding.remarks += (f"withheld {kind}, as there is no lock file yet: {named}",)
                continue
            finding.remarks += (
                f"withheld {kind}, which differ from the lock file: {named}; see mcp-workbench team lock diff",
            )
    for pattern in entry.config.tool_filters or ():
        # A filter for a tool that has been renamed silently hides nothing, or everything.
        if not any(is_shown(name, (pattern.removeprefix("!"),)) for name in offer.tools):
            finding.remarks += (f"`{pattern}` in `toolFilters` matches none of its tools",)


def _hidden(entry: ServerEntry) -> tuple[str, ...]:
    """Return what a model would read in this server's definitions and a person would not see."""
    from mcp_workbench.engine.catalog.hidden_text import described, hidden_in, in_definition

    assert entry.offer is not None
    found = [
        (f"{SINGULAR[kind]} {quote(name)}", in_definition(definition))
        for kind in KINDS
        for name, definition in entry.definitions(kind).items()
    ]
    found.append(("its instructions", hidden_in(entry.offer.profile.instructions or "")))
    return tuple(f"{what}: hidden characters: {described(letters)}" for what, letters in found if letters)


def _about_noise(lines: int) -> tuple[str, ...]:
    if lines == 1:
        return ("wrote a line to stdout that is not a message; it was ignored",)
    return (f"wrote {lines} lines to stdout that are not messages; they were ignored",) if lines else ()


async def _watched(work: Callable[[], Any], findings: list[Finding]) -> None:
    """Do the work, and show its progress on a terminal."""
    screen = stderr()
    if not screen.is_terminal:
        await work()
        return
    from rich.live import Live

    is_over = False

    def table() -> Any:
        shown = findings
        if not is_over and len(findings) >= screen.console.height:
            # Until the work ends, rows that do not fit are cut off at the bottom.
            shown = sorted(findings, key=lambda finding: _BY_URGENCY.index(finding.state))
        return rich_table(CHECK_HEADER, [finding.cells() for finding in shown], RIGHT)

    # The table stays on the screen, so that an interrupted check shows its findings so far.
    with Live(table(), get_renderable=table, console=screen.console, refresh_per_second=REFRESH_PER_SECOND):
        try:
            await work()
        finally:
            is_over = True


def show(screen: Screen, findings: list[Finding]) -> None:
    """Show a table, and the remarks on each server below it."""
    if not (screen.is_terminal and stderr().is_terminal):
        # If both are terminals, the table is already there.
        screen.table(CHECK_HEADER, [finding.cells() for finding in findings], right=RIGHT)
    for finding in findings:
        for noticed in (*finding.remarks, *finding.hidden):
            screen.blank()
            screen.line((f"{finding.toolbox}/{finding.server}", "warn"), f": {noticed}")
    for finding in findings:
        if finding.error:
            screen.blank()
            first, _, rest = finding.error.partition("\n")
            screen.line((f"{finding.toolbox}/{finding.server}", "bad"), f": {first}")
            if rest:
                screen.line((rest, "dim"), indent=2)
            if finding.hint:
                screen.line(("hint: ", "name"), finding.hint, indent=2)


def _report_valid(parsed: Parsed, config: WorkbenchConfig) -> int:
    servers = len(config.servers())
    if parsed.has("json"):
        stdout().json({"config": config.path, "valid": True, "toolboxes": len(config.toolboxes), "servers": servers})
        return 0
    toolboxes = "1 toolbox" if len(config.toolboxes) == 1 else f"{len(config.toolboxes)} toolboxes"
    stdout().line(
        (tilde(config.path), "strong"), ": ", ("valid", "good"), f", {toolboxes} with {plural(servers, 'server')}"
    )
    from mcp_workbench.cli.token_report import short_summary

    context = short_summary(config)
    if context is not None:
        stdout().line("context: ", context)
    return 0


def _report_unresolved(
    parsed: Parsed, config: WorkbenchConfig, lacking: ConfigProblems | None, unfetched: Sequence[Unfetched]
) -> int:
    """Report a valid file with servers that cannot be started from here: variables are not set, or something they refer
    to is missing."""
    if parsed.has("json"):
        missing = [] if lacking is None else _problems_json(lacking)["problems"]
        problems = [*missing, *(each.as_json() for each in unfetched)]
        stdout().json({"config": config.path, "valid": False, "problems": problems})
        return USAGE_STATUS
    texts = [] if lacking is None else [Redactor(config.secrets).text(lacking.message)]
    texts += (f"[{each.label}] {each.message}" + (f"\n  hint: {each.hint}" if each.hint else "") for each in unfetched)
    return complain("\n".join(texts), "servers that lack something are unavailable; all others work")


def _problems_json(error: ConfigError) -> dict[str, Any]:
    if not isinstance(error, ConfigProblems):
        return {"valid": False, "problems": [{"message": error.message, "hint": error.hint}]}
    problems = [
        {
            "line": problem.line,
            "column": problem.column,
            "path": problem.path_in_file,
            "message": problem.found,
            "expected": problem.expected,
            "suggestions": list(problem.suggestions),
            "hint": problem.hint,
        }
        for problem in error.problems
    ]
    return {"config": error.path, "valid": False, "problems": problems}
