"""`mcp-workbench add`: add a server to the configuration: a program, a URL, a package, a `server.json` or a
name of the MCP registry.

Owns the sequence: parse the source, show the server, ask for required values, start it once and get consent, store
secrets, write the file. `own_configuration` edits the file; `setup.clients.server_json` interprets a `server.json`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Raw, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from mcp_workbench.cli.consent import agrees, ask
from mcp_workbench.cli.error_output import FAILED_STATUS, remark
from mcp_workbench.cli.flags import Parsed, UsageError, named_value
from mcp_workbench.cli.screen import Part, stdout
from mcp_workbench.engine.config.choose import CONFIG_FILE_NAME
from mcp_workbench.engine.config.environment import server_environment
from mcp_workbench.engine.config.load import load
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.downstream.server_status import SIGN_IN_NEEDED
from mcp_workbench.engine.economy.costs import definition_tokens
from mcp_workbench.engine.economy.prose import clip, first_sentence
from mcp_workbench.engine.printable import one_line, plural
from mcp_workbench.engine.transport.http.client.reach import Reach, reach_of_host, reach_of_ip
from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients.foreign_text import literal, variable_name
from mcp_workbench.setup.clients.literal_secrets import secrets_of
from mcp_workbench.setup.clients.package_rules import sandbox_proposal
from mcp_workbench.setup.clients.server_json import Described, Input, Package, Way, described
from mcp_workbench.setup.clients.toolbox_proposals import ImportedServer, proposed
from mcp_workbench.setup.file_replacement import read_file, replace_file
from mcp_workbench.setup.own_configuration import OwnConfiguration, lock_folder, own_configuration
from mcp_workbench.setup.package_sources import is_exact, package_named, pinned
from mcp_workbench.setup.secret_store import SecretStore
from mcp_workbench.setup.server_preview import preview
from mcp_workbench.team.lock.lock_file import LOCK_FILE_MODE, LockedServer, merged, read_lock, written
from mcp_workbench.team.lock.packages import package_of

if TYPE_CHECKING:
    from mcp_workbench.setup.mcp_registry import Candidate

_REGISTRY_NAME: Final = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
# Fits on one line of a table.
_SHORT_TEXT: Final = 100
# Some servers have dozens; secret ones are listed first.
_MAX_OPTIONAL_INPUTS: Final = 8
_CONTAINERS: Final = ("docker", "podman")
_PACKAGE_PREFIXES: Final = ("npm:", "pypi:", "oci:")
_ADD_FORMS: Final = "a program goes after --, for example: mcp-workbench add time -- uvx mcp-server-time"


class _Wanted(Struct, frozen=True):
    """A server to be added: its entry with the secrets in it, and as it is written once they are stored."""

    entry: dict[str, Any]
    stored: Callable[[SecretStore], dict[str, Any]]
    package: Package | None = None
    # Who wrote what is shown of it: users know their own programs and addresses.
    is_strangers: bool = False
    # Whether the user has agreed to a first start.
    is_agreed: bool = False

    @property
    def is_tried_first(self) -> bool:
        """Whether it is asked about once its tools are known. A program of the user's own is simply added."""
        return self.is_strangers or "url" in self.entry


