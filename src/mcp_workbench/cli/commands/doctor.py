"""`mcp-workbench doctor`: check everything that can be wrong, and report it in order of importance.

Owns the list of checks and their time limit, and ensures that a check that fails or hangs does not keep the others from
being reported. The checks are in `doctor_checks` and `doctor_clients`; servers are started as by `check --connect`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Final

from mcp_workbench.app.gateway import about_programs
from mcp_workbench.cli.commands.check import Finding, about_lock, about_sign_ins, connect
from mcp_workbench.cli.engine import Engine
from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed
from mcp_workbench.cli.screen import Screen, Style, stdout
from mcp_workbench.cli.settings import log_for
from mcp_workbench.cli.wrapping import tilde
from mcp_workbench.engine.config.choose import choose
from mcp_workbench.engine.config.exposed_arguments import USE_ENV_HINT, about_exposed_arguments
from mcp_workbench.engine.config.foreign_keys import about_ignored_keys
from mcp_workbench.engine.config.load import unresolved
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.config.problems import ConfigProblems, in_one_line
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED
from mcp_workbench.engine.printable import plural
from mcp_workbench.errors import ConfigError, WorkbenchError
from mcp_workbench.setup import doctor_checks, doctor_clients
from mcp_workbench.setup.client_files import message_and_hint
from mcp_workbench.setup.clients.server_json import RUNNERS_OF_KINDS
from mcp_workbench.setup.diagnosis import SEVERITIES, Check, Diagnosis, Examined, Severity, in_order

# For all servers together; those that are not ready by then are reported as slow.
SERVERS_TIMEOUT: Final = 60.0
# For each of the other checks, which run in the meantime. The keychain has the longest timeout of them.
CHECK_TIMEOUT: Final = 20.0
# Clients wait 10 to 60 seconds for a server; this is close to the shortest of those timeouts.
SLOW_START_THRESHOLD: Final = 8.0


def _sign_ins(subject: Examined) -> list[Diagnosis]:
    """Report sign-ins that end soon, and why sign-ins cannot be read."""
    found = [] if subject.config is None else about_sign_ins(subject.config)
    return [Diagnosis("warning", "sign-ins", text) for text in found]


def _cluster(subject: Examined) -> list[Diagnosis]:
    """Report what is wrong with the state server of a cluster."""
    config = subject.config
    if config is None or config.cluster is None:
        return []
    from mcp_workbench.cli.commands.cluster import examined

    try:
        report = examined(config, Redactor(config.secrets))
    except WorkbenchError as error:
        return [Diagnosis("error", "cluster", error.message, error.hint or "")]
    return [Diagnosis("error", "cluster", text, hint) for text, hint in report.problems]


def _agents_programs(subject: Examined) -> list[Diagnosis]:
    """Report that agents' programs are on and cannot run."""
    if subject.config is None or (missing := about_programs(subject.config)) is None:
        return []
    return [Diagnosis("error", "agents' programs", missing.message, missing.hint or "")]


def _lock(subject: Examined) -> list[Diagnosis]:
    """Report a lock file that is missing or cannot be used."""
    if subject.config is None or (problem := about_lock(subject.config)) is None:
        return []
    severity: Severity = "error" if subject.config.lock == "enforce" else "warning"
    return [Diagnosis(severity, "lock", problem.message, problem.hint or "")]


CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("programs", doctor_checks.programs),
    ("secrets", doctor_checks.secrets),
    ("sign-ins", _sign_ins),
    ("clients", doctor_clients.client_entries),
    ("keychain", doctor_checks.keychain),
    ("sockets", doctor_checks.sockets),
    ("approvals", doctor_checks.approvals),
    ("cluster", _cluster),
    ("agents' programs", _agents_programs),
    ("lock", _lock),
    ("sandbox", doctor_checks.sandboxes),
    ("versions", doctor_checks.versions),
    ("limits", doctor_checks.limits),
    ("cache", doctor_checks.cache),
    ("older files of clients", doctor_clients.stale_files),
)
_BACKTICKED: Final = re.compile("`[^`]+`")
_SEVERITY_STYLES: Final[dict[Severity, Style]] = {"error": "bad", "warning": "warn", "note": "name"}


