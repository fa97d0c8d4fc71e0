"""What the claims of a token must contain to prove its subject. Pure.

RFC 9068, section 4, and RFC 7519: the issuer, always the audience, the times, the kind of token; then the subject, its
groups and scopes. The signature, or the answer to introspection, has been checked before.
"""

from __future__ import annotations

import math
from typing import Final

from mcp_workbench.engine.config.auth_settings import IssuerConfig
from mcp_workbench.team.identity.credentials import INSUFFICIENT, Claims, TokenRejection, TokenVerdict, Verified
from mcp_workbench.team.identity.identities import Identity

# A subject is an id or an address; OpenID Connect allows 255 characters.
MAX_SUBJECT_LENGTH: Final = 255
# Entra ID puts 200 into a token, and beyond that refers to a list elsewhere.
MAX_GROUPS: Final = 500
MAX_GROUP_LENGTH: Final = 256
NO_ACCESS_TOKEN: Final = TokenRejection("this token is not an access token")
# Claims of ID tokens and logout tokens (OpenID Connect Core, section 3.3.2.11; Back-Channel Logout, section 2.4).
_OTHER_KINDS_CLAIMS: Final = ("at_hash", "c_hash", "events")
# Keycloak states the kind of a token in the claim `typ`, Cognito in `token_use`.
_KIND_CLAIMS: Final = ("typ", "token_use")
_OTHER_KINDS: Final = frozenset(("id", "logout", "refresh", "offline"))
_ACCESS_KINDS: Final = frozenset(("bearer", "dpop", "at+jwt", "access"))
# What a client may do is said of access tokens alone (RFC 9068, section 2.2.3; `scp` of Entra ID and Okta).
_ACCESS_CLAIMS: Final = ("scope", "scp")


def judge(
    claims: Claims, settings: IssuerConfig, audience: tuple[str, ...], now: float, *, is_typed: bool = False
) -> TokenVerdict:
    """The identity in these claims, if they are valid now. `is_typed`: the header says that it is an access token."""
    if claims.get("iss") != settings.issuer:
        return TokenRejection("this token is from another issuer")
    # One audience or several (RFC 7519, section 4.1.3). Without this check, a token for another resource would be
    # accepted here.
    if not set(_words(claims.get("aud"), split=False)) & set(audience):
        return TokenRejection("this token is for another audience")
    if _is_of_another_kind(claims, is_typed=is_typed):
        return NO_ACCESS_TOKEN
    # RFC 7800. Whoever steals such a token cannot prove that they have the key, and nobody can to us.
    if claims.get("cnf") is not None:
        return TokenRejection("this token is bound to a key of its client, and the workbench does not check its proof")
    expires = _moment(claims.get("exp"))
    if expires is None:
        return TokenRejection("this token has no expiry time")
    if now >= expires + settings.clock_skew:
        return TokenRejection("this token has expired")
    for name in ("nbf", "iat"):
        begins = _moment(claims.get(name))
        if (begins is not None and now + settings.clock_skew < begins) or (name in claims and begins is None):
            return TokenRejection("this token is not valid yet")
    subject = find(claims, settings.principal)
    if not isinstance(subject, str) or not _is_name(subject, MAX_SUBJECT_LENGTH):
        return TokenRejection(f"this token does not name its subject in `{settings.principal}`")
    groups = _words(find(claims, settings.groups), split=False)
    if len(groups) > MAX_GROUPS or not all(_is_name(group, MAX_GROUP_LENGTH) for group in groups):
        return TokenRejection(f"this token has more than {MAX_GROUPS} groups, or one whose name is not valid")
    # Entra ID and Okta call it `scp`.
    given = {*_words(claims.get("scope"), split=True), *_words(claims.get("scp"), split=True)}
    if not given.issuperset(settings.scopes):
        return TokenRejection("this token lacks a scope", INSUFFICIENT, " ".join(settings.scopes))
    identity = Identity(principal=f"{settings.issuer}#{subject}", groups=frozenset(groups))
    return Verified(identity, expires + settings.clock_skew, settings.issuer)


def _is_of_another_kind(claims: Claims, *, is_typed: bool) -> bool:
    kinds = {str(claims.get(name)).lower() for name in _KIND_CLAIMS}
    if kinds & _OTHER_KINDS or any(name in claims for name in _OTHER_KINDS_CLAIMS):
        return True
    # The client's, for its ID token (OpenID Connect Core, section 2). Some providers, like Keycloak before version 25,
    # repeat it in access tokens.
    is_marked = is_typed or kinds & _ACCESS_KINDS or any(name in claims for name in _ACCESS_CLAIMS)
    return "nonce" in claims and not is_marked


def find(claims: Claims, name: str) -> object:
    """A claim; if there is none of that name, the nested claim at its dotted path."""
    # Some providers name claims by URLs, which contain dots; others, like Keycloak, nest them.
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _words(value: object, *, split: bool) -> list[str]:
    if isinstance(value, str):
        return value.split() if split else [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _moment(value: object) -> float | None:
    # In Python a boolean is an integer.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _is_name(text: str, longest: int) -> bool:
    """Whether a name is safe in a log line and in a header."""
    return 0 < len(text) <= longest and text.isprintable() and text == text.strip()
