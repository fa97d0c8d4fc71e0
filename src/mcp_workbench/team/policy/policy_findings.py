"""Rules that can never take effect, and why: for `mcp-workbench check`. Pure.

Reports are certain, given what is known: a rule that is not reported may still match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from mcp_workbench.engine.nearest import nearest
from mcp_workbench.team.policy.globs import PathGlob, fits, takes_all
from mcp_workbench.team.policy.policy import POLICY_KINDS, STRICTNESS, Rule

# By toolbox and server, the known items by kind; None if unknown.
KnownOffers = Mapping[tuple[str, str], Mapping[str, Collection[str]] | None]


def never_matching(rules: Sequence[Rule], known: KnownOffers) -> list[str]:
    """One sentence for each rule that can never take effect."""
    found = []
    for number, rule in enumerate(rules):
        reason = (
            _shadowed(rule, rules[:number]) or _never_tightens(rule, rules[number + 1 :]) or _leads_nowhere(rule, known)
        )
        if reason is not None:
            found.append(f"$.{rule.name} can never take effect: {reason}")
    return found


def _shadowed(rule: Rule, before: Iterable[Rule]) -> str | None:
    for other in before:
        if other.written.arguments or other.written.has_annotations:
            continue
        if _takes_everyone(other, rule) and _covers_all(other, rule):
            return f"$.{other.name} matches everything that it matches, and comes first"
    return None


def _takes_everyone(other: Rule, rule: Rule) -> bool:
    mine, theirs = rule.written.who, other.written.who
    return not theirs or "*" in theirs or (bool(mine) and set(mine) <= set(theirs))


def _covers_all(other: Rule, rule: Rule) -> bool:
    if other.paths is not None and rule.paths is None and not rule.written.has_annotations:
        # It also covers methods that are not listed here.
        return False
    return all(_covers(other, rule, kind) for kind in POLICY_KINDS)


def _covers(other: Rule, rule: Rule, kind: str) -> bool:
    if other.paths is None:
        return True
    if rule.paths is None:
        # About everything; only annotations or arguments narrow it down.
        return (kind != "tools" and rule.written.has_annotations) or any(_is_all(path) for path in other.paths[kind])
    return all(any(_includes(wider, path) for wider in other.paths[kind]) for path in rule.paths[kind])


def _is_all(path: PathGlob) -> bool:
    return takes_all(path.toolbox) and takes_all(path.server) and takes_all(path.item)


def _includes(wider: PathGlob, path: PathGlob) -> bool:
    pairs = ((wider.toolbox, path.toolbox), (wider.server, path.server), (wider.item, path.item))
    return all(_is_wider(one, other) for one, other in pairs)


def _is_wider(one: str, other: str) -> bool:
    return takes_all(one) or one == other or (not {"*", "?"} & set(other) and fits(one, other))


def _never_tightens(rule: Rule, following: Sequence[Rule]) -> str | None:
    if not rule.written.has_annotations:
        return None
    others = [other for other in following if not other.written.has_annotations]
    if others and all(STRICTNESS[other.then] > STRICTNESS[rule.then] for other in others):
        return (
            f"it would loosen what follows by what servers say of themselves; allow the rest at the end, and "
            f"`{others[-1].then}` the opposite before it"
        )
    return None


def _leads_nowhere(rule: Rule, known: KnownOffers) -> str | None:
    if rule.paths is None:
        return None
    reasons = [_why_nowhere(path, kind, known) for kind in POLICY_KINDS for path in rule.paths[kind]]
    return None if any(reason is None for reason in reasons) else reasons[0]


def _why_nowhere(path: PathGlob, kind: str, known: KnownOffers) -> str | None:
    boxes = {toolbox for toolbox, _ in known}
    if not any(fits(path.toolbox, toolbox) for toolbox in boxes):
        return f"no toolbox is named `{path.toolbox}`{_near(path.toolbox, boxes)}"
    reached = [items for (toolbox, server), items in known.items() if path.reaches(toolbox, server)]
    if not reached:
        servers = {server for toolbox, server in known if fits(path.toolbox, toolbox)}
        return f"no server of toolbox `{path.toolbox}` is named `{path.server}`{_near(path.server, servers)}"
    if kind == "resources" or any(items is None for items in reached):
        # Resources need not be listed.
        return None
    items = {item for each in reached if each is not None for item in each.get(kind, ())}
    if not items and takes_all(path.item):
        return None
    if not any(fits(path.item, item) for item in items):
        where = f"`{path.toolbox}/{path.server}`"
        return f"no {kind.removesuffix('s')} of {where} is named `{path.item}`{_near(path.item, items)}"
    return None


def _near(wrong: str, known: Iterable[str]) -> str:
    found = nearest(wrong, list(known), 1)
    return f"; did you mean `{found[0]}`?" if found else ""