def run(parsed: Parsed) -> int:
    subject, found = _configuration(parsed)
    # Started before the servers, which take longest, and awaited afterwards.
    waiting = [_CheckThread(area, check, subject) for area, check in CHECKS]
    servers, about = _servers(parsed, subject)
    found += about
    # Counted from here, so that they also had the time the servers took.
    end = time.monotonic() + CHECK_TIMEOUT
    for one in waiting:
        found += one.outcome(end)
    found = in_order(found)
    if parsed.has("fix"):
        for each in found:
            _put_right(each)
    screen = stdout()
    if parsed.has("json"):
        screen.json(
            {
                "config": None if subject.config is None else subject.config.path,
                "findings": [each.as_json() for each in found],
                "servers": [each.as_json() for each in servers],
            }
        )
    else:
        _show(screen, found)
        screen.flush()
        _sum_up(found)
    return FAILED_STATUS if any(each.severity == "error" and not each.fixed for each in found) else 0


class _CheckThread:
    """A check in a thread, awaited for a bounded time: files may be on a network disk that does not respond."""

    def __init__(self, area: str, check: Check, subject: Examined) -> None:
        self._area = area
        self._found: list[Diagnosis] | None = None

        def work() -> None:
            try:
                self._found = check(subject)
            except Exception as error:
                # A defect in one check must not hide the findings of the others.
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self._found = [Diagnosis("warning", area, f"this could not be checked: {why}")]

        # A daemon thread: one that hangs on a dead network disk cannot be ended, and must not keep the command alive.
        self._thread = threading.Thread(target=work, name=f"doctor-{area}", daemon=True)
        self._thread.start()

    def outcome(self, end: float) -> list[Diagnosis]:
        """Return what the check found by that time."""
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._found is None:
            return [Diagnosis("warning", self._area, f"this could not be checked within {CHECK_TIMEOUT:g} s")]
        return self._found


def _configuration(parsed: Parsed) -> tuple[Examined, list[Diagnosis]]:
    """Return what to examine, and what is wrong with the file itself."""
    try:
        choice = choose(parsed.value("config"), None, os.environ)
    except ConfigError as error:
        text, hint = error.message, error.hint
        if isinstance(error, ConfigProblems):
            text, hint = (
                error.text_by_importance,
                "correct it there, or move the file away and run mcp-workbench init again",
            )
        return Examined(None, os.environ), [Diagnosis("error", "configuration", text, hint or "")]
    config = choice.config
    found = []
    if choice.warning is not None:
        text, _, hint = choice.warning.partition("\nhint: ")
        found.append(Diagnosis("warning", "configuration", text, hint))
    lacking = unresolved(config)
    if lacking is not None:
        text, own_hint = message_and_hint(lacking)
        if len(lacking.problems) > 1:
            text, own_hint = lacking.message, "set these variables before the workbench starts, or in an `envFile`"
        found.append(Diagnosis("error", "variables", text, own_hint or ""))
    found += [Diagnosis("warning", "configuration", text) for text in about_ignored_keys(config)]
    found += [Diagnosis("warning", "secrets", text, USE_ENV_HINT) for text in about_exposed_arguments(config)]
    return Examined(config, os.environ), found


def _servers(parsed: Parsed, subject: Examined) -> tuple[list[Finding], list[Diagnosis]]:
    """Start the servers whose program exists, and report what is missing for the others."""
    config = subject.config
    if config is None:
        return [], []
    redactor = log_for(parsed, config)
    engine = Engine(config, use_cache=False, redactor=redactor)
    # These are known to fail, and other checks report the cause more clearly.
    failed = {label: why for label, server in subject.servers.items() if (why := _known_failure(server, subject))}
    findings, remarks = connect(
        config, engine, remember=True, redactor=redactor, failed=failed, seconds=SERVERS_TIMEOUT
    )
    started = [each for each in findings if f"{each.toolbox}/{each.server}" not in failed]
    found = [
        each for one in started for each in about_server(one, subject.servers[f"{one.toolbox}/{one.server}"].command)
    ]
    return findings, found + [Diagnosis("warning", "names", text) for text in remarks]


