"""What went wrong between a server and us, in words that say what to do. Pure.

Owns the texts. An address is named by its origin alone: paths and queries carry keys more often than they should.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mcp_workbench.errors import DownstreamError

if TYPE_CHECKING:
    from yarl import URL

# What of an error page is quoted.
MOST_QUOTED: Final = 200
_TITLE: Final = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f-\x9f]+")
# Of the passing kind: the next call may well work.
_TRY_AGAIN: Final = "try again; if it stays so, look at the server's own log"


class NotAccepted(DownstreamError):
    """The request certainly did not get as far as the server's own code, so it may be sent again."""


def origin_of(url: URL) -> str:
    """`https://host:port`, the port only where it is not the usual one."""
    return str(url.origin()) if url.is_absolute() else "the server"


def explain(error: BaseException, url: URL, proxy: str | None = None) -> DownstreamError:
    """An exception of the HTTP client, or of ours, as an error of the server."""
    import aiohttp

    if isinstance(error, DownstreamError):
        return error
    where = origin_of(url)
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return _explain_certificate(error, url)
        case aiohttp.ClientHttpProxyError():
            status = f"{error.status} {error.message}".strip()
            return NotAccepted(f"the proxy {proxy} refused to connect to {where}: {status}", hint=_PROXY_HINT)
        case aiohttp.ClientProxyConnectionError():
            return NotAccepted(f"the proxy {proxy} cannot be reached: {_reason(error)}", hint=_PROXY_HINT)
        case aiohttp.ClientConnectorDNSError():
            return NotAccepted(f"there is no host `{url.host}`", hint="check `url` and the network")
        case aiohttp.ClientConnectorSSLError():
            hint = "does the server speak https at this port? If not, write http:// in `url`"
            return NotAccepted(f"no encrypted connection to {where}: {_reason(error)}", hint=hint)
        case aiohttp.ClientConnectorError():
            return _explain_connecting(error, where)
        case aiohttp.ServerTimeoutError():
            return NotAccepted(f"no connection to {where} in time", hint="check `url`, the network and the server")
        case aiohttp.InvalidURL():
            return DownstreamError(f"{where} has sent us to an address that is none", hint="check `url`")
        case aiohttp.ClientPayloadError():
            return DownstreamError(f"the answer of {where} broke off before its end", hint=_TRY_AGAIN)
        case aiohttp.ClientResponseError():
            return DownstreamError(f"{where} answers, but not in HTTP: {quoted(error.message)}", hint="check `url`")
        case aiohttp.ClientConnectionError() | ConnectionError():
            text = f"{where} closed the connection without an answer; whether it acted on the request is not known"
            return DownstreamError(text, hint="the call was not repeated; call again if that is safe")
        case asyncio.TimeoutError():
            return DownstreamError(f"{where} did not answer in time", hint=_TRY_AGAIN)
        case OSError() if error.errno in (errno.EMFILE, errno.ENFILE):
            return NotAccepted("no more files can be opened", hint="raise the limit on open files (ulimit -n)")
        case ValueError():
            return DownstreamError(f"the request cannot be written: {error}", hint="check `url` and `headers`")
    return DownstreamError(f"{where} cannot be used: {type(error).__name__}: {error}")


_PROXY_HINT: Final = "check HTTP_PROXY, HTTPS_PROXY and NO_PROXY in the environment"


