"""Literal secrets in a server's entry, and the same entry with references instead.

`engine.config.redact` decides what is a secret, and hides the same. Errs on the side of replacing: a reference works
for values that are not secret too. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp_workbench.engine.config.redact import (
    after_scheme,
    argument_secrets,
    is_literal_secret,
    secrets_in,
    secrets_in_arguments,
    secrets_in_url,
)
from mcp_workbench.setup.clients.foreign_text import is_variable_name, variable_name
from mcp_workbench.setup.clients.remote_wrappers import unwrapped

# Takes a variable and its value, and returns the replacement.
Keep = Callable[[str, str], str]


def without_secrets(server: str, entry: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """Return the entry with every literal secret replaced by what `keep` returns."""
    found = dict(entry)
    prefix = variable_name(server)
    if "env" in found:
        found["env"] = {
            name: keep(name if is_variable_name(name) else variable_name(name) or f"{prefix}_VALUE", value)
            if is_literal_secret(name, value)
            else value
            for name, value in found["env"].items()
        }
    if "headers" in found:
        found["headers"] = {
            name: _header(f"{prefix}_{variable_name(name)}", value, keep)
            if is_literal_secret(name, value[after_scheme(value) :])
            else value
            for name, value in found["headers"].items()
        }
    if "args" in found:
        found["args"] = _arguments(prefix, found["args"], keep)
    secret = found.get("oauth", {}).get("clientSecret", "")
    if is_literal_secret("clientSecret", secret):
        found["oauth"] = {**found["oauth"], "clientSecret": keep(f"{prefix}_CLIENT_SECRET", secret)}
    if "url" in found and "${" not in found["url"]:
        for number, secret in enumerate(secrets_in_url(found["url"])):
            variable = f"{prefix}_URL_KEY" + (f"_{number + 1}" if number else "")
            found["url"] = found["url"].replace(secret, keep(variable, secret))
    return found


def secrets_of(entry: Mapping[str, Any]) -> list[str]:
    """Return what must not be shown of an entry."""
    found = [
        secret
        for pairs in (entry.get("env", {}), entry.get("headers", {}))
        for name, value in pairs.items()
        for secret in secrets_in(name, value)
    ]
    found += secrets_in("clientSecret", entry.get("oauth", {}).get("clientSecret", ""))
    found += secrets_in_arguments(entry.get("args", ()))
    # The address of a wrapper such as mcp-remote is among its arguments.
    return found + secrets_in_url(unwrapped(entry)[0].get("url", ""))


def secrets_within(document: object, name: str = "") -> list[str]:
    """Return the literal secrets of any document, judging by their names, the names around them, or their form."""
    if isinstance(document, str):
        return [document[after_scheme(document) :]] if is_literal_secret(name, document) else []
    if isinstance(document, Mapping):
        return [found for key, each in document.items() for found in secrets_within(each, f"{name} {key}")]
    return [found for each in document for found in secrets_within(each, name)] if isinstance(document, list) else []


def _arguments(prefix: str, arguments: list[str], keep: Keep) -> list[str]:
    found = list(arguments)
    # From last to first, so that earlier positions stay valid.
    for index, name, start, end in reversed(list(argument_secrets(arguments))):
        word = found[index]
        variable = f"{prefix}_{variable_name(name) or 'ARGUMENT'}"
        found[index] = word[:start] + keep(variable, word[start:end]) + word[end:]
    return found


def _header(variable: str, value: str, keep: Keep) -> str:
    start = after_scheme(value)
    return value[:start] + keep(variable, value[start:])
