"""What a stranger's description of a package may say: names by the grammar of their registry, variables and options
that load no code. And what people should be told of a command: other registries, and what a container gets of this
machine.

Everything here is about programs that run packages (`npx`, `uvx`, `docker` …). Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

# Identifiers by kind of registry. None begins with `-`, and none can be a path, an address or a repository, which all
# runners would take as well.
_NPM_PART: Final = r"[A-Za-z0-9~][A-Za-z0-9._~-]*"
_NPM_NAME: Final = re.compile(rf"(?:@{_NPM_PART}/)?{_NPM_PART}")
_PYPI: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_OCI_PART: Final = r"[a-z0-9][a-z0-9._-]*"
_OCI: Final = re.compile(
    rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]{{1,5}})?/)?{_OCI_PART}(?:/{_OCI_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_NUGET: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IS_IDENTIFIER: Final = {
    "npm": lambda text: _NPM_NAME.fullmatch(text),
    "pypi": lambda text: _PYPI.fullmatch(text),
    "oci": lambda text: _OCI.fullmatch(text),
    "nuget": lambda text: _NUGET.fullmatch(text),
}
# Those that run a package as a program of this machine; containers have limits of their own.
_PACKAGE_RUNNERS: Final = frozenset(("npx", "bunx", "uvx", "pipx", "dnx"))
MAX_IDENTIFIER_LENGTH: Final = 255
# A version or tag. Anything with `:` or `/` would be a place: `name@https://…`, `name@npm:other`.
_PACKAGE_VERSION: Final = re.compile(r"[~^=]?[A-Za-z0-9_][A-Za-z0-9._+!*-]{0,127}")
# The domains of the registries that runners ask unless they are told otherwise.
_USUAL_REGISTRIES: Final = {"npm": "npmjs.org", "pypi": "pypi.org", "oci": "docker.io", "nuget": "nuget.org"}
# Variables with which a program runs code of somebody's choice, or looks for its own parts elsewhere. In upper case,
# because some programs ignore case; with a `*` at the end, all that begin so.
_LOADING: Final = (
    "PATH PATHEXT COMSPEC SHELL HOME USERPROFILE LD_* DYLD_* GCONV_PATH GLIBC_TUNABLES OPENSSL_CONF OPENSSL_MODULES "
    "OPENSSL_ENGINES BASH_ENV ENV BASH_FUNC_* SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND IFS NODE_OPTIONS NODE_PATH "
    "NODE_REPL_EXTERNAL_MODULE ELECTRON_RUN_AS_NODE PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE "
    "PYTHONEXECUTABLE PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS PYTHONPYCACHEPREFIX PYTHONPLATLIBDIR PERL5LIB "
    "PERL5OPT PERL5DB PERLLIB RUBYLIB RUBYOPT JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH "
    "DOTNET_STARTUP_HOOKS DOTNET_ADDITIONAL_DEPS DOTNET_SHARED_STORE CORECLR_* COR_* GIT_SSH GIT_SSH_COMMAND "
    "GIT_EXEC_PATH GIT_CONFIG* GIT_ASKPASS SSH_ASKPASS GIT_EDITOR GIT_PAGER GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF "
    "EDITOR VISUAL PAGER BROWSER LESSOPEN LUA_PATH LUA_CPATH LUA_INIT PHPRC PHP_INI_SCAN_DIR GTK_MODULES GTK_PATH "
    "GIO_EXTRA_MODULES QT_PLUGIN_PATH"
).split()
# Settings of the programs that run a package of this kind: where it comes from, and what runs before it.
_LOADING_FOR: Final = {
    "npm": ("NPM_*", "BUN_*"),
    "pypi": ("UV_*", "PIP_*", "PIPX_*"),
    "oci": ("DOCKER_*", "CONTAINER*", "BUILDAH_*"),
    "nuget": ("NUGET_*", "DOTNET_*"),
}
# Variables that decide whose certificates a runner accepts. With a proxy beside them, the registry that it asks is
# somebody else's. A user may have reasons to set them; a description has none.
_TRUSTING: Final = frozenset(
    "NODE_TLS_REJECT_UNAUTHORIZED NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE "
    "CURL_CA_BUNDLE".split()
)
# The options that a description may set: those that take a value, and those that take none. npm takes every setting as
# an option, also abbreviated, and some of those run code (`--call`, `--node-options`, `--script-shell`); uv reads files
# that do (`--env-file`, `--config-file`, `--project`, `--with-editable`).
_NPM_OPTIONS: Final = (
    frozenset("-p --package --registry".split()),
    frozenset(
        "-y --yes -q --quiet -s --silent --no-install --offline --prefer-offline --prefer-online --ignore-scripts "
        "--bun".split()
    ),
)
_OPTIONS: Final = {
    "npx": _NPM_OPTIONS,
    "bunx": _NPM_OPTIONS,
    "uvx": (
        frozenset(
            "--from -w --with --index --default-index -i --index-url --extra-index-url -f --find-links "
            "--index-strategy --resolution --prerelease --exclude-newer --link-mode --color -p --python".split()
        ),
        frozenset(
            "--isolated --no-index -U --upgrade --no-sources --reinstall --compile-bytecode --no-build --no-binary -n "
            "--no-cache --refresh --managed-python --no-python-downloads -q --quiet -v --verbose --system-certs "
            "--native-tls --offline --no-progress --no-config --no-env-file".split()
        ),
    ),
    "pipx": (
        frozenset("--spec -i --index-url --pip-args --python".split()),
        frozenset("--no-cache -q --quiet -v --verbose --fetch-missing-python".split()),
    ),
}
# Anything else that names a Python may be a path to another program.
_PYTHON_VERSION: Final = re.compile(r"(?:python|cpython|pypy|graalpy)?[-@]?[0-9<>=!~.,*]+t?", re.IGNORECASE)
_CONTAINERS: Final = ("docker", "podman")
_SOURCES: Final = {
    "npx": ("--registry", "-p", "--package"),
    "bunx": ("--registry", "-p", "--package"),
    "uvx": ("--index", "--default-index", "--index-url", "--extra-index-url", "-i", "-f", "--find-links", "--from",
            "--with"),
    "pipx": ("--index-url", "-i", "--pip-args", "--spec"),
    "dnx": ("--source", "--add-source", "--configfile"),
}  # fmt: skip
# Of these, the ones that usually take the name of a package rather than a place. The program is then named separately.
NAMING_OPTIONS: Final = ("-p", "--package", "--from", "--spec")
_MOUNTS: Final = ("-v", "--volume", "--mount", "--volumes-from", "--device")
_POWERS: Final = ("--privileged", "--cap-add", "--security-opt", "--userns", "--network", "--net", "--pid", "--ipc")


def fault_of_name(kind: str, identifier: str, version: str) -> str | None:
    """Return what is wrong with the name of a package, or None."""
    if not _IS_IDENTIFIER[kind](identifier) or len(identifier) > MAX_IDENTIFIER_LENGTH:
        return f"has an identifier that no {kind} package can have"
    if version and not _PACKAGE_VERSION.fullmatch(version):
        return f"has a version that no {kind} package can have"
    return None


def unusual_registry(kind: str, address: str) -> str | None:
    """Return the host of a registry; None for the one that runners of this kind ask anyway."""
    host = urlsplit(address).hostname or address
    return None if not address or _is_usual(kind, host) else host


def _is_usual(kind: str, host: str) -> bool:
    return f".{host}".endswith(f".{_USUAL_REGISTRIES[kind]}")


def loads_code(variable: str, kind: str | None = None) -> bool:
    """Whether a program runs code that this variable names, if it is run as a package of that kind."""
    name = variable.upper()
    return any(
        name == each or (each.endswith("*") and name.startswith(each[:-1]))
        for each in (*_LOADING, *(_LOADING_FOR[kind] if kind else ()))
    )


def changes_trust(variable: str, kind: str) -> bool:
    """Whether a runner that is given this variable may take somebody else's registry for the usual one. Images are
    fetched by a service, which has variables of its own."""
    return variable.upper() in _TRUSTING and kind != "oci"


def fault_of_option(program: str, word: str, value: str | None) -> str | None:
    """Return why a description may not give this word to a runner, before the name of the package; None if it may.
    `value` is that of an option: "" if it has none, None if it is asked for."""
    option, equals, rest = word.partition("=")
    if not word.startswith("-") or word == "--":
        return f"has `{word}` where `{program}` expects the package"
    if program not in _OPTIONS:
        return None
    with_value, without_value = _OPTIONS[program]
    if option in with_value:
        said = rest if equals else value
        names_python = option == "--python" or (option == "-p" and program == "uvx")
        is_safe = not names_python or not said or _PYTHON_VERSION.fullmatch(said) is not None
    else:
        # A value for an option that takes none would be the package.
        is_safe = option in without_value and not equals and value == ""
    return None if is_safe else f"sets the option `{option}` of `{program}`, which can load other code"


def option_with(program: str, name: str) -> str:
    """Return the option as it stands before its value in the same word: in a word of its own, the value of an option
    that takes none would be the package."""
    if program in ("npx", "bunx") and name == "-p":
        name = "--package"
    return f"{name}=" if name.startswith("--") else name


def sandbox_proposal(entries: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Propose a sandbox for the servers, by `toolbox/server`, that run packages from a registry; None if there are
    none."""
    named = [
        name
        for name, entry in entries.items()
        if os.path.basename(str(entry.get("command", ""))) in _PACKAGE_RUNNERS and "sandbox" not in entry
    ]
    if not named:
        return None
    shown = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return (
        f"{shown}: a package from a registry can read and change all your files; with "
        '`"sandbox": "contained"` it has a home folder of its own, empty at first, and only the files that its `args` '
        f"and `env` name; to try it: mcp-workbench doctor --sandbox try {quote(named[0])}"
    )


