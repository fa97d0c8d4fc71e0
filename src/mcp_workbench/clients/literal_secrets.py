"""Secrets that stand in a server as they are, and the same server with references in their place.

Owns the judgement: what is called a secret, or looks like a key that a service gives out. Errs on the side of taking
something out: a reference works for what is no secret too. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp_workbench.config.redact import secrets_in_url

_SECRET_NAME: Final = re.compile(r"key|token|secret|passw|pwd|auth|cred|cookie|private|dsn", re.IGNORECASE)
_KEY: Final = re.compile(
    r"(sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|lin_api|ntn|secret|AKIA|AIza|eyJ)[-_A-Za-z0-9][-_.A-Za-z0-9]{12,}"
)
_PASSWORD_IN_URL: Final = re.compile(r"\w+://[^/\s:@]+:[^/\s@]+@")
_SCHEME: Final = re.compile(r"(Bearer|Basic|Token|ApiKey) +", re.IGNORECASE)
_NOT_A_WORD: Final = re.compile(r"\W+")
_SHORTEST: Final = 6

# A variable and its value, to what stands there instead.
Keep = Callable[[str, str], str]


def without_secrets(server: str, entry: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    """The entry in which every literal secret is what `keep` made of it."""
    found = dict(entry)
    prefix = _variable(server)
    if "env" in found:
        found["env"] = {
            name: keep(name, value) if _is_secret(name, value) else value for name, value in found["env"].items()
        }
    if "headers" in found:
        found["headers"] = {
            name: _header(f"{prefix}_{_variable(name)}", value, keep)
            if _is_secret(name, _SCHEME.sub("", value, count=1))
            else value
            for name, value in found["headers"].items()
        }
    if "args" in found:
        found["args"] = _arguments(prefix, found["args"], keep)
    if "url" in found and "${" not in found["url"]:
        for number, secret in enumerate(secrets_in_url(found["url"])):
            variable = f"{prefix}_URL_KEY" + (f"_{number + 1}" if number else "")
            found["url"] = found["url"].replace(secret, keep(variable, secret))
    return found


def _arguments(prefix: str, arguments: list[str], keep: Keep) -> list[str]:
    found = []
    option = ""
    for word in arguments:
        name, equals, value = word.partition("=")
        if name.startswith("-") and equals and _is_secret(name, value):
            found.append(f"{name}={keep(f'{prefix}_{_variable(name)}', value)}")
        elif not word.startswith("-") and (
            (option and _is_secret(option, word)) or _KEY.fullmatch(word) or _PASSWORD_IN_URL.match(word)
        ):
            found.append(keep(f"{prefix}_{_variable(option) or 'ARGUMENT'}", word))
        else:
            found.append(word)
        option = word if word.startswith("-") and not equals else ""
    return found


def _header(variable: str, value: str, keep: Keep) -> str:
    scheme = _SCHEME.match(value)
    start = scheme[0] if scheme else ""
    return start + keep(variable, value[len(start) :])


def _is_secret(name: str, value: str) -> bool:
    if "${" in value or len(value) < _SHORTEST or value.startswith(("/", "~", "./")):
        return False
    return bool(_SECRET_NAME.search(name) or _KEY.fullmatch(value) or _PASSWORD_IN_URL.match(value))


def _variable(text: str) -> str:
    word = _NOT_A_WORD.sub("_", text).strip("_").upper()
    return f"_{word}" if word[:1].isdigit() else word