def run(parsed: Parsed) -> int:
    if parsed.has("search"):
        return _search(parsed)
    name, source, words = _name_and_source(parsed)
    file = own_configuration(parsed.value("config"), makes=True, warn=partial(remark, "warning"))
    given = dict(named_value(each, "--env") for each in parsed.values("env"))
    headers = dict(named_value(each, "--header", "=:") for each in parsed.values("header"))
    # Before asking questions and storing secrets.
    file.check_writable()
    state = ""
    # If the server is not added after all, stored secrets are deleted again.
    with SecretStore(os.path.dirname(file.path), note=partial(remark, "note")) as store:
        wanted = _wanted(name, source, words, file, given, headers, parsed)
        toolbox, description = _toolbox(file, name, wanted.entry, parsed.value("toolbox"))
        _refuse_doubles(file, name, toolbox)
        # With the secrets still in it, because errors in the entry must be reported before anything is stored.
        file.check(file.with_server(toolbox, description, name, wanted.entry))
        if wanted.is_tried_first and not parsed.has("no-check"):
            state = _tried(file.path, toolbox, name, wanted, parsed)
        entry = store.taken_from(name, wanted.stored(store))
        store.write()
        file.write(file.with_server(toolbox, description, name, entry))
    _report_added(file, toolbox, name, entry, store)
    if wanted.package is not None and wanted.package.kind != "oci" and wanted.package.integrity:
        _record(file.path, toolbox, name, wanted.package)
    if not state and not parsed.has("no-check"):
        state = _started(file.path, toolbox, name)
    if state == SIGN_IN_NEEDED:
        remark("hint", f"mcp-workbench auth login {toolbox}/{name} signs you in")
    elif state == "failed":
        remark("hint", f"correct it in {file.path}, or run mcp-workbench remove {toolbox}/{name}")
        return FAILED_STATUS
    return 0


def _name_and_source(parsed: Parsed) -> tuple[str, str | None, list[str]]:
    """Return the name, the source if there is one, and the words after `--`. Raises `UsageError`."""
    end = len(parsed.positionals) if parsed.before_dashes is None else parsed.before_dashes
    before, words = parsed.positionals[:end], parsed.positionals[end:]
    if not before:
        raise UsageError("the server needs a name", hint=_ADD_FORMS)
    name, *sources = before
    if len(sources) > 1:
        hint = _ADD_FORMS
        if sources[0].startswith(_PACKAGE_PREFIXES):
            typed = f"mcp-workbench add {name} {sources[0]} -- {shlex.join(sources[1:] + words)}"
            hint = f"arguments for its program go after --: {typed}"
        raise UsageError(f"unexpected argument `{sources[1]}`", hint=hint)
    if not sources and not words:
        raise UsageError(f"`{name}` needs a program, an address, a server.json or a registry name", hint=_ADD_FORMS)
    return name, sources[0] if sources else None, words


def _wanted(
    name: str,
    source: str | None,
    words: list[str],
    file: OwnConfiguration,
    given: dict[str, str],
    headers: dict[str, str],
    parsed: Parsed,
) -> _Wanted:
    if source is None or source.startswith(("http://", "https://")):
        entry: dict[str, Any] = {"command": words[0], "args": words[1:]} if source is None else {"url": source}
        if entry.get("args") == []:
            del entry["args"]
        entry = _with_options(entry, given, headers, parsed.value("share"))
        return _Wanted(entry, lambda store: entry)
    server = _described(source, file.registry)
    _refuse_doubles(file, name, parsed.value("toolbox"))
    way, answers = _chosen(server), {**headers, **given}
    if way.program and not parsed.has("no-check"):
        _require_program(way)
    _refuse_wrong_values(way, answers)
    for why in server.left_out:
        remark("warning", why)
    # To pin an image, it is pulled: not before the user has agreed.
    is_image = way.package is not None and way.package.kind == "oci"
    if way.package is not None and not is_image:
        way = _pinned(way, way.package)

    def completed(entry: dict[str, Any]) -> dict[str, Any]:
        """Add what the `server.json` has no place for: values from the command line, and the sandbox."""
        own = {each.name for each in way.inputs}
        entry["args"] = [*entry.get("args", []), *words]
        entry = {key: value for key, value in entry.items() if value != []}
        more, more_headers = ({key: each[key] for key in each if key not in own} for each in (given, headers))
        entry = _with_options(entry, more, more_headers, parsed.value("share"))
        # A package from a registry is a stranger's program; a container has limits of its own.
        return {**entry, "sandbox": "contained"} if way.program and way.program not in _CONTAINERS else entry

    _list_optional([each for each in way.inputs if not each.is_required and each.name not in answers])
    # Show the server before asking for its values: users should not type a key for something they would not start.
    hidden = [each for each in secrets_of({"env": answers, "args": words}) if "${" not in each]
    _show_strangers(server.name or name, completed(_outline(way, answers)), hidden)
    if question := _first_question(way, answers, starts=not parsed.has("no-check")):
        _consent(question, parsed)
    if way.package is not None and is_image:
        way = _pinned(way, way.package)
    values = {**answers, **_asked(_missing(way, answers))}

    def filled_in(keep: Callable[[str, str], str]) -> dict[str, Any]:
        return completed(way.entry(_written(way, answers, values, keep)))

    return _Wanted(
        filled_in(lambda variable, value: literal(value)),
        lambda store: filled_in(partial(store.keep, name)),
        way.package,
        is_strangers=True,
        is_agreed=bool(question),
    )


