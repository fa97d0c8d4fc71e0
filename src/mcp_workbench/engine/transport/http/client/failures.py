"""Explanations of failures between a server and us, with what to do. Pure.

Owns the texts. An address is shown as its origin alone: paths and queries often carry keys.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Final

from mcp_workbench.engine.transport.http.client.address import Address
from mcp_workbench.engine.transport.http.client.dialing import DialFailed
from mcp_workbench.engine.transport.http.client.response import BrokeOff, NoAnswer, NotHttp, Unwritable
from mcp_workbench.errors import NO_FILES, SHORTAGE_HINTS, DownstreamError

# How much of an error page is quoted.
MAX_QUOTED_ERROR_LENGTH: Final = 200
_HTML_TITLE: Final = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f-\x9f]+")
# For temporary failures: the next call may well work.
_TRY_AGAIN: Final = "try again; if it persists, check the server's own log"

_NOT_REPEATED: Final = "the call was not repeated; call again if that is safe"


def explain(error: BaseException, address: Address, proxy: str | None = None) -> DownstreamError:
    """Turn an exception that kept a request from being answered into an error of the server."""
    if isinstance(error, DownstreamError):
        return error
    where = address.origin
    match error:
        case DialFailed():
            return _explain_dialing(error, address, proxy)
        case BrokeOff():
            text = f"the response from {where} ended early; it may or may not have acted on the request"
            return DownstreamError(text, hint=_NOT_REPEATED)
        case NotHttp():
            return DownstreamError(f"{where} does not speak HTTP: {quoted(str(error))}", hint="check `url`")
        case Unwritable():
            return DownstreamError(str(error), hint="check `headers`")
        case NoAnswer() | ConnectionError():
            text = f"{where} closed the connection without a response; it may or may not have acted on the request"
            return DownstreamError(text, hint=_NOT_REPEATED)
        case TimeoutError():
            return DownstreamError(f"{where} did not answer in time", hint=_TRY_AGAIN)
    return DownstreamError(f"{where} cannot be used: {type(error).__name__}: {error}")


def _explain_dialing(error: DialFailed, address: Address, proxy: str | None) -> DownstreamError:
    where, cause = address.origin, error.cause
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        return DownstreamError("no more files can be opened", hint=SHORTAGE_HINTS[NO_FILES])
    match error.stage:
        case "name":
            return DownstreamError(f"cannot resolve the host `{address.host}`", hint="check `url` and the network")
        case "time":
            return DownstreamError(f"timed out connecting to {where}", hint="check `url`, the network and the server")
        case "proxy" if error.status:
            text = f"the proxy {proxy} refused to connect to {where}, with status {error.status}"
            return DownstreamError(text, hint=_PROXY_HINT)
        case "proxy":
            return DownstreamError(f"the proxy {proxy} cannot be reached: {_reason(cause)}", hint=_PROXY_HINT)
        case "tls":
            return _explain_encryption(cause, address)
    if isinstance(cause, ConnectionRefusedError):
        return DownstreamError(f"nothing is listening at {where}", hint="start the server, or check `url`")
    return DownstreamError(f"{where} cannot be reached: {_reason(cause)}", hint="check `url` and the network")


def _explain_encryption(cause: Exception | None, address: Address) -> DownstreamError:
    reason = getattr(cause, "verify_message", None)
    if reason:
        return DownstreamError(
            f"the certificate of `{address.host}` is not valid: {quoted(reason)}",
            hint="do not send secrets there; for a certificate authority of your own set SSL_CERT_FILE",
        )
    hint = "does the server speak https at this port? If not, write http:// in `url`"
    return DownstreamError(f"cannot establish an encrypted connection to {address.origin}: {_reason(cause)}", hint=hint)


_PROXY_HINT: Final = "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment"


def explain_status(
    status: int, headers: Mapping[str, str], text: str, address: Address, *, has_token: bool
) -> DownstreamError:
    """Explain a response whose status means that the request was not served."""
    where = address.origin
    said = _said(headers, text)
    match status:
        case 401:
            message = f"{where} requires you to sign in (401){_challenge(headers)}"
            if has_token:
                hint = "check the token in `headers` of this server, or sign in again with `mcp-workbench auth login`"
                return DownstreamError(message, hint=hint)
            return DownstreamError(
                message, hint='put a token in `headers` of this server: {"Authorization": "Bearer ${TOKEN}"}'
            )
        case 403:
            return DownstreamError(f"{where} denied access (403){said}", hint="check what this account or token may do")
        case 404 | 410:
            return DownstreamError(f"{where} has no MCP server at this address ({status}){said}", hint="check `url`")
        case 405:
            return DownstreamError(
                f"{where} does not accept POST at this address (405){said}",
                hint='check `url`; for a server with the old HTTP+SSE transport set `transport` to "sse"',
            )
        case 407:
            return DownstreamError("the proxy requires a password (407)", hint=_PROXY_HINT)
        case 413:
            return DownstreamError(f"{where} rejected a request of this size (413){said}", hint="send less")
        case 429:
            return DownstreamError(f"{where} received too many requests (429){said}", hint=_when(headers))
        case 502 | 503 | 504:
            hint = _when(headers) if "retry-after" in headers else _TRY_AGAIN
            return DownstreamError(f"{where} is not available ({status}){said}", hint=hint)
        case _ if status >= 500:
            return DownstreamError(f"{where} failed ({status}){said}", hint=_TRY_AGAIN)
    return DownstreamError(f"{where} answered with status {status}{said}", hint="check `url` and `headers`")


def explain_redirect(status: int, here: Address, there: Address) -> DownstreamError:
    if here.origin != there.origin:
        return DownstreamError(
            f"{here.origin} redirects to another origin, {there.origin}; your headers are not sent there",
            hint=f"if that is the right server, set `url` to {there.shown}",
        )
    return DownstreamError(
        f"{here.origin} answered with a redirect that drops the request ({status})", hint=f"set `url` to {there.shown}"
    )


def too_large(limit: int) -> DownstreamError:
    """An answer beyond the limit; the rest is not read."""
    return DownstreamError(
        f"the server's answer is larger than {limit} bytes",
        hint="raise `maxMessageBytes` in the configuration, or ask for less",
    )


def quoted(text: str) -> str:
    """Foreign text on one line, bounded, and without control characters."""
    text = _UNPRINTABLE.sub(" ", text).strip()
    return text if len(text) <= MAX_QUOTED_ERROR_LENGTH else text[:MAX_QUOTED_ERROR_LENGTH] + "…"


def _reason(cause: Exception | None) -> str:
    text = getattr(cause, "reason", None) or getattr(cause, "strerror", None) or str(cause or "")
    return quoted(str(text)) or type(cause).__name__


def _said(headers: Mapping[str, str], text: str) -> str:
    if "html" in headers.get("content-type", "") or text.lstrip()[:1] == "<":
        title = _HTML_TITLE.search(text)
        return f", with a web page: {quoted(title[1])}" if title and title[1].strip() else ", with a web page"
    found = re.search(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,500})"', text) if text.lstrip()[:1] == "{" else None
    text = quoted(found[1] if found else text)
    return f": {text}" if text else ""


def _challenge(headers: Mapping[str, str]) -> str:
    description = re.search(r'error_description="([^"]*)"', headers.get("www-authenticate", ""))
    return f": {quoted(description[1])}" if description else ""


def _when(headers: Mapping[str, str]) -> str:
    after = quoted(headers.get("retry-after", ""))
    if after.isdecimal():
        return f"try again in {after} s"
    return f"try again after {after}" if after else "try again later, and less often"
