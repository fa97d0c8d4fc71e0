"""`mcp-workbench serve`: be the MCP server. Lean by intent: this is the start-up path."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from mcp_workbench import __version__
from mcp_workbench.cli.error_output import complain, remark, warn_if_others_can_read
from mcp_workbench.cli.flags import Command, Flag, Parsed, UsageError
from mcp_workbench.engine.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES, names_of_faces
from mcp_workbench.engine.process_context import ON_TERMINAL, WITHIN
from mcp_workbench.errors import ConfigError

if TYPE_CHECKING:
    from mcp_workbench.app.cluster_instance import ClusterInstance
    from mcp_workbench.app.gateway import Gateway, Options
    from mcp_workbench.app.http_token import HttpToken
    from mcp_workbench.engine.config.auth_settings import ProxyConfig
    from mcp_workbench.engine.config.choose import ChosenConfig, ConfigSource
    from mcp_workbench.engine.config.model import FaceName, WorkbenchConfig
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.transport.http.server.tls import TlsCertificate
    from mcp_workbench.sharing.front.handing_over import Handover

SERVE_FLAGS = (
    Flag("config", "FILE", "the configuration file"),
    Flag(
        "face",
        "FACE",
        f"what clients see: {names_of_faces()} (default: {DEFAULT_FACE_OF_PLAIN_FILES} for a plain file, else "
        f"{DEFAULT_FACE})",
    ),
    Flag("separator", "CHARS", "face flat: separates the parts of a name (default: as configured, or `:`)"),
    Flag("no-prefix", None, "face flat: leave names that are unique without a prefix"),
    Flag("list-timeout", "SECONDS", "face flat: how long the first list waits for new servers (default: 3)"),
    Flag(
        "http",
        "ADDRESS",
        "serve HTTP at host:port (default: 127.0.0.1:8420) or unix:PATH instead of stdio",
        optional_value=True,
    ),
    Flag("token", "TOKEN", "HTTP: the token that clients must send (default: WORKBENCH_TOKEN, or a generated one)"),
    Flag("token-file", "FILE", "HTTP: read the token from a file, which keeps it out of the process list"),
    Flag("no-token", None, "HTTP, on loopback: serve everyone on this machine without a token"),
    Flag("allow-host", "NAME", "HTTP: another host name under which clients reach the workbench", repeats=True),
    Flag("allow-origin", "ORIGIN", "HTTP: the origin of a web page that may use the workbench", repeats=True),
    Flag("allow-user", "USER", "HTTP on a Unix socket: another user of this machine who may connect", repeats=True),
    Flag("tls-cert", "FILE", "HTTP: serve https with this certificate (PEM), read again when it changes"),
    Flag("tls-key", "FILE", "HTTP: the key of the certificate (PEM, without a passphrase)"),
    Flag("tls-client-ca", "FILE", "HTTP: check client certificates against this one, for `trustedProxy`"),
    Flag(
        "drain-delay",
        "SECONDS",
        "HTTP: serve on this long after SIGTERM, with 503 at /readyz (default: 5 if polled)",
    ),
    Flag("drain-seconds", "SECONDS", "HTTP: how long running calls may then take to finish (default: 5)"),
    Flag("no-cache", None, "do not cache what servers offer; ask servers that cannot announce changes each time"),
    Flag("private", None, "start servers of its own, even if a shared workbench is running (`mcp-workbench up`)"),
    Flag("name", "NAME", "the server name reported to clients (default: mcp-workbench)"),
    Flag("version", "VALUE", "the version reported to clients; alone, print the version", optional_value=True),
    Flag("debug", None, "log everything, including requests and servers' stderr"),
    Flag("log-file", "FILE", "log to this file instead of stderr"),
    Flag("log-format", "FORMAT", "text or json (default: text)"),
)

HTTP_FLAGS = (
    *("token", "token-file", "no-token", "allow-host", "allow-origin"),
    *("allow-user", "tls-cert", "tls-key", "tls-client-ca", "drain-delay", "drain-seconds"),
)

SERVE = Command(
    "[serve] [OPTIONS] [CONFIG]",
    "run the MCP server, over stdio or HTTP (the default command)",
    """