def _first_question(way: Way, answers: Mapping[str, str], *, starts: bool) -> str:
    """What the user is asked before anything of a stranger's is fetched, started or connected to; empty if nothing."""
    if way.package is not None and way.package.kind == "oci":
        return "Pull the image, and start it once to see its tools?" if starts else "Pull the image, and add it?"
    if not starts:
        return "Add it?"
    entry = {} if way.program else _outline(way, answers)
    if entry.get("headers") or ("url" in entry and _is_inside(entry["url"])):
        return "Connect to it once, to see its tools?"
    # It gets something of the user's, or its runner is told what to do.
    is_asked = answers or _missing(way, answers) or way.has_options
    return "Start it once, to see its tools?" if is_asked else ""


def _is_inside(url: str) -> bool:
    """Whether an address leads into a private network or to this machine, where programs trust whoever reaches them."""
    try:
        host = urlsplit(url).hostname or ""
        reach = reach_of_host(host)
        if reach is not None:
            return reach is not Reach.PUBLIC
        return any(reach_of_ip(str(found[4][0])) is not Reach.PUBLIC for found in socket.getaddrinfo(host, None))
    except OSError:
        # A name that leads nowhere.
        return False
    except ValueError:
        return True


def _require_program(way: Way) -> None:
    """Raises `UsageError` if nothing here runs such a package."""
    if shutil.which(way.program) is None:
        from mcp_workbench.setup.doctor_checks import WHERE_FROM

        raise UsageError(f"nothing was added: the program `{way.program}` is missing", hint=WHERE_FROM[way.program])


def _pinned(way: Way, package: Package) -> Way:
    """Return the way with the version that its registry has now, and what that contains."""
    exact, why = pinned(package)
    if why is not None:
        what = "its content is not recorded" if is_exact(package) else "the version is not pinned"
        remark("warning", f"{what}: {why}")
        return way
    return way if way.at is None else replace(way.at(exact), package=exact)


def _record(path: str, toolbox: str, name: str, package: Package) -> None:
    """Record in the lock file what the package contains: no other content is started."""
    config = load(path, os.environ)
    server = config.toolboxes[toolbox].servers[name]
    target = config.lock_target
    seen = read_file(target.path)
    try:
        lock = read_lock(target)
    except ConfigError as error:
        remark("warning", f"the content of the package is not recorded: {error.message}")
        return
    locked = (None if lock is None else lock.server(toolbox, name)) or LockedServer()
    profile = "" if server.sandbox is None else server.sandbox.profile
    locked = replace(locked, package=package_of(server), integrity=list(package.integrity), sandbox=profile)
    replace_file(target.path, seen, written(merged(lock, target, {(toolbox, name): locked})), lock_folder())
    if seen is None:
        os.chmod(target.path, LOCK_FILE_MODE)
    remark(
        "note", f"the content of the package is recorded in `{target.path}`; if it changes, the server is not started"
    )


