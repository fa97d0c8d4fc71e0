"""A `server.json`, as in the MCP registry: the ways to run or reach a server, and the values that each asks for.

Owns the format in all its generations, and how a package becomes a command (`npx`, `uvx`, `docker`, `dnx`). Its content
comes from a stranger: nothing in it is ever treated as a reference of ours, and what could make the command run
something other than it seems to is refused (`package_rules`). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcp_workbench.errors import ConfigError
from mcp_workbench.setup.clients import package_rules
from mcp_workbench.setup.clients.foreign_text import Piece, is_variable_name, joined, literal, pieces_of

_SNAKE: Final = re.compile(r"_([a-z])")
_TEMPLATE_VARIABLE: Final = re.compile(r"\{([A-Za-z_][\w-]*)\}")
_STDIO: Final = "stdio"
_REGISTRY_TRANSPORTS: Final = {"streamable-http": "http", "streamable": "http", "http": "http", "sse": "sse"}
# Programs that can run a package, the usual one first. `runtimeHint` chooses among these and cannot name another
# program: that would be a stranger's command.
RUNNERS_OF_KINDS: Final = {
    "npm": ("npx", "bunx"),
    "pypi": ("uvx", "pipx"),
    "oci": ("docker", "podman"),
    "nuget": ("dnx",),
}
_OLDER_KINDS: Final = {"docker": "oci"}


class Input(Struct, frozen=True):
    """A value that the user has to provide, or may."""

    name: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()


class _Written(Struct, rename="camel"):
    """An argument, variable or header as written."""

    name: str = ""
    type: str = ""
    value_hint: str = ""
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: Any = None
    value: str | None = None
    choices: list[str] = []
    variables: dict[str, _Written] = {}

    @property
    def is_named(self) -> bool:
        return self.type == "named" or (not self.type and bool(self.name))


class _Transport(Struct, rename="camel"):
    type: str = _STDIO
    # Before the autumn of 2025.
    transport_type: str = ""
    url: str = ""
    headers: list[_Written] = []
    variables: dict[str, _Written] = {}

    @property
    def kind(self) -> str:
        return self.transport_type or self.type


class _Package(Struct, rename="camel"):
    registry_type: str = ""
    registry_base_url: str = ""
    identifier: str = ""
    # The names of both before the summer of 2025.
    registry_name: str = ""
    name: str = ""
    version: str = ""
    runtime_hint: str = ""
    runtime_arguments: list[_Written] = []
    package_arguments: list[_Written] = []
    environment_variables: list[_Written] = []
    transport: _Transport = msgspec.field(default_factory=_Transport)


class _ServerJson(Struct):
    name: str = ""
    description: str = ""
    packages: list[_Package] = []
    remotes: list[_Transport] = []


class Package(Struct, frozen=True):
    """A package of a registry; of an image, `name` holds the tag or digest. `integrity` identifies the content, where
    that is known."""

    kind: str
    name: str
    version: str = ""
    integrity: tuple[str, ...] = ()

    def server_json(self) -> bytes:
        package = {"registryType": self.kind, "identifier": self.name, "version": self.version}
        return msgspec.json.encode({"name": self.name, "packages": [{**package, "transport": {"type": "stdio"}}]})


class Way(Struct, frozen=True):
    """A way to get to the server: a package that a program runs, or an address. `entry` makes an entry of ours from
    values by name of input, each as it is to be written in the file."""

    label: str
    # What has to be on the `PATH`; empty for an address.
    program: str
    inputs: tuple[Input, ...]
    entry: Callable[[Mapping[str, str]], dict[str, Any]]
    package: Package | None = None
    # The same with another version of the package.
    at: Callable[[Package], Way] | None = None
    # Whether the description has words for the runner itself.
    has_options: bool = False


class Described(Struct, frozen=True):
    """The content of a `server.json`. `left_out` are ways that cannot be used here, with the reason."""

    name: str
    description: str
    ways: tuple[Way, ...]
    left_out: tuple[str, ...] = ()


def described(content: bytes, where: str) -> Described:
    """Read a `server.json`. Raises `ConfigError`, naming `where` it was found."""
    try:
        document = msgspec.json.decode(content)
        if isinstance(document, dict) and isinstance(document.get("server"), dict):
            # The format of the registry's responses.
            document = document["server"]
        server = msgspec.convert(_in_camel_case(document), _ServerJson)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(
            f"`{where}` is not a server.json of the MCP registry: {error}",
            hint="compare it with mcp-workbench help cli, section add",
        ) from None
    found = [_of_package(package) for package in server.packages] + [_of_address(each) for each in server.remotes]
    ways = tuple(each for each in found if isinstance(each, Way))
    left_out = tuple(each for each in found if isinstance(each, str))
    if not ways:
        why = "; ".join(left_out) or "it has neither packages nor remotes"
        raise ConfigError(f"`{where}` has no server that can be started here: {why}")
    return Described(server.name, server.description, ways, left_out)


def _of_package(package: _Package) -> Way | str:
    package.registry_type = package.registry_type or _OLDER_KINDS.get(package.registry_name, package.registry_name)
    package.identifier = package.identifier or package.name
    if not package.identifier:
        return "a package has no identifier"
    label = f"{package.registry_type} package {package.identifier} {package.version}".rstrip()
    if package.transport.kind != _STDIO:
        return f"the {label} speaks {package.transport.kind}, and only programs that speak stdio are started"
    kind = package.registry_type
    if kind not in RUNNERS_OF_KINDS:
        return f"the {label} is of a kind that cannot be run here"
    runners = RUNNERS_OF_KINDS[kind]
    if package.runtime_hint not in ("", *runners) and package.runtime_arguments:
        return f"the {label} has arguments for `{package.runtime_hint}`, which is not {' or '.join(runners)}"
    program = package.runtime_hint if package.runtime_hint in runners else runners[0]
    variables = package.environment_variables
    package.runtime_arguments = _paired(package.runtime_arguments)
    if fault := _fault(package, program):
        return f"the {label} {fault}"
    if kind == "oci" and package.version and ":" not in package.identifier.rpartition("/")[2]:
        # Only without a tag or a digest of its own.
        package.identifier = f"{package.identifier}:{package.version}"
    inputs = [*_inputs(package.runtime_arguments), *_inputs(package.package_arguments), *_inputs(variables)]

    def entry(values: Mapping[str, str]) -> dict[str, Any]:
        env = _pairs(variables, values)
        before, after = _options(program, package.runtime_arguments, values), _words(package.package_arguments, values)
        command, *arguments = _command(program, package, before, after, list(env))
        return {"command": command, "args": arguments} | ({"env": env} if env else {})

    def at(exact: Package) -> Way:
        way = _of_package(msgspec.structs.replace(package, identifier=exact.name, version=exact.version))
        assert isinstance(way, Way), "only the version differs"
        return way

    named = Package(kind, package.identifier, "" if kind == "oci" else package.version)
    return Way(label, program, _once(inputs), entry, named, at, bool(package.runtime_arguments))


def _paired(many: Sequence[_Written]) -> list[_Written]:
    """Return the arguments with an option and the word after it as one, where they are written as two."""
    found: list[_Written] = []
    for one in many:
        option = found[-1].value or "" if found and not found[-1].is_named else ""
        is_value = not one.is_named and one.value and not one.value.startswith("-")
        if is_value and option.startswith("-") and "=" not in option:
            found[-1] = msgspec.structs.replace(one, type="named", name=option)
        else:
            found.append(one)
    return found


def _fault(package: _Package, program: str) -> str | None:
    """Return why a package is not run, or None: whoever is asked sees a command, and must be able to rely on it."""
    kind = package.registry_type
    host = package_rules.unusual_registry(kind, package.registry_base_url)
    if host is not None and kind == "oci":
        # Before the autumn of 2025, the registry of an image stood beside its name.
        package.identifier = f"{host}/{package.identifier.removeprefix(f'{host}/')}"
    elif host is not None:
        return f"is in the registry `{host}`, which `{program}` does not ask"
    if fault := package_rules.fault_of_name(kind, package.identifier, package.version):
        return fault
    for one in package.environment_variables:
        if not is_variable_name(one.name):
            return f"sets a variable that cannot be one, `{one.name}`"
        if package_rules.loads_code(one.name, kind):
            return f"sets the variable `{one.name}`, which can load other code"
        is_set = one.value is not None or one.default is not None
        if is_set and package_rules.changes_trust(one.name, kind):
            return f"sets the variable `{one.name}`, which decides whose certificates `{program}` accepts"
    for one in package.runtime_arguments:
        word = one.name if one.is_named else one.value or one.value_hint
        value = (one.default if one.value is None else one.value) if one.is_named else ""
        if fault := package_rules.fault_of_option(program, word, value):
            return fault
    return None


def _command(program: str, package: _Package, before: list[str], after: list[str], env: list[str]) -> list[str]:
    name, version = literal(package.identifier), literal(package.version)
    match program:
        case "npx" | "bunx":
            # Without it `npx` asks whether to install, on the stdin that carries the protocol.
            yes = [] if program == "bunx" or {"-y", "--yes"} & set(before) else ["-y"]
            start, package_name = [program, *yes], f"{name}@{version}" if version else name
        case "uvx":
            start, package_name = [program], f"{name}@{version}" if version else name
        case "pipx":
            start, package_name = [program, "run"], f"{name}=={version}" if version else name
        case "docker" | "podman":
            # A container has no environment except what it is given by name.
            passed = [word for each in env for word in ("-e", each)]
            # `-i` keeps stdin open, `--rm` leaves no stopped containers behind.
            start, package_name = [program, "run", "-i", "--rm", *passed], name
        case "dnx":
            # `dnx` accepts options anywhere before `--`.
            own = ["--", *after] if after else []
            return [program, *before, f"{name}@{version}" if version else name, "--yes", *own]
        case _:
            raise AssertionError(program)
    if before and before[-1] in package_rules.NAMING_OPTIONS:
        # `--from PACKAGE PROGRAM`, with the option as the last word before the package.
        *before, option = before
        return [*start, *before, package_rules.option_with(program, option) + package_name, "--", *after]
    return [*start, *before, "--", package_name, *after]


def _of_address(remote: _Transport) -> Way | str:
    if remote.kind not in _REGISTRY_TRANSPORTS:
        return f"the address {remote.url} speaks {remote.kind}, which cannot be reached"
    inputs = [*_variables(remote.url, remote.variables, required=True), *_inputs(remote.headers)]

    def entry(values: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {"url": _filled_in(remote.url, remote.variables, values)}
        if _REGISTRY_TRANSPORTS[remote.kind] == "sse":
            found["type"] = "sse"
        headers = _pairs(remote.headers, values)
        return found | ({"headers": headers} if headers else {})

    return Way(remote.url, "", _once(inputs), entry)


def _key(one: _Written) -> str:
    """Return the name under which a value is given."""
    return (one.value_hint if one.type == "positional" else one.name.lstrip("-")) or "value"


def _inputs(many: Sequence[_Written]) -> list[Input]:
    found = []
    for one in many:
        if one.value is None:
            found.append(_input(_key(one), one, required=one.is_required))
        else:
            # It is used here, so its variables are required even if the value itself is optional.
            found += _variables(one.value, one.variables, required=True)
    return found


def _variables(template: str, variables: Mapping[str, _Written], *, required: bool) -> list[Input]:
    names = [name for name in _TEMPLATE_VARIABLE.findall(template) if name in variables]
    return [_input(name, variables[name], required=required) for name in names if variables[name].value is None]


def _input(name: str, one: _Written, *, required: bool) -> Input:
    default = None if one.default is None else _text(one.default)
    return Input(name, one.description, required, one.is_secret, default, tuple(one.choices))


def _once(inputs: Sequence[Input]) -> tuple[Input, ...]:
    return tuple({each.name: each for each in inputs}.values())


def _filled_in(template: str, variables: Mapping[str, _Written], values: Mapping[str, str]) -> str:
    """Replace names in braces; unknown ones stay."""
    pieces: list[Piece] = []
    end = 0
    for found in _TEMPLATE_VARIABLE.finditer(template):
        name = found[1]
        pieces.append(template[end : found.start()])
        if name in variables and (fixed := variables[name].value) is not None:
            pieces.append(fixed)
        else:
            pieces += pieces_of(values[name]) if name in variables and name in values else [found[0]]
        end = found.end()
    return joined([*pieces, template[end:]])


def _pairs(many: Sequence[_Written], values: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for one in many:
        if one.value is not None:
            found[one.name] = _filled_in(one.value, one.variables, values)
        elif _key(one) in values:
            found[one.name] = values[_key(one)]
    return found


def _options(program: str, many: Sequence[_Written], values: Mapping[str, str]) -> list[str]:
    """Return the words before the name of the package, each option in one word with its value."""
    found = []
    for one in many:
        value = _value(one, values)
        if value is None:
            continue
        if not one.is_named:
            found.append(value)
        elif value:
            found.append(joined([package_rules.option_with(program, one.name), *pieces_of(value)]))
        else:
            found.append(literal(one.name))
    return found


def _words(many: Sequence[_Written], values: Mapping[str, str]) -> list[str]:
    found = []
    for one in many:
        if (value := _value(one, values)) is not None:
            found += [literal(one.name)] if one.is_named else []
            found += [value] if value or not one.is_named else []
    return found


def _value(one: _Written, values: Mapping[str, str]) -> str | None:
    return values.get(_key(one)) if one.value is None else _filled_in(one.value, one.variables, values)


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _in_camel_case(value: object, *, names: bool = False) -> Any:
    """Convert names of the first generation, such as `registry_type`; names of variables are not changed."""
    if isinstance(value, list):
        return [_in_camel_case(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, each in value.items():
        own = key if names else _SNAKE.sub(lambda match: match[1].upper(), key)
        found[own] = _in_camel_case(each, names=key == "variables")
    return found