def explain_status(status: int, headers: Mapping[str, str], text: str, url: URL, *, has_token: bool) -> DownstreamError:
    """A response that says that the request was not served."""
    where = origin_of(url)
    said = _said(headers, text)
    match status:
        case 401:
            message = f"{where} wants you to sign in (401){_challenge(headers)}"
            if has_token:
                return NotAccepted(message, hint="check the token in `headers` of this server; it may have expired")
            return NotAccepted(
                message, hint='put a token in `headers` of this server: {"Authorization": "Bearer ${TOKEN}"}'
            )
        case 403:
            return NotAccepted(f"{where} refuses us (403){said}", hint="check what this account or token may do")
        case 404 | 410:
            return DownstreamError(f"{where} has no MCP server at this address ({status}){said}", hint="check `url`")
        case 405:
            return DownstreamError(
                f"{where} does not take POST at this address (405){said}",
                hint='check `url`; for a server with the old HTTP+SSE transport set `transport` to "sse"',
            )
        case 407:
            return NotAccepted("the proxy wants a password (407)", hint=_PROXY_HINT)
        case 413:
            return DownstreamError(f"{where} does not take requests of this size (413){said}", hint="send less")
        case 429:
            return DownstreamError(f"{where} has had too many requests (429){said}", hint=_when(headers))
        case 502 | 503 | 504:
            hint = _when(headers) if "retry-after" in _lower(headers) else _TRY_AGAIN
            return DownstreamError(f"{where} is not available ({status}){said}", hint=hint)
        case _ if status >= 500:
            return DownstreamError(f"{where} failed ({status}){said}", hint=_TRY_AGAIN)
    return DownstreamError(f"{where} answered with status {status}{said}", hint="check `url` and `headers`")


def explain_redirect(status: int, here: URL, there: URL) -> DownstreamError:
    """A redirect that we do not follow."""
    if here.origin() != there.origin():
        return NotAccepted(
            f"{origin_of(here)} sends us to another place, {origin_of(there)}; your headers are not shown there",
            hint=f"if that is the right server, set `url` to {there.with_query(None).with_fragment(None)}",
        )
    return DownstreamError(
        f"{origin_of(here)} answers with a redirect that loses the request ({status})",
        hint=f"set `url` to {there.with_query(None).with_fragment(None)}",
    )


def too_large(limit: int) -> DownstreamError:
    """An answer beyond the limit; it is not read to its end."""
    return DownstreamError(
        f"the server's answer is larger than {limit} bytes",
        hint="raise `maxMessageBytes` in the configuration, or ask for less",
    )


def quoted(text: str) -> str:
    """A foreign text on one line, not too long, and without anything that moves a cursor."""
    text = _UNPRINTABLE.sub(" ", text).strip()
    return text if len(text) <= MOST_QUOTED else text[:MOST_QUOTED] + "…"


def _explain_connecting(error: BaseException, where: str) -> DownstreamError:
    number = getattr(getattr(error, "os_error", None), "errno", None)
    if number == errno.ECONNREFUSED:
        return NotAccepted(f"nobody listens at {where}", hint="start the server, or check `url`")
    if number in (errno.EMFILE, errno.ENFILE):
        return NotAccepted("no more files can be opened", hint="raise the limit on open files (ulimit -n)")
    return NotAccepted(f"{where} cannot be reached: {_reason(error)}", hint="check `url` and the network")


def _explain_certificate(error: BaseException, url: URL) -> DownstreamError:
    reason = getattr(getattr(error, "certificate_error", None), "verify_message", "") or str(error)
    return NotAccepted(
        f"the certificate of `{url.host}` is not valid: {quoted(reason)}",
        hint="do not send secrets there; for a certificate authority of your own set SSL_CERT_FILE to its certificate",
    )


def _reason(error: BaseException) -> str:
    cause = getattr(error, "os_error", None) or error
    return quoted(getattr(cause, "strerror", None) or getattr(cause, "reason", None) or str(cause))


def _said(headers: Mapping[str, str], text: str) -> str:
    if "html" in _lower(headers).get("content-type", "") or text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        return f", with a web page: {quoted(title[1])}" if title and title[1].strip() else ", with a web page"
    text = quoted(text)
    return f": {text}" if text else ""


def _challenge(headers: Mapping[str, str]) -> str:
    description = re.search(r'error_description="([^"]*)"', _lower(headers).get("www-authenticate", ""))
    return f": {quoted(description[1])}" if description else ""


def _when(headers: Mapping[str, str]) -> str:
    after = quoted(_lower(headers).get("retry-after", ""))
    if after.isdecimal():
        return f"try again in {after} s"
    return f"try again after {after}" if after else "try again later, and less often"


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