def _described(source: str, registry: str) -> Described:
    if (package := package_named(source)) is not None:
        return described(package.server_json(), source)
    if source.endswith(".json") or os.path.isfile(source):
        content = read_file(source)
        if content is None:
            raise ConfigError(f"the server.json `{source}` does not exist", hint="check the path")
        return described(content, source)
    if not _REGISTRY_NAME.fullmatch(source):
        # `localhost:8080/mcp`, as browsers take it.
        is_address = (":" in source and "/" in source) or source.startswith("localhost")
        raise UsageError(
            f"`{source}` is neither an address, a server.json nor the name of a server in a registry",
            hint=f"an address begins with http:// or https://, for example: http://{source}"
            if is_address
            else _ADD_FORMS,
        )
    from mcp_workbench.setup.mcp_registry import fetched

    return described(fetched(registry, source), source)


def _refuse_wrong_values(way: Way, answers: Mapping[str, str]) -> None:
    """Raises `UsageError` for invalid values, and for missing ones that cannot be asked for."""
    for each in way.inputs:
        value = answers.get(each.name)
        if value is not None and each.choices and value not in each.choices:
            listed = ", ".join(f"`{choice}`" for choice in each.choices)
            raise UsageError(f"`{each.name}` takes one of {listed}, found `{value}`")
    lacking = [each for each in _missing(way, answers) if each.default is None]
    if lacking and not sys.stdin.isatty():
        listed = "\n".join(f"  {each.name}{_detail(each)}" for each in lacking)
        first = lacking[0].name
        raise UsageError(
            f"the server requires values, and there is no terminal to ask for them:\n{listed}",
            hint=f"--env {first}=VALUE, or --env '{first}=${{VARIABLE}}' to refer to a variable",
        )


def _missing(way: Way, answers: Mapping[str, str]) -> list[Input]:
    return [each for each in way.inputs if each.is_required and each.name not in answers]


def _outline(way: Way, answers: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry with placeholders for what the user has yet to enter, or has given as a secret. A default is
    shown: it is the stranger's, and used unless another value is entered."""

    def shown(each: Input) -> str:
        given = answers.get(each.name)
        known = literal(each.default) if given is None and each.default is not None else given
        return f"<{each.name}>" if known is None or (given is not None and each.is_secret) else known

    return way.entry({each.name: shown(each) for each in way.inputs if each.is_required or each.name in answers})


def _written(
    way: Way, answers: Mapping[str, str], values: Mapping[str, str], keep: Callable[[str, str], str]
) -> dict[str, str]:
    """Return the values as they are written in the entry; secrets are kept elsewhere."""
    found = {}
    for each in way.inputs:
        if "${" in answers.get(each.name, ""):
            # In `--env KEY='${VAR}'` it refers to a variable; typed at a prompt, the same characters are the value
            # itself.
            found[each.name] = answers[each.name]
        elif (value := values.get(each.name)) is not None:
            found[each.name] = keep(variable_name(each.name) or "VALUE", value) if each.is_secret else literal(value)
    return found


def _show_strangers(title: str, entry: dict[str, Any], hidden: list[str]) -> None:
    """Show what a third party describes before it gets into the configuration, from where any client starts it."""
    lines = preview(entry, of_stranger=True, hidden=hidden)
    does = "start" if "command" in entry else "connect to"
    remark("note", "\n".join([f"{title} would {does}", *(f"  {one_line(line)}" for line in lines)]))


def _consent(question: str, parsed: Parsed) -> None:
    """Raises `UsageError` unless the user agrees."""
    if parsed.has("yes"):
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "nothing was added: there is no terminal to ask for confirmation",
            hint="review it, then run this again with --yes",
        )
    if not agrees(question):
        raise UsageError("nothing was added")


