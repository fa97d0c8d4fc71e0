"""The lock while a workbench runs: differences from `workbench.lock` are reported, and withheld under `enforce`.

Applied where definitions become visible (`ServerEntry.judges`), so that no list, search or call sees a withheld one, in
any face; and as a step around requests, for items that can be reached without being listed. What cannot be judged,
because the file is missing, damaged, in conflict or of another configuration, is withheld: it fails closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from mcp_workbench.engine.catalog.entry import NO_REASONS
from mcp_workbench.engine.catalog.offer import INSTRUCTIONS, SINGULAR
from mcp_workbench.engine.catalog.uris import fits, names_file, skill_of, skills_around
from mcp_workbench.engine.config.model import modified_at
from mcp_workbench.engine.jsonrpc.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from mcp_workbench.engine.steps import Denial
from mcp_workbench.errors import ConfigError
from mcp_workbench.team.lock.lock_difference import How, changes_of, named
from mcp_workbench.team.lock.lock_file import LockedServer, LockFile, definition_hash, lockable, locked_kinds, read_lock
from mcp_workbench.team.lock.skill_content import JUDGED_METHODS, why_other

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.catalog.entry import ServerEntry
    from mcp_workbench.engine.catalog.offer import Offer
    from mcp_workbench.engine.config.model import LockTarget
    from mcp_workbench.engine.steps import EventRecorder, GuardedRequest, Outcome
    from mcp_workbench.team.lock.shared_lock import SharedLock

log = logging.getLogger(__name__)

CHANGED_HINT: Final = "`mcp-workbench team lock diff` shows the difference, `mcp-workbench team lock accept` accepts it"
# How many differences a log line names, and how many audit events there are for one list.
MAX_NAMED_DIFFERENCES: Final = 5
MAX_LOCK_EVENTS: Final = 50
# Cached hashes, so that the same list is compared quickly when it comes again.
MAX_DEFINITION_HASHES: Final = 100_000
# How many answers that differ from a server's list are logged.
MAX_LOGGED_CONTENTS: Final = 1000

# The details name the user's files: they are shown by `check`, `status` and in the log, not to callers.
UNUSABLE: Final = "the lock file cannot be used (`mcp-workbench check` says why)"
NO_FILE: Final = "there is no lock file yet (`mcp-workbench team lock` creates it)"

_TEXTS: Final[dict[How, str]] = {
    "new": "it is not in the lock file",
    "changed": "it has changed since it was locked",
    "removed": "it is gone",
}
# The lists that the item of a request may be in.
_KINDS_OF_METHODS: Final = {
    "tools/call": ("tools",),
    "prompts/get": ("prompts",),
    "resources/read": ("resources",),
    "resources/subscribe": ("resources",),
    "resources/directory/read": ("resources",),
    "skills/get": ("skills",),
    "completion/complete": ("prompts", "resources", "resourceTemplates"),
}
# Methods whose item need not be in a list: URIs, of which a template covers many.
_BY_ADDRESS: Final = frozenset(
    {"resources/read", "resources/subscribe", "resources/directory/read", "skills/get", "completion/complete"}
)
# Methods that reach data, which a lock need not cover.
_DATA: Final = frozenset({"resources/read", "resources/subscribe", "resources/directory/read"})
# These end or follow what was let through before, or are about no item. It is unknown what any other method reaches.
_FREE: Final = frozenset(
    {
        "resources/unsubscribe",
        "logging/setLevel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tasks/cancel",
    }
)
_NOTIFICATIONS: Final = "notifications/"
WithheldReasons = dict[str, dict[str, str]]


class LockReading(Struct, frozen=True):
    """The result of reading a lock file: the file, or why there is nothing to compare with."""

    path: str
    modified_at: int
    file: LockFile | None
    problem: ConfigError | None
    # What it covers.
    kinds: tuple[str, ...]
    # Why everything is withheld if there is a problem: without the details.
    reason: str = UNUSABLE


def look_at_lock(target: LockTarget) -> LockReading:
    """Read the lock file. Blocks on the disk, so not for the event loop."""
    # The time first: a change while we read then counts as a later one.
    at = modified_at(target.path)
    try:
        file = read_lock(target)
    except ConfigError as error:
        return LockReading(target.path, at, None, error, locked_kinds(target))
    problem = None
    if file is None:
        problem = ConfigError(
            f"there is no lock file yet: `{target.path}`",
            hint="`mcp-workbench team lock` creates it; review it, and commit it",
        )
    return LockReading(target.path, at, file, problem, locked_kinds(target), NO_FILE)


class Lock:
    """The current lock file of one configuration."""

    def __init__(
        self, reading: LockReading, record: EventRecorder, *, is_enforced: bool, shared: SharedLock | None = None
    ) -> None:
        """`shared`: what was accepted on other machines; None if there are none."""
        self._record = record
        self._shared = shared
        self.is_enforced = is_enforced
        # Computed hashes by place: the definition, and its hash.
        self._hashes: dict[tuple[str, str], tuple[Raw, str]] = {}
        # What was reported last, by the user whose connections list it, and by server.
        self._said: dict[str, dict[str, frozenset[tuple[str, str, How]]]] = {}
        self._problem_said = ""
        # Answers that differed from what their server lists.
        self._said_contents: set[tuple[str, str]] = set()
        self._take(reading)

    @property
    def problem(self) -> ConfigError | None:
        """Why there is nothing to compare with; None if there is a lock file."""
        return self._reading.problem

    def _take(self, reading: LockReading) -> None:
        self._reading = reading
        self.apply_accepted()
        said, self._problem_said = self._problem_said, "" if self.problem is None else self.problem.message
        if self.problem is not None and self.problem.message != said:
            what = "nothing is shown until that is solved" if self.is_enforced else "nothing can be compared"
            log.error("%s; %s. hint: %s", self.problem.message, what, self.problem.hint or CHANGED_HINT)

    def apply_accepted(self) -> None:
        """Compare with what was accepted on other machines as well. The caller judges all servers again."""
        file = self._reading.file
        self._file = file if file is None or self._shared is None else self._shared.applied(file)

    def has_changed(self) -> bool:
        """Whether the file was written or deleted since it was read. Accesses the disk."""
        return modified_at(self._reading.path) != self._reading.modified_at

    def use(self, reading: LockReading, *, is_enforced: bool) -> bool:
        """Switch to a new reading of the file, and to new consequences. The caller judges all servers again. Returns
        whether the file has changed."""
        before = self._reading
        if is_enforced != self.is_enforced:
            # Earlier reports named other consequences.
            self._said.clear()
            self._problem_said = ""
        self.is_enforced = is_enforced
        is_same = before.path == reading.path
        if self._shared is not None and is_same and before.file is not None and reading.file is not None:
            self._shared.note(before.file, reading.file)
        self._take(reading)
        return (before.path, before.modified_at) != (reading.path, reading.modified_at)

    def judge(self, entry: ServerEntry, offer: Offer) -> WithheldReasons:
        """The definitions in this offer that must not be shown, with the reason."""
        if self.problem is not None:
            return self._all(offer, self._reading.reason) if self.is_enforced else {}
        assert self._file is not None
        locked = self._file.server(entry.toolbox, entry.name)
        found = frozenset(
            changes_of(
                locked,
                offer,
                lambda kind, name, raw: self._hash(f"{entry.label} {kind}", name, raw),
                self._reading.kinds,
            )
        )
        self._say(entry, found, locked)
        if not self.is_enforced:
            return {}
        withheld: WithheldReasons = {}
        for kind, name, how in found:
            if how != "removed":
                withheld.setdefault(kind, {})[name] = _TEXTS[how]
        return withheld

    def _all(self, offer: Offer, reason: str) -> WithheldReasons:
        found = {kind: lockable(offer, kind) for kind in (*offer.lists, INSTRUCTIONS)}
        return {kind: dict.fromkeys(definitions, reason) for kind, definitions in found.items() if definitions}

    def _hash(self, place: str, name: str, definition: Raw) -> str:
        known = self._hashes.get((place, name))
        if known is not None and known[0] == definition:
            return known[1]
        found = definition_hash(definition)
        if len(self._hashes) >= MAX_DEFINITION_HASHES:
            # Some servers list a resource for each file, and different ones the next day.
            self._hashes.clear()
        self._hashes[place, name] = definition, found
        return found

    @property
    def covers_addresses(self) -> bool:
        """Whether an address that is in no list may be refused for that: where resources are covered, and where
        nothing can be compared."""
        return self.problem is not None or "resources" in self._reading.kinds

    def differences(self, entry: ServerEntry) -> dict[tuple[str, str], str]:
        """What a server offers otherwise than locked, withheld or not, as it was last judged: why, by kind and name."""
        found = self._said.get(entry.context.principal, {}).get(entry.label, frozenset())
        return {(kind, name): _TEXTS[how] for kind, name, how in sorted(found)}

    def forget(self, principal: str) -> None:
        """Drop what was reported to this user."""
        self._said.pop(principal, None)

    def report_content(self, entry: ServerEntry, what: str, reason: str) -> None:
        """A server answers about a skill otherwise than it lists it. Logged once. For any thread."""
        if (entry.label, what) in self._said_contents or len(self._said_contents) >= MAX_LOGGED_CONTENTS:
            return
        self._said_contents.add((entry.label, what))
        log.warning("[%s] %s is withheld: %s", entry.label, what, reason)

    def _say(self, entry: ServerEntry, found: frozenset[tuple[str, str, How]], locked: LockedServer | None) -> None:
        # By user: their connections may list different definitions.
        said = self._said.setdefault(entry.context.principal, {})
        before = said.get(entry.label, frozenset())
        said[entry.label] = found
        news = sorted(found - before)
        if not news:
            return
        items = ", ".join(f"{named(kind, name[:100], '`')} ({how})" for kind, name, how in news[:MAX_NAMED_DIFFERENCES])
        more = f" and {len(news) - MAX_NAMED_DIFFERENCES} more" if len(news) > MAX_NAMED_DIFFERENCES else ""
        what = "is not in the lock file" if locked is None else "differs from the lock file"
        consequence = "; withheld until accepted" if self.is_enforced else ""
        log.warning("[%s] %s: %s%s%s. hint: %s", entry.label, what, items, more, consequence, CHANGED_HINT)
        for kind, name, how in news[:MAX_LOCK_EVENTS]:
            self._record(
                "definition",
                principal=entry.context.principal or None,
                toolbox=entry.toolbox,
                server=entry.name,
                item=name,
                decision="withheld" if self.is_enforced and how != "removed" else "warned",
                rule="lock",
                reason=f"{SINGULAR.get(kind, kind)}: {how}",
            )


class LockStep:
    """Under `enforce`, stops requests for withheld items, however the client learned of them (`DefinitionStep`), and
    what a server answers about a skill otherwise than it lists it (`ResultStep`)."""

    judges_definitions = True
    judged_methods = JUDGED_METHODS

    def __init__(self, catalog_of: Callable[[str], Catalog], lock: Lock) -> None:
        # The catalogue of a principal's own connections.
        self._catalog_of = catalog_of
        self._lock = lock

    def _entry(self, request: GuardedRequest) -> ServerEntry | None:
        return self._catalog_of(request.principal).toolboxes.get(request.toolbox, {}).get(request.server)

    def check(self, request: GuardedRequest) -> Denial | None:
        entry = self._entry(request)
        if entry is None:
            return None
        method, item = request.method, request.item
        kinds = _KINDS_OF_METHODS.get(method)
        if kinds is None:
            if method in _FREE or method.startswith(_NOTIFICATIONS):
                return None
            return _withheld(f"method `{method[:200]}`", "the lock file cannot cover it", METHOD_NOT_FOUND)
        for kind in kinds:
            reason = entry.withheld.get(kind, NO_REASONS).get(item)
            if reason is not None:
                return _withheld(f"{SINGULAR[kind]} `{item[:200]}`", reason)
        if method not in _BY_ADDRESS:
            return None
        # Before anything that would let it pass: its files may be listed as resources too.
        skills = entry.withheld.get("skills", NO_REASONS)
        skill = skill_of(skills, item) if skills else None
        if skill is not None:
            return _withheld(f"resource `{item[:200]}`", f"of its skill `{skill[:200]}`, {skills[skill]}")
        if any(item in entry.definitions(kind) for kind in kinds):
            return None
        if method == "skills/get":
            return _withheld(f"skill `{item[:200]}`", "it is not in the lock file")
        listed = entry.definitions("skills")
        around = skills_around(listed, item)
        unnamed = around[0] if around and method == "resources/read" else None
        if unnamed is not None and any(names_file(skill, listed[skill], item) for skill in around):
            unnamed = None
        if around and unnamed is None:
            return None
        if any(fits(item, template) for template in entry.definitions("resourceTemplates")):
            return None
        if unnamed is not None:
            return _withheld(f"resource `{item[:200]}`", f"its skill `{unnamed[:200]}` does not list it")
        withheld = entry.withheld.get("resourceTemplates", NO_REASONS)
        template = next((each for each in withheld if fits(item, each)), None)
        if template is None:
            if method in _DATA and not self._lock.covers_addresses:
                return None
            reason = "it is not in the lock file and fits no template there"
        else:
            reason = f"of its template `{template[:200]}`, {withheld[template]}"
        return _withheld(f"resource `{item[:200]}`", reason)

    def judge_result(self, request: GuardedRequest, result: Raw) -> Denial | None:
        entry = self._entry(request)
        skills = {} if entry is None else entry.definitions("skills")
        if entry is None or not skills:
            return None
        reason = why_other(request.method, request.item, skills, result)
        if reason is None:
            return None
        what = f"{'skill' if request.method == 'skills/get' else 'resource'} `{request.item[:200]}`"
        self._lock.report_content(entry, what, reason)
        return _withheld(what, reason)

    def judge_again(self, request: GuardedRequest, rules: tuple[str, ...]) -> Denial | None:
        return self.check(request)

    def on_end(self, request: GuardedRequest, outcome: Outcome) -> None:
        """The lock keeps nothing of a request, so it has nothing to release."""


def _withheld(what: str, reason: str, code: int = INVALID_PARAMS) -> Denial:
    if reason != NO_FILE:
        reason += f"; for the user: {CHANGED_HINT}"
    return Denial(code, f"{what} is withheld: {reason}", rule="lock")
