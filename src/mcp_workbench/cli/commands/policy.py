"""`mcp-workbench team policy test`: show what the policy decides about a caller and an item, by which rule and why."""

from __future__ import annotations

from msgspec import DecodeError
from msgspec.json import decode

from mcp_workbench.cli.flags import Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.settings import configuration, log_for
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.entry import ServerEntry
from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.downstream.sharing import OWN_PRINCIPALS
from mcp_workbench.engine.steps import Subject
from mcp_workbench.team.identity.identities import Identity
from mcp_workbench.team.policy.policy import METHOD_OF, PolicyDecision, annotations_of, decide, made_ready


def run(parsed: Parsed) -> int:
    _, who, path, *rest = parsed.positionals
    written = rest[0] if rest else None
    if parsed.has("prompt") and parsed.has("resource"):
        raise UsageError("--prompt and --resource cannot be combined")
    kind = "prompts" if parsed.has("prompt") else "resources" if parsed.has("resource") else "tools"
    arguments = _arguments(written)
    config = configuration(parsed)
    log_for(parsed, config)
    entry, item = _found(config, path, who)
    entry.load_manifest()
    definition = entry.tools.get(item) if kind == "tools" else None
    # As the endpoint would do it: a key may be limited to toolboxes, whatever the rules are.
    identity = Identity(principal=who, groups=frozenset(parsed.values("group")), toolboxes=_toolboxes_of_key(who))
    subject = Subject(principal=who, method=METHOD_OF[kind], toolbox=entry.toolbox, server=entry.name, item=item)
    annotations = annotations_of(definition) if kind == "tools" else None
    decision = decide(made_ready(config.policy), identity, subject, annotations, arguments)
    is_known = kind != "tools" or definition is not None
    _show(parsed, decision, who, path, is_known=is_known)
    return 0


def _show(parsed: Parsed, decision: PolicyDecision, who: str, path: str, *, is_known: bool) -> None:
    screen = stdout()
    if parsed.has("json"):
        screen.json({"then": decision.then, "rule": decision.rule or None, "why": decision.why, "isKnown": is_known})
        return
    screen.line(f"{decision.then}: {path} for {who}")
    by = f"$.{decision.rule}: " if decision.rule.startswith("policy[") else ""
    screen.line(f"{by}{decision.why}", indent=2)
    if not is_known:
        # The defaults of the specification: `destructiveHint` and `openWorldHint` are true if absent.
        screen.line("nothing is known of this tool, so it counts as destructive and open-world", indent=2)


def _arguments(written: str | None) -> bytes | None:
    if written is None:
        return None
    try:
        is_object = isinstance(decode(written), dict)
    except DecodeError:
        is_object = False
    if not is_object:
        raise UsageError(f"`{written[:100]}` is not a JSON object", hint="""write '{"name": "value"}'""")
    return written.encode()


def _found(config: WorkbenchConfig, path: str, who: str) -> tuple[ServerEntry, str]:
    """Return the server and item that a path names, from the lists cached for this user or else for the workbench
    itself."""
    catalog = Catalog(config, ManifestStore(default_folder))
    for entry in catalog.entries():
        # Looked up, not split: any of the names may contain a slash.
        item = path.removeprefix(f"{entry.label}/")
        if item and item != path:
            theirs = entry if who in OWN_PRINCIPALS else catalog.of_user(who).toolboxes[entry.toolbox][entry.name]
            return (entry if theirs.load_manifest() is None else theirs), item
    raise UsageError(
        f"`{path[:200]}` matches no server", hint="write toolbox/server/tool; mcp-workbench list shows them"
    )


def never_taking_effect(config: WorkbenchConfig) -> list[str]:
    """Return rules that can never take effect according to the cached lists; for `check`."""
    from mcp_workbench.team.policy.policy_findings import never_matching

    catalog = Catalog(config, ManifestStore(default_folder))
    known = {}
    for entry in catalog.entries():
        is_known = entry.load_manifest() is not None
        kinds = ("tools", "prompts", "resources")
        # None for a server that has not been listed: a rule about it may still match.
        known[entry.toolbox, entry.name] = {kind: entry.definitions(kind) for kind in kinds} if is_known else None
    return never_matching(made_ready(config.policy), known)


def _toolboxes_of_key(name: str) -> tuple[str, ...] | None:
    from mcp_workbench.team.identity.named_keys import KeyFolder, folder

    path = folder()
    records = [] if path is None else KeyFolder(path).records()
    return next((record.toolboxes for record in records if record.name == name), None)
