"""The tables of settings in the documents, made from their declarations. Pure.

A table follows a line `<!-- settings of server: command, args -->`, which names whose settings it lists, and which of
them; without names, all.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mcp_workbench.engine.config.kinds import MAX_DURATION
from mcp_workbench.engine.config.schema import json_schema

TABLE: Final = re.compile(r"^(<!-- settings of (\w+)(?:: ([^>]*?))? -->\n)(?:\n(?:\|[^\n]*\n)+)?", re.MULTILINE)
HEAD: Final = "\n| key | value | default | what it is |\n|---|---|---|---|\n"
_LARGE: Final = ((1024 * 1024, "MiB"), (1024, "KiB"))
# The limits of `or_variable`: what a variable brings in is not a value that people write.
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{.+\}"}

# What people should know beyond the sentence that an editor shows: where more is said, above all.
MORE: Final = {
    "file.face": "See [faces](../guides/faces.md). `--face` on the command line takes precedence.",
    "file.separator": "See [separators](../guides/faces.md#separators). `--separator` on the command line takes "
    "precedence.",
    "file.maxDefinitionBytes": "They are reported under `unavailable` and by `check --connect`.",
    "file.maxPendingBodyBytes": "Of several callers, each may have as much as it leaves free (one alone half of it, "
    "two a third each), and always one request if there is room. Later is 503 with `Retry-After`; small "
    "is up to 64 KiB.",
    "file.budget": "See [budgets](../guides/context.md#budgets).",
    "file.pin": "See [pinned tools](../guides/context.md#pinned-tools).",
    "file.useTool": "See [split](../guides/faces.md#split).",
    "file.programs": "See [programs](../guides/programs.md), and [its members](#programs).",
    "file.clients": "See [clients](#clients).",
    "file.policy": "See [policy](../guides/policy.md).",
    "file.limits": "See [limits](../guides/policy.md#limits).",
    "file.inheritEnv": "See [what a program inherits](#what-a-program-inherits).",
    "file.sandbox": "See [sandbox](../guides/sandbox.md).",
    "file.share": "See [who shares a server](#who-shares-a-server).",
    "file.shared": "See [sharing](../guides/sharing.md).",
    "file.lock": "See [lock](../guides/lock.md).",
    "file.audit": "See [audit](#audit).",
    "file.page": "See [page](#page).",
    "file.metrics": "See [metrics](#metrics).",
    "file.telemetry": "See [telemetry](#telemetry).",
    "file.keychain": "See [encrypted sign-ins](../guides/auth.md#encrypted-sign-ins).",
    "file.redactResults": "See [secrets in results](../guides/secrets.md#secrets-in-results).",
    "file.auth": "One [identity provider](../guides/team.md#your-identity-provider), or a list of them; [its "
    "members](#who-may-call-over-http).",
    "file.trustedProxy": "See [how to set it up](../guides/team.md#behind-a-proxy-that-authenticates), and [its "
    "members](#who-may-call-over-http).",
    "file.registry": "An address must offer the registry's API under `/v0.1` or `/v0` ([`add`](cli.md#add)); "
    "a relative path starts at the folder of this file.",
    "toolbox.budget": "See [budgets](../guides/context.md#budgets).",
    "toolbox.inheritEnv": "See [what a program inherits](#what-a-program-inherits).",
    "toolbox.sandbox": "See [sandbox](../guides/sandbox.md).",
    "toolbox.share": "See [who shares a server](#who-shares-a-server).",
    "toolbox.mcpServers": "[Their names](#names).",
    "server.env": "Numbers and booleans need no quotes.",
    "server.envFile": "See [env files](../guides/secrets.md#env-files).",
    "server.inheritEnv": "See [what a program inherits](#what-a-program-inherits).",
    "server.cwd": "`~` is your home.",
    "server.oauth": "See [signing in](#signing-in).",
    "server.forwardIdentity": "In a header that the workbench signs: see [what servers "
    "get](../guides/team.md#what-servers-get).",
    "server.tokenExchange": "From the identity provider of `auth`: see [what servers "
    "get](../guides/team.md#what-servers-get).",
    "server.toolFilters": "The last match counts; a list of exclusions keeps everything else.",
    "server.idleTimeout": "See [which servers keep running](reliability.md#which-servers-keep-running).",
    "server.sandbox": "See [sandbox](../guides/sandbox.md).",
    "server.share": "See [who shares a server](#who-shares-a-server).",
    "server.resultBudget": "See [large results](../guides/context.md#large-results).",
    "oauth.clientSecret": "Best [by reference](../guides/secrets.md).",
    "oauth.privateKey": "Best by reference: `${file:robot.pem}`.",
    "oauth.resource": "If unset, what the server's metadata says, or else its address without the query.",
    "oauth.grantDays": "Even of one that is in use.",
    "auth.issuer": "`https`, or this machine.",
    "auth.publicUrl": "Required for one of them, and never taken from a request.",
    "auth.introspection": "Needs the next two.",
    "auth.clientSecret": "Best [by reference](../guides/secrets.md).",
    "auth.algorithms": "Never `none` or `HS256`.",
    "trustedProxy.peers": "Addresses, networks, or `unix:USER` on a Unix socket.",
    "trustedProxy.addressHeader": "Its last address counts, and the proxy must send it once.",
    "trustedProxy.secret": "Best [by reference](../guides/secrets.md). This or `certificate` is required; with both, "
    "the proxy needs both.",
    "audit.file": "Created with mode 0600.",
    "audit.syslog": "Facility `authpriv`.",
    "file.cluster": "See [how to run it](../guides/scaling.md), and [its members](#several-instances).",
    "cluster.password": "Best [by reference](../guides/secrets.md).",
    "audit.stdout": "Over stdio, stdout is the protocol, and the workbench does not start.",
    "clients.face": "See [auto](../guides/faces.md#auto).",
    "clients.separator": "Where the `separator` of the file is `:`.",
}


def groups() -> dict[str, dict[str, Any]]:
    """The objects of the schema that tables can be made of."""
    schema: Any = json_schema()
    file, toolbox, server = schema, schema["$defs"]["toolbox"], schema["$defs"]["server"]
    of_file, of_server = file["properties"], server["properties"]
    rule = of_file["policy"]["items"]
    return {
        "file": file,
        "toolbox": toolbox,
        "server": server,
        "oauth": of_server["oauth"],
        "sandbox": of_server["sandbox"]["anyOf"][2],
        "forwardIdentity": of_server["forwardIdentity"]["anyOf"][1],
        "tokenExchange": of_server["tokenExchange"],
        "auth": of_file["auth"]["anyOf"][0],
        "trustedProxy": of_file["trustedProxy"],
        "cluster": of_file["cluster"],
        "clusterKey": of_file["cluster"]["properties"]["key"],
        "audit": of_file["audit"],
        "page": of_file["page"]["anyOf"][1],
        "metrics": of_file["metrics"]["anyOf"][1],
        "telemetry": of_file["telemetry"]["anyOf"][1],
        "programs": of_file["programs"]["anyOf"][1],
        "clients": of_file["clients"]["additionalProperties"],
        "policy": rule,
        "when": rule["properties"]["when"],
        "limits": of_file["limits"]["items"],
    }


def with_tables(document: str) -> str:
    """The document with its tables as they should be."""
    known = groups()

    def table(found: re.Match[str]) -> str:
        group = known[found[2]]
        names = found[3].split(", ") if found[3] else group["properties"]
        return found[1] + HEAD + "".join(_row(f"{found[2]}.{name}", name, group) for name in names)

    return TABLE.sub(table, document)


def listed(document: str) -> list[str]:
    """The settings that its tables list, as `group.name`."""
    known = groups()
    return [
        f"{found[2]}.{name}"
        for found in TABLE.finditer(document)
        for name in (found[3].split(", ") if found[3] else known[found[2]]["properties"])
    ]


def _row(place: str, name: str, group: dict[str, Any]) -> str:
    schema = group["properties"][name]
    about = " ".join(filter(None, (schema["description"], MORE.get(place))))
    cells = (f"`{name}`", _value(schema), _default(schema, name in group.get("required", ())), about)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(schema: dict[str, Any], required: bool) -> str:
    if required:
        return "required"
    if "default" not in schema:
        return ""
    default = schema["default"]
    if isinstance(default, int | float) and not isinstance(default, bool):
        size = next((f" ({default // unit} {word})" for unit, word in _LARGE if default and default % unit == 0), "")
        return f"`{default:g}`{size}" if isinstance(default, float) else f"`{default}`{size}"
    return f"`{default}`" if isinstance(default, str) else f"`{str(default).lower()}`"


def _value(schema: dict[str, Any]) -> str:
    """What may be written, in words."""
    if "anyOf" in schema and "properties" not in schema:
        ways = [each for each in schema["anyOf"] if each != _VARIABLE]
        return ", or ".join(dict.fromkeys(map(_value, ways)))
    if "enum" in schema:
        *others, last = (f"`{word}`" for word in schema["enum"])
        return f"{', '.join(others)} or {last}" if others else last
    kind = schema.get("type", "object")
    kinds = kind if isinstance(kind, list) else [kind]
    return _word(schema, kinds[0]) + (", or `null`" if "null" in kinds else "")


def _word(schema: dict[str, Any], kind: str) -> str:
    if kind == "number":
        return "seconds" if schema.get("maximum") == MAX_DURATION else "number"
    if kind == "integer":
        return f"whole number, {schema['minimum']:,} to {schema['maximum']:,}"
    if kind == "array":
        items = _value(schema["items"])
        return f"list of {items}s"
    if kind == "object" and "properties" not in schema and "additionalProperties" in schema:
        inner = schema["additionalProperties"]
        if isinstance(inner, dict) and inner.get("type") == "string":
            return "object of strings"
    return "`true` or `false`" if kind == "boolean" else kind