def _known_failure(server: ServerConfig, subject: Examined) -> str:
    if server.unresolved:
        return in_one_line(server.unresolved)
    program = doctor_checks.missing_program(server, subject)
    return f"the program `{program}` is missing" if program else ""


def about_server(finding: Finding, command: str | None) -> list[Diagnosis]:
    """Return the diagnoses of a server that was started, with this program if it has one."""
    label = f"{finding.toolbox}/{finding.server}"
    if finding.state == "failed":
        return [Diagnosis("error", "servers", f"{label}: {finding.error}", finding.hint)]
    if finding.state == SIGN_IN_NEEDED:
        hint = finding.hint or f"mcp-workbench auth login {label}"
        return [Diagnosis("warning", "sign-ins", f"{label}: {finding.error}", hint)]
    if finding.state != "ready":
        text = f"{label}: was not ready after {SERVERS_TIMEOUT:g} s"
        return [Diagnosis("error", "servers", text, "mcp-workbench check --connect waits longer for it")]
    found = [Diagnosis("warning", "servers", f"{label}: {text}") for text in finding.remarks]
    found += [Diagnosis("warning", "hidden characters", f"{label}: {text}") for text in finding.hidden]
    if finding.seconds is not None and finding.seconds > SLOW_START_THRESHOLD:
        text = f"{label}: took {finding.seconds:.0f} s to start"
        found.append(Diagnosis("note", "servers", text, _about_slow_start(command)))
    return found


def _about_slow_start(command: str | None) -> str:
    program = os.path.basename(command or "")
    if any(program in runners for runners in RUNNERS_OF_KINDS.values()):
        # They all keep what they have downloaded.
        return "a package is downloaded at its first start only; if it is slow again, install it and start its program"
    return "here all servers start at once; on its own it may be faster" if program else ""


def _put_right(each: Diagnosis) -> None:
    if each.fix is None:
        return
    try:
        each.fixed = each.fix()
    except (OSError, WorkbenchError) as error:
        each.hint = f"could not be fixed: {error}"


def _show(screen: Screen, found: list[Diagnosis]) -> None:
    # A hint for several is shown once, below the last of them.
    last = {(each.severity, each.area, each.hint): each for each in found if not each.fixed}
    for each in found:
        first, _, rest = tilde(each.text).partition("\n")
        screen.line((each.severity, _SEVERITY_STYLES[each.severity]), f": {each.area}: {first}")
        if rest:
            screen.line((rest, "dim"), indent=2)
        if each.fixed:
            screen.line(("fixed: ", "good"), tilde(each.fixed), indent=2)
        elif each.hint and each is last[each.severity, each.area, each.hint]:
            screen.line(("hint: ", "name"), tilde(each.hint), indent=2)


def _sum_up(found: list[Diagnosis]) -> None:
    left = [each for each in found if not each.fixed]
    counts = {severity: sum(each.severity == severity for each in left) for severity in ("error", "warning")}
    counted = [plural(count, word) for word, count in counts.items() if count]
    remark("note", " and ".join(counted) if counted else "nothing is wrong")
    if (following := _next_step(left)) is not None:
        remark("hint", following)


def _next_step(left: list[Diagnosis]) -> str | None:
    """Return the one thing to do next about the most severe findings: what is safe to fix by itself, else what the
    first of them asks for. Notes need nothing, but may be fixed."""
    severity = min((each.severity for each in left), key=SEVERITIES.index, default=None)
    worst = [each for each in left if each.severity == severity]
    if any(each.fix is not None for each in worst):
        return "mcp-workbench doctor --fix fixes what is safe to fix"
    # With a single finding its hint is just above.
    if severity == "note" or len(left) < 2:
        return None
    first = next((each for each in worst if each.hint), worst[0])
    # A command says what it is about, and so does a hint with the name of what is wrong; "check `url`" does not.
    statement = _first_statement(first.text)
    names_it = any(each in statement for each in _BACKTICKED.findall(first.hint))
    about = "" if first.hint.startswith("mcp-workbench") or names_it else f" ({statement})"
    return f"do this first: {first.hint or 'put the first of these right'}{about}"


def _first_statement(text: str) -> str:
    """Return the first line, or what it says before a list that fills the next lines."""
    line, _, rest = text.partition("\n")
    return line.partition("; ")[0] if rest else line