def _tried(target: str, toolbox: str, name: str, wanted: _Wanted, parsed: Parsed) -> str:
    """Start or connect it once, from a configuration of its own, and show what it offers and costs before the user is
    asked. Returns its state. Raises `UsageError` unless it works and the user agrees."""
    if not parsed.has("yes") and not sys.stdin.isatty():
        _consent("", parsed)
    with _trial(target, toolbox, name, wanted.entry) as (path, as_path):
        if "sandbox" in wanted.entry and not wanted.is_agreed and (granted := _granted(path, toolbox, name)):
            remark("note", f"its arguments and variables let it use {', '.join(f'`{each}`' for each in granted)}")
            _consent("Start it once, to see its tools?", parsed)
        state = _started(path, toolbox, name, as_path=as_path)
    if state == "failed":
        hint = "add it with --no-check"
        if "url" in wanted.entry:
            raise UsageError("nothing was added: it cannot be used", hint=hint)
        raise UsageError(
            "nothing was added: it does not start"
            + (" in the sandbox `contained`" if "sandbox" in wanted.entry else ""),
            hint=f"{hint}; mcp-workbench doctor --sandbox try {toolbox}/{name} finds out what it needs",
        )
    if state == SIGN_IN_NEEDED:
        remark("note", "it shows its tools only once you have signed in")
    if wanted.is_strangers or state != SIGN_IN_NEEDED:
        _consent("Add it?", parsed)
    return state