Runs the MCP server. MCP clients start it over stdio; with --http it serves any number of them at one address. It is the
default command: its options can stand without it.
""",
    SERVE_FLAGS,
    takes=1,
)


def run(arguments: Sequence[str], handover: Handover | None = None) -> int:
    """Serve until the client disconnects. Returns the exit status. `handover` is a client that another process served
    before."""
    try:
        parsed = SERVE.parse(arguments)
    except UsageError as error:
        return complain(str(error), "mcp-workbench serve --help lists all options")
    if parsed.wants_help:
        print(SERVE.help("serve"))
        return 0
    if parsed.is_bare("version"):
        from mcp_workbench.cli.version import show

        return show()
    from mcp_workbench.engine.config.choose import choose

    try:
        # Before the file is read, so that errors in the command line are reported first.
        options = options_of(parsed)
    except UsageError as error:
        return complain(str(error), error.hint)
    try:
        choice = choose(parsed.value("config"), parsed.positional(0), os.environ)
    except ConfigError as error:
        return _complain_of_file(error)
    config = choice.config
    # A workbench among its own servers would start itself endlessly.
    if config.path in os.environ.get(WITHIN, "").split(os.pathsep):
        return complain(
            f"`{config.path}` is being served by the workbench that started this one",
            "one of its servers is the workbench itself: remove that server",
        )
    if config.shared and handover is None and not parsed.has("private") and not parsed.has("http"):
        _start_shared_workbench()
    return _serve(parsed, choice, options, handover)


def _complain_of_file(error: ConfigError) -> int:
    """Report it in a way that survives a client, which shows its user "failed to connect" and, if anything, the first
    line of our output."""
    from mcp_workbench.engine.config.problems import ConfigProblems

    if not isinstance(error, ConfigProblems):
        return complain(error.message, error.hint)
    return complain(error.text_by_importance, "once it is corrected, `mcp-workbench doctor` says what else is wrong")


def _start_shared_workbench() -> None:
    """Start the shared workbench, and restart as its front end, without the modules imported to read the file. Returns
    only if that fails, after reporting why."""
    from mcp_workbench.sharing.front.commanding import ask
    from mcp_workbench.sharing.front.joining import CannotJoin, NotRunning
    from mcp_workbench.sharing.front.line_protocol import PING

    try:
        # A client does not wait for one that takes long to end: it is served alone before it gives up.
        ask(PING, may_start=True, is_patient=False)
        # The client's pipes are inherited, and nothing has been read from them yet.
        os.execv(sys.executable, sys.orig_argv)
    except (CannotJoin, NotRunning) as reason:
        if not (isinstance(reason, CannotJoin) and reason.is_expected):
            remark("warning", f"{reason}; serving alone")
    except OSError as error:
        remark("warning", f"the front end cannot be started: {error.strerror}; serving alone")


def options_of(parsed: Parsed) -> Options:
    """Return the options for the gateway from the command line. Raises `UsageError`."""
    from mcp_workbench.app.gateway import Options
    from mcp_workbench.engine.router.lists import FIRST_LIST_PATIENCE

    log_format = parsed.value("log-format") or "text"
    if log_format not in ("text", "json"):
        raise UsageError(f"--log-format is text or json, not `{log_format}`")
    if parsed.has("token") and parsed.has("token-file"):
        raise UsageError("--token and --token-file were both given", hint="keep the file")
    return Options(
        name=parsed.value("name") or "mcp-workbench",
        version=parsed.value("version") or __version__,
        use_cache=not parsed.has("no-cache"),
        face=face_named(parsed.value("face")),
        separator=separator_named(parsed.value("separator")),
        prefix=not parsed.has("no-prefix"),
        list_timeout=FIRST_LIST_PATIENCE if (patience := _seconds(parsed, "list-timeout")) is None else patience,
        # Over stdio, stdout carries the protocol, so the audit log cannot go there.
        stdout_is_free=parsed.has("http"),
        # Over HTTP, other people may be calling, who have to be asked first.
        learns=not parsed.has("http"),
    )


def _log_choice(choice: ChosenConfig) -> None:
    """Log what the user should know about a usable configuration: a file that was not used, keys without effect,
    servers of single projects, and servers that lack a variable, which affects only those servers."""
    config = choice.config
    has_ignored = bool(config.ignored_keys or config.project_servers)
    if choice.warning is None and not config.unresolved and not has_ignored:
        return
    import logging

    from mcp_workbench.engine.config.problems import in_one_line

    log = logging.getLogger(__name__)
    if choice.warning is not None:
        log.warning(choice.warning)
    if has_ignored:
        from mcp_workbench.engine.config.foreign_keys import about_ignored_keys

        for text in about_ignored_keys(config):
            log.warning(text)
    for label, server in config.servers():
        if server.unresolved:
            log.warning("[%s] unavailable: %s", label, in_one_line(server.unresolved))


def _serve(parsed: Parsed, choice: ChosenConfig, options: Options, handover: Handover | None) -> int:
    from mcp_workbench.app.gateway import Gateway
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.observe.log import set_up
    from mcp_workbench.engine.run import run as run_loop

    config = choice.config
    try:
        # Before the log is set up, because the token must be redacted in it.
        token = _chosen_token(parsed, config) if parsed.has("http") else None
    except UsageError as error:
        return complain(str(error), error.hint)
    except ConfigError as error:
        return complain(error.message, error.hint)
    if token is not None and token.value is not None:
        config = _with_secret_token(config, token.value)
    redactor = Redactor(config.secrets)
    try:
        set_up(
            debug=parsed.has("debug"),
            file=parsed.value("log-file"),
            format="json" if parsed.value("log-format") == "json" else "text",
            redactor=redactor,
        )
    except OSError as error:
        return complain(f"log file `{parsed.value('log-file')}` cannot be opened: {error.strerror}")
    if (log_file := parsed.value("log-file")) is not None:
        warn_if_others_can_read(os.stat(log_file), f"log file `{log_file}`")
    _log_choice(choice)
    auth, proxy = config.auth, config.trusted_proxy
    cluster = None
    try:
        if token is not None:
            from msgspec.structs import replace

            options = replace(options, token_file=token.path)
            if auth is not None or proxy is not None:
                from mcp_workbench.app.http_callers import fetch_secrets

                auth, proxy = fetch_secrets(config, redactor, partial(remark, "warning"))
            if config.cluster is not None:
                cluster, options = _instance(config, redactor, options)
        gateway = Gateway(config, options, redactor, auth=auth)
    except ConfigError as error:
        return complain(error.message, error.hint)
    _warn_of_ignored_options(parsed, gateway.face.name)
    if token is not None:
        return _serve_http(parsed, gateway, token, proxy, cluster)
    from mcp_workbench.app.serving import serve_stdio

    # A person trying it out would mistake the silence for a hang.
    if os.isatty(0):
        remark("note", ON_TERMINAL)
    client = None
    if handover is not None and handover.is_begun:
        from mcp_workbench.app.serving import ResumedClient
        from mcp_workbench.engine.session.questions import number_questions_elsewhere

        # The client may still answer questions of the workbench that has died: our ids must not be among those.
        number_questions_elsewhere()
        client = ResumedClient(handover.resume, handover.unread, handover.unsent)
    try:
        run_loop(serve_stdio(gateway, client, _source(parsed)))
    except ConfigError as error:
        # Opening what the first client needs, such as the audit log, may fail.
        return complain(error.message, error.hint)
    return 0


def _instance(config: WorkbenchConfig, redactor: Redactor, options: Options) -> tuple[ClusterInstance, Options]:
    """Be one instance of several. Raises `ConfigError`."""
    from msgspec.structs import replace

    from mcp_workbench.app.cluster_instance import ClusterInstance
    from mcp_workbench.app.http_callers import fetch_password

    assert config.cluster is not None
    password = fetch_password(config, redactor, partial(remark, "warning"))
    instance = ClusterInstance(config.cluster, os.path.dirname(config.path), password)
    return instance, replace(options, state=instance.state, on_opened=(instance.on_opened,))


def _serve_http(
    parsed: Parsed,
    gateway: Gateway,
    token: HttpToken,
    proxy: ProxyConfig | None,
    cluster: ClusterInstance | None = None,
) -> int:
    from msgspec.structs import replace

    from mcp_workbench.app.http_callers import CallerOptions, HttpCallers
    from mcp_workbench.app.serving import Draining, serve_http
    from mcp_workbench.engine.run import run as run_loop
    from mcp_workbench.engine.transport.http.server.http_server import HttpOptions
    from mcp_workbench.engine.transport.http.server.limits import RETRY_ELSEWHERE_MILLISECONDS, Limits
    from mcp_workbench.engine.transport.http.server.listening import UNIX_PREFIX, parse_address
    from mcp_workbench.engine.transport.open_files import raise_limit

    try:
        _check_allowed(parsed)
        host, port = parse_address(parsed.value("http") or "")
        unix_path = host.removeprefix(UNIX_PREFIX) if host.startswith(UNIX_PREFIX) else None
        certificate = certificate_of(parsed)
        if parsed.has("allow-user") and unix_path is None:
            # TCP does not reveal which user is at the other end.
            raise UsageError("--allow-user requires --http unix:PATH")
        allowed = CallerOptions(
            token=token.value,
            serves_everyone=parsed.has("no-token"),
            is_unix=unix_path is not None,
            users=tuple(parsed.values("allow-user")),
            proxy=proxy,
        )
        if cluster is not None:
            cluster.join(gateway)
        callers = HttpCallers(gateway, allowed, cluster)
        draining = Draining(_seconds(parsed, "drain-delay"), _seconds(parsed, "drain-seconds"))
    except UsageError as error:
        return complain(str(error), error.hint)
    except ConfigError as error:
        return complain(error.message, error.hint)
    raise_limit()
    limits = Limits(
        message_bytes=gateway.config.max_message_bytes, body_bytes_in_all=gateway.config.max_pending_body_bytes
    )
    if cluster is not None:
        limits = replace(limits, retry_milliseconds=RETRY_ELSEWHERE_MILLISECONDS)
    try:
        _refuse_ourselves(gateway.config, host, port)
        options = HttpOptions(
            host=host,
            port=port,
            authenticator=callers.authenticator,
            allow_hosts=(*parsed.values("allow-host"), *callers.hosts),
            allow_origins=tuple(parsed.values("allow-origin")),
            limits=limits,
            unix_path=unix_path,
            is_open_to_others=parsed.has("allow-user"),
            tls=None if certificate is None else certificate.context,
            header_names=callers.header_names,
            watched=callers.watched(certificate),
        )
        run_loop(
            serve_http(
                gateway,
                options,
                lambda url: _report_address(url, token),
                _source(parsed),
                pages=callers.pages(),
                site=partial(
                    callers.page, partial(_connect_clients, gateway.config.path), is_tls=certificate is not None
                ),
                callers=callers.started,
                draining=draining,
                cluster=cluster,
            )
        )
    except ConfigError as error:
        return complain(error.message, error.hint)
    return 0


def _connect_clients(config: str) -> list[dict[str, str | None]]:
    from mcp_workbench.setup.connecting import ways_to_connect

    return ways_to_connect(config)


def _source(parsed: Parsed) -> ConfigSource:
    """Return how the configuration was chosen, to read it again later."""
    from mcp_workbench.engine.config.choose import ConfigSource

    return ConfigSource(parsed.value("config"), parsed.positional(0), os.environ)


def _report_address(url: str, token: HttpToken) -> None:
    remark("note", f"serving MCP at {url}")
    if token.remark is not None:
        remark(*token.remark)


def _warn_of_ignored_options(parsed: Parsed, face: str) -> None:
    """Warn about ignored options, which would otherwise seem not to work."""
    for name in dict.fromkeys(name for other in FACES.values() for name in other.flags):
        if parsed.has(name) and name not in FACES[face].flags:
            first = next(other.name for other in FACES.values() if name in other.flags)
            remark("warning", f"--{name} has no effect with the face {face}; it applies to --face {first}")
    for name in HTTP_FLAGS if not parsed.has("http") else ():
        if parsed.has(name):
            remark("warning", f"--{name} has no effect without --http")


def _chosen_token(parsed: Parsed, config: WorkbenchConfig) -> HttpToken:
    """Raises `UsageError` and `ConfigError`."""
    from mcp_workbench.app.http_token import HttpToken, TokenChoice, chosen_token
    from mcp_workbench.engine.transport.http.server.admission import is_loopback
    from mcp_workbench.engine.transport.http.server.listening import UNIX_PREFIX, parse_address

    host, _ = parse_address(parsed.value("http") or "")
    # If users authenticate in another way, no token is generated without being asked for.
    proved = config.auth is not None or config.trusted_proxy is not None or host.startswith(UNIX_PREFIX)
    if proved and parsed.has("no-token") and not parsed.has("token") and not parsed.has("token-file"):
        return HttpToken(None)
    choice = TokenChoice(parsed.value("token"), parsed.value("token-file"), parsed.has("no-token"))
    is_loopback_only = is_loopback(host) and not proved
    return chosen_token(choice, os.environ, is_loopback=is_loopback_only, on_file=warn_if_others_can_read)


def certificate_of(parsed: Parsed) -> TlsCertificate | None:
    """Return the certificate that the command line names. Raises `UsageError` and `ConfigError`."""
    certificate, key = parsed.value("tls-cert"), parsed.value("tls-key")
    if (certificate is None) != (key is None):
        raise UsageError("--tls-cert and --tls-key belong together", hint="give both, or neither")
    if certificate is None or key is None:
        if parsed.has("tls-client-ca"):
            raise UsageError("--tls-client-ca requires --tls-cert and --tls-key")
        return None
    from mcp_workbench.engine.transport.http.server.tls import TlsCertificate

    return TlsCertificate(certificate, key, parsed.value("tls-client-ca"))


def _with_secret_token(config: WorkbenchConfig, token: str) -> WorkbenchConfig:
    """Add the token to the configuration's secrets. The variable that it may come from is erased from the environment
    that other processes of this user can read."""
    from msgspec.structs import replace

    from mcp_workbench.engine.config.redact import TOKEN_VARIABLE, secrets_in
    from mcp_workbench.engine.transport.environment_block import erase

    if TOKEN_VARIABLE in os.environ:
        erase([TOKEN_VARIABLE])
    return replace(config, secrets=config.secrets.union(secrets_in(TOKEN_VARIABLE, token)))


def _check_allowed(parsed: Parsed) -> None:
    """Refuse values that could never match. Raises `UsageError`."""
    for name in parsed.values("allow-host"):
        # People paste the whole URL here.
        if "/" in name:
            raise UsageError(f"--allow-host `{name}` is not the name of a host", hint="for example tools.example.com")
    for origin in parsed.values("allow-origin"):
        if origin != "*" and not re.fullmatch(r"https?://[^/?#@]+/?", origin, re.IGNORECASE):
            raise UsageError(f"--allow-origin `{origin}` is not an origin", hint="for example https://app.example.com")


def _refuse_ourselves(config: WorkbenchConfig, host: str, port: int) -> None:
    """Refuse a workbench as its own server, which would show its tools again and again under longer names. Raises
    `ConfigError`."""
    from urllib.parse import urlsplit

    from mcp_workbench.engine.transport.http.server.admission import is_loopback, is_wildcard

    ours = {host, "localhost", "127.0.0.1", "::1"} if is_loopback(host) or is_wildcard(host) else {host}
    for label, server in config.servers():
        try:
            there = urlsplit(server.url or "")
            # With port 0 the system chooses, so no file can contain it.
            is_here = port != 0 and there.port == port and there.hostname in ours
        except ValueError:
            # Connecting will report what is wrong with it.
            continue
        if is_here:
            raise ConfigError(
                f"`{label}` is at {server.url}, the address this workbench listens on",
                hint="remove that server, or listen on another port",
            )


def face_named(value: str | None) -> FaceName | None:
    """Return the face chosen with `--face`. Raises `UsageError`."""
    if value is not None and value not in FACES:
        raise UsageError(f"--face is {names_of_faces()}, not `{value}`")
    return value


def separator_named(value: str | None) -> str | None:
    """Return the separator chosen with `--separator`. Raises `UsageError`."""
    if value is None:
        return None
    if not value:
        raise UsageError("Separator cannot be empty. Use --separator <chars> with at least one character, like `__`")
    from mcp_workbench.engine.config.reading import has_white_space

    if has_white_space(value):
        raise UsageError("Separator cannot contain whitespace. Use non-whitespace characters, like `:` or `__`")
    return value


def _seconds(parsed: Parsed, name: str) -> float | None:
    value = parsed.value(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise UsageError(f"--{name} is a number of seconds from 0 to 3600, not `{value}`")
    return seconds