def remarks_about(command: str, args: Sequence[str]) -> list[str]:
    """Return what people should know of a command that runs a package: where it comes from, if that is unusual, and
    what a container gets of this machine."""
    program = os.path.basename(command)
    end = args.index("--") if "--" in args else len(args)
    words, rest = args[:end], args[end + 1 :]
    found = []
    if program in _CONTAINERS:
        # `-v` alone may be an option of the program in the container.
        mounts = [value for option, value in _options(words, _MOUNTS) if option != "-v" or ":" in value]
        powers = [
            f"{option}={value}" if value else option
            for option, value in _options(words, _POWERS)
            if value not in ("none", "bridge", "default", "private", "no-new-privileges")
        ]
        found += [f"the container gets {each} of this machine" for each in mounts]
        found += [f"the container has more rights than usual: {each}" for each in powers]
        host, slash, _ = (rest or [""])[0].partition("/")
        if slash and ("." in host or ":" in host) and not _is_usual("oci", host):
            found.append(f"the image comes from the registry {host}")
    named = [value for option, value in _options(words, _SOURCES.get(program, ())) if option in NAMING_OPTIONS]
    if named and rest:
        found.append(f"the program is {rest[0]}, from the package {' or '.join(named)} or from your PATH")
    found += [
        f"packages come from {value}"
        for option, value in _options(words, _SOURCES.get(program, ()))
        if option not in (*NAMING_OPTIONS, "--with") or ":" in value or ("/" in value and not value.startswith("@"))
    ]
    return list(dict.fromkeys(found))


def _options(words: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield these options with their values, in any spelling."""
    for position, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in names and (equals or option.startswith("--privileged")):
            yield option, value
        elif option in names:
            yield option, words[position + 1] if position + 1 < len(words) else ""
        elif short := next((each for each in names if len(each) == 2 and word.startswith(each)), None):
            yield short, word[2:]