@contextlib.contextmanager
def _trial(target: str, toolbox: str, name: str, entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """A configuration with this server alone, and the path under which it is started. Its private home ends with it,
    whatever the user decides: what is in it was written before, and settings of package runners would stay in force."""
    with tempfile.TemporaryDirectory(prefix="mcp-workbench-", ignore_cleanup_errors=True) as folder:
        path = as_path = os.path.join(folder, CONFIG_FILE_NAME)
        with open(path, "wb") as file:
            file.write(encode({"toolboxes": {toolbox: {"description": name, "mcpServers": {name: entry}}}}))
        if "sandbox" not in entry:
            yield path, as_path
            return
        from mcp_workbench.engine.sandbox.server_sandbox import Owner, private_home

        # A path of its own gives it a home of its own; the link keeps the file that it leads to read-only.
        as_path = os.path.join(folder, "configuration")
        os.symlink(target, as_path)
        home = private_home(load(path, os.environ).toolboxes[toolbox].servers[name], Owner(as_path, toolbox))
        try:
            yield path, as_path
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _granted(path: str, toolbox: str, name: str) -> list[str]:
    """The paths that a server is granted because its arguments or variables name them."""
    from mcp_workbench.engine.sandbox.server_sandbox import Owner, sandbox_of

    server = load(path, os.environ).toolboxes[toolbox].servers[name]
    bare = replace(server, args=[], env={})
    found, usual = (
        sandbox_of(each, server_environment(os.environ, each.inherit_env, each.env), None, Owner(path, toolbox))
        for each in (server, bare)
    )
    return [each for each in (*found.write, *found.read) if each not in (*usual.write, *usual.read)]


def _search(parsed: Parsed) -> int:
    """List what the registry has for some words: who published it, and what it would run."""
    words = " ".join(parsed.positionals)
    from mcp_workbench.setup.mcp_registry import found

    file = own_configuration(parsed.value("config"), makes=True, warn=partial(remark, "warning"))
    candidates, has_more = found(file.registry, words)
    screen = stdout()
    if not candidates:
        remark("note", f"the registry `{file.registry}` has nothing for `{words}`")
        return FAILED_STATUS
    shown = [(each, _ways_of(each)) for each in candidates]
    # The official registry counts no downloads; others do.
    counts = any(each.downloads for each in candidates)
    header = ["name", "publisher", *(["downloads"] if counts else []), "what it would run"]
    rows: list[list[Part]] = []
    for each, (first, *others) in shown:
        rows.append([(each.name, "name"), each.publisher, *([each.downloads] if counts else []), first])
        empty: list[Part] = ["", "", *([""] if counts else [])]
        rows += [[*empty, (line, "dim")] for line in (*others, each.description) if line]
    if screen.fits(header, rows):
        screen.table(header, rows)
    else:
        # Below each other, so that no name and no command is broken: they are there to be copied.
        for each, ways in shown:
            downloads = f", {each.downloads} downloads" if each.downloads else ""
            screen.line((each.name, "name"), f"  by {each.publisher}{downloads}")
            for way in ways:
                screen.line(way, indent=2, wrap=False)
            if each.description:
                screen.line((each.description, "dim"), indent=2)
    if has_more:
        remark("note", f"these are the first {len(candidates)}; there are more: search with more of the name")
    remark("hint", "mcp-workbench add NAME REGISTRY-NAME adds one; what it runs is shown before")
    return 0


def _ways_of(candidate: Candidate) -> list[str]:
    """Return what each of its packages and addresses would run, in a line each."""
    try:
        ways = described(candidate.server, candidate.name).ways
    except ConfigError as error:
        return [error.message]
    return [preview(way.entry({}), of_stranger=True)[0] for way in ways]


def _chosen(server: Described) -> Way:
    """Choose a package whose program is installed, else a URL, else a package whose program is then reported as
    missing."""
    packages = [way for way in server.ways if way.program]
    runnable = [way for way in packages if shutil.which(way.program)]
    addresses = [way for way in server.ways if not way.program]
    # An installed program needs no account and no network; a URL needs nothing installed.
    way = (runnable or addresses or packages)[0]
    if others := [each.label for each in server.ways if each is not way]:
        remark("note", f"taking the {way.label}; it also offers {', '.join(others)}")
    return way


def _asked(missing: list[Input]) -> dict[str, str]:
    """Ask for the required values; without a terminal, use their defaults."""
    if not sys.stdin.isatty():
        return {each.name: each.default or "" for each in missing}
    return {each.name: _ask(each) for each in missing}


def _list_optional(inputs: list[Input]) -> None:
    """List the optional values: they are not asked for, but some servers do little without a key."""
    first = sorted(inputs, key=lambda each: not each.is_secret)[:_MAX_OPTIONAL_INPUTS]
    if first:
        more = f" and {len(inputs) - len(first)} more" if len(inputs) > len(first) else ""
        remark(
            "note", f"it also takes {', '.join(f'`{each.name}`' for each in first)}{more}; --env NAME=VALUE gives one"
        )


def _ask(wanted: Input) -> str:
    default = f" [{wanted.default}]" if wanted.default is not None else ""
    prompt = f"{wanted.name}{_detail(wanted)}{default}:"
    while True:
        answer = _secret(prompt) if wanted.is_secret else ask(prompt)
        if answer is None:
            raise UsageError("nothing was added: the input ended")
        answer = answer or wanted.default or ""
        if answer and (not wanted.choices or answer in wanted.choices):
            return answer


def _secret(prompt: str) -> str | None:
    from getpass import getpass

    try:
        # On /dev/tty without echo, so that it appears neither on the screen nor in the shell's history.
        return getpass(f"{one_line(prompt)} ")
    except EOFError:
        return None


def _detail(wanted: Input) -> str:
    parts = [wanted.description.strip(), "one of " + ", ".join(wanted.choices) if wanted.choices else ""]
    parts.append("secret, not shown" if wanted.is_secret else "")
    text = "; ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _with_options(
    entry: dict[str, Any], given: dict[str, str], headers: dict[str, str], share: str | None
) -> dict[str, Any]:
    if given and "url" in entry:
        raise UsageError("an address takes no variables, found --env", hint="use --header")
    if headers and "command" in entry:
        raise UsageError("a program takes no headers, found --header", hint="use --env")
    if given:
        entry["env"] = {**entry.get("env", {}), **given}
    if headers:
        entry["headers"] = {**entry.get("headers", {}), **headers}
    if share is not None:
        entry["share"] = share
    return entry


