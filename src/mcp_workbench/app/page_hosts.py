"""Hosts that the sandboxes of servers refused, as the page shows them: what was decided about each, and how to allow it
for good. Functions of values; what a decision does is in `server_links`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec.json import encode

from mcp_workbench.engine.config.host_names import BadHost, parse_host
from mcp_workbench.engine.config.model import ServerConfig
from mcp_workbench.engine.downstream.connection import Connection
from mcp_workbench.engine.sandbox.egress_rules import EgressRules
from mcp_workbench.seeing.page.shown_workbench import Json

HTTPS_PORT: Final = 443


def refused_hosts(config: ServerConfig, connections: Iterable[Connection]) -> Json | None:
    """The hosts that these copies of a server were refused; None without any. The `decision` about each is empty if
    there is none, and None if it cannot be allowed."""
    sandbox = config.sandbox
    if sandbox is None or not isinstance(sandbox.network, tuple):
        return None
    counts: Counter[str] = Counter()
    decisions: dict[str, bool] = {}
    for each in connections:
        counts.update(each.refused_hosts)
        decisions |= each.entry.host_decisions
    if not counts:
        return None

    def decision(host: str) -> str | None:
        if host in decisions:
            return "allow" if decisions[host] else "refuse"
        return "" if can_be_listed(host) else None

    hosts = [{"host": host, "count": count, "decision": decision(host)} for host, count in counts.most_common()]
    wanted = [each["host"] for each in hosts if each["decision"] in ("", "allow")]
    setting = f'"network": {encode([*sandbox.network, *wanted]).decode()}' if wanted else None
    return {"hosts": hosts, "setting": setting}


def can_be_listed(host: str) -> bool:
    """Whether it is one host that `network` can name. Servers may ask for anything, also for what would be a pattern
    there."""
    try:
        parsed = parse_host(host)
    except BadHost:
        return False
    if parsed.is_wildcard or (parsed.addresses is not None and parsed.addresses.num_addresses > 1):
        return False
    name = parsed.name if parsed.addresses is None else str(parsed.addresses.network_address)
    return EgressRules((host,)).refusal(name, parsed.port or HTTPS_PORT) is None