def _toolbox(file: OwnConfiguration, name: str, entry: dict[str, Any], wanted: str | None) -> tuple[str, str]:
    """Return the toolbox to use, and its description in case it has to be created. Raises `UsageError`."""
    ((own, box),) = proposed([ImportedServer(name, entry, [])]).items()
    if file.is_plain:
        (only,) = file.toolboxes
        if wanted not in (None, only):
            raise UsageError(f"`{file.path}` has no toolboxes", hint="leave --toolbox out")
        return only, ""
    if wanted is not None:
        return wanted, box["description"] if wanted == own else f"Tools of {name}"
    # The toolbox that `init` would propose, if it exists.
    if own in file.toolboxes or not file.toolboxes:
        return own, box["description"]
    if len(file.toolboxes) == 1:
        return next(iter(file.toolboxes)), ""
    listed = ", ".join(f"`{each}`" for each in file.toolboxes)
    raise UsageError(
        f"which toolbox should it go into: {listed}?",
        hint="--toolbox NAME chooses one; a new name creates one",
    )


def _refuse_doubles(file: OwnConfiguration, name: str, toolbox: str | None) -> None:
    # Servers may share a name across toolboxes; within one toolbox they would be the same key.
    if name in file.toolboxes.get(toolbox or "", {}):
        raise ConfigError(
            f"toolbox `{toolbox}` already has a server `{name}`",
            hint=f"choose another name, or run mcp-workbench remove {toolbox}/{name} first",
        )


def _report_added(file: OwnConfiguration, toolbox: str, name: str, entry: dict[str, Any], store: SecretStore) -> None:
    where = "" if file.is_plain else f"to toolbox {toolbox} "
    remark("note", f"{name}: added {where}in {file.path}")
    if not file.is_plain and toolbox not in file.toolboxes:
        remark("note", f"the toolbox {toolbox} is new; agents choose it by its description, which you can edit there")
    elif not file.is_plain:
        remark(
            "note", f"agents choose the toolbox {toolbox} by its description; edit it there if it does not cover {name}"
        )
    if (proposal := sandbox_proposal({f"{toolbox}/{name}": entry})) is not None:
        remark("hint", proposal)
    if store.kept:
        remark("note", f"stored in {store.whereabouts()}, and referred to: {', '.join(store.kept)}")


def _started(path: str, toolbox: str, name: str, *, as_path: str | None = None) -> str:
    """Start the server once, and show what it offers. Returns its state: `ready`, `needs sign-in` or `failed`.
    `as_path`: as a server of this configuration."""
    from mcp_workbench.cli.commands.check import connect, show
    from mcp_workbench.cli.engine import Engine

    config = replace(load(path, os.environ), path=as_path or path)
    redactor = Redactor(config.secrets)
    engine = Engine(config, use_cache=False, redactor=redactor)
    entry = engine.server(toolbox, name)
    # Cached, so that the first client sees its tools without starting it.
    (finding,), _ = connect(config, engine, remember=True, redactor=redactor, only=entry)
    screen = stdout()
    show(screen, [finding])
    if finding.state != "ready":
        return finding.state
    texts = {tool: decode(raw, type=dict[str, Raw]).get("description", Raw(b'""')) for tool, raw in entry.tools.items()}
    costs = {tool: definition_tokens(raw) for tool, raw in entry.tools.items()}
    rows: list[list[Part]] = [[(tool, "name"), str(costs[tool]), _short(text)] for tool, text in texts.items()]
    screen.blank()
    screen.table(["tool", "tokens", ""], rows)
    remark("note", f"{plural(len(rows), 'tool')}; listed flat, {sum(costs.values()):,} tokens of every conversation")
    return finding.state


def _short(description: Raw) -> str:
    text = decode(description)
    return clip(first_sentence(text), _SHORT_TEXT) if isinstance(text, str) else ""
