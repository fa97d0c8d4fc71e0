"""`mcp-workbench install --completion`: scripts for shell completion. They ask `completion words` for candidates, which
come from caches; nothing is started."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcp_workbench.cli.flags import HELP_FLAG, Flag, Parsed, UsageError
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.usage import ACTIONS_OF_COMMANDS, COMMAND_GROUPS, COMMANDS, resolved
from mcp_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.engine.catalog.catalog import Catalog

# `-o nospace`: words that can continue, such as `key=`, end without a space; others bring their own. Without
# candidates, files are offered.
BASH: Final = r"""# bash completion for mcp-workbench
_mcp_workbench() {
    local word
    COMPREPLY=()
    # Not `$(…)`: that would take names for patterns of files. Not `mapfile`: macOS has bash 3.2.
    while IFS= read -r word; do
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" completion words --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o nospace -o default -o bashdefault -F _mcp_workbench mcp-workbench
"""
# Descriptions after the tab are cut off, because `_describe` would need colons in names escaped. The last line supports
# both ways to load the script: as a function on `fpath`, and with `source`.
ZSH: Final = r"""#compdef mcp-workbench
_mcp_workbench() {
    local -a found going whole
    local line word
    found=("${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${found[@]}"; do
        word="${line%%$'\t'*}"
        [[ -z "$word" ]] && continue
        if [[ "$word" == *[=/] ]]; then going+=("$word"); else whole+=("$word"); fi
    done
    if (( ${#going} + ${#whole} == 0 )); then
        _files
        return
    fi
    (( ${#going} )) && compadd -S '' -- "${going[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
}
if [[ "$funcstack[1]" == _mcp-workbench ]]; then _mcp_workbench "$@"; else compdef _mcp_workbench mcp-workbench; fi
"""
# `-f`, and files added explicitly: fish would offer them along with the candidates.
FISH: Final = r"""# fish completion for mcp-workbench
function __mcp_workbench_words
    set -l before (commandline -opc)
    set -l found ($before[1] completion words -- $before[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -eq 0
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c mcp-workbench -f -a '(__mcp_workbench_words)'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
# No shell displays more than this sensibly.
MAX_COMPLETION_WORDS: Final = 2_000
_MAX_COMPLETION_LENGTH: Final = 80
# Where bash breaks words.
_BREAKS: Final = "=:"
# Characters without a special meaning in bash, zsh and fish.
_UNQUOTED: Final = re.compile(r"[\w@%+=:,./-]+")


# Candidates for the last word of a command line: commands, options, and what servers offered when last listed.
# Owns what each command accepts where. Starts nothing and asks nothing. Whatever cannot be found out yields no
# candidates, silently, so as not to interrupt typing. A candidate may be followed by a tab and a description.
# Names come from servers, and a shell runs what is on its line, so candidates with characters that any shell could
# interpret are left out, in one place for every shell. They can still be typed in quotes.
def completed_line(line: str) -> list[str]:
    """Return the replacements for bash's last word: without the part that bash keeps, and with a space after complete
    words."""
    words = _split(line)
    last = words[-1]
    kept = max((last.rfind(each) for each in _BREAKS), default=-1) + 1
    found = [word.partition("\t")[0] for word in completed(words[1:])]
    return [word[kept:] + ("" if word.endswith(("=", "/")) else " ") for word in found]


def _split(line: str) -> list[str]:
    # The word under the cursor may have an open quote, which `shlex` refuses.
    for closing in ("", '"', "'"):
        with contextlib.suppress(ValueError):
            words = shlex.split(line + closing)
            return words if closing or not line[-1:].isspace() else [*words, ""]
    return line.split(" ")


def completed(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of these words, which do not include the name of the program."""
    *before, last = words or [""]
    # Whatever goes wrong: a message in the middle of typing a command line helps no one.
    with contextlib.suppress(WorkbenchError, OSError, ValueError):
        fitting = (word for word in _fitting(before, last) if word.startswith(last) and _is_harmless(word, last))
        return [word for word, _ in zip(dict.fromkeys(fitting), range(MAX_COMPLETION_WORDS), strict=False)]
    return []


def _is_harmless(described: str, last: str) -> bool:
    """Whether a candidate is one plain word to every shell, and to us: no option unless one was begun."""
    word = described.partition("\t")[0]
    return _UNQUOTED.fullmatch(word) is not None and (last[:1] in ("-", "=") or word[0] not in "-=")


def _fitting(before: Sequence[str], last: str) -> Iterable[str]:
    if not before:
        listed = [name for group in COMMAND_GROUPS.values() for name in group]
        return [_described(name, COMMANDS[name].summary) for name in (*listed, "demo")]
    command, *rest = resolved(before)
    if "--" in rest:
        # Not a command of ours.
        return []
    if last.startswith("-"):
        actions = ACTIONS_OF_COMMANDS.get(command, {}).items()
        found = [_described(word, COMMANDS[name].summary) for word, name in actions if word.startswith("-")]
        return found + [_described(f"--{name}", flag.help) for name, flag in _flags(command).items()]
    if rest and rest[-1].startswith("--") and "=" not in rest[-1]:
        name = rest[-1][2:]
        if name in _KNOWN_VALUES:
            return _KNOWN_VALUES[name](rest)
        if takes_value(command, name):
            return []
    return _positionals(command, _without_flags(command, rest), rest, last)


def takes_value(command: str, flag: str) -> bool:
    """Whether an option is followed by a value."""
    found = _flags(command).get(flag)
    return found is not None and found.value is not None


def _flags(command: str) -> dict[str, Flag]:
    return {flag.name: flag for flag in (*COMMANDS[command].flags, HELP_FLAG)} if command in COMMANDS else {}


def _faces(rest: Sequence[str]) -> Iterable[str]:
    from mcp_workbench.engine.faces import FACES

    return [_described(face.name, face.shows) for face in FACES.values()]


def _without_flags(command: str, words: Sequence[str]) -> list[str]:
    """Return the positionals among these words."""
    found, waiting = [], list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            found.append(word)
        elif takes_value(command, word[2:]) and waiting:
            waiting.pop(0)
    return found


def _positionals(command: str, given: list[str], rest: Sequence[str], last: str) -> Iterable[str]:
    if command in _ONCE and not given:
        return _ONCE[command](rest)
    if command in COMMANDS and not given:
        actions = COMMANDS[command].actions
        if actions:
            return actions
    if command in ("install", "uninstall", "undo"):
        return [client for client in _clients(rest) if client.partition("\t")[0] not in given]
    if command == "call":
        return _tools(rest) if not given else _arguments(rest, given, last)
    if command == "prompt":
        return _prompts(rest) if not given else _prompt_arguments(rest, given)
    return []


def _catalog(rest: Sequence[str]) -> Catalog:
    from mcp_workbench.engine.catalog.catalog import Catalog
    from mcp_workbench.engine.catalog.manifests import ManifestStore, default_folder
    from mcp_workbench.engine.config.choose import choose

    named = next((rest[at + 1] for at, word in enumerate(rest[:-1]) if word == "--config"), None)
    catalog = Catalog(choose(named, None, os.environ).config, ManifestStore(default_folder))
    # From the cache: starting servers when Tab is pressed would take seconds.
    catalog.load(catalog.entries())
    return catalog


def _described(word: str, description: object) -> str:
    # Shells separate candidates by lines, and word from description by a tab.
    text = " ".join(str(description or "").split())
    if len(text) > _MAX_COMPLETION_LENGTH:
        text = text[: _MAX_COMPLETION_LENGTH - 1] + "…"
    return f"{word}\t{text}" if text.isprintable() and text else word


def _named(place: str, definitions: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    from msgspec.json import decode

    for name, definition in definitions:
        read = decode(definition)
        yield _described(f"{place}{name}", read.get("description") if isinstance(read, dict) else "")


def _toolboxes(rest: Sequence[str]) -> Iterable[str]:
    return [_described(name, each.description) for name, each in _catalog(rest).described.items()]


def _servers(rest: Sequence[str]) -> Iterable[str]:
    entries = list(_catalog(rest).entries())
    # The short name if it is unique: people type it too.
    names = [entry.name for entry in entries]
    return [entry.name if names.count(entry.name) == 1 else entry.label for entry in entries]


def _addresses(rest: Sequence[str]) -> Iterable[str]:
    entries = [entry for entry in _catalog(rest).entries() if entry.config.url is not None]
    return [entry.label for entry in entries]


def _tools(rest: Sequence[str]) -> Iterable[str]:
    for entry in _catalog(rest).entries():
        yield from _named(f"{entry.label}/", [(n, bytes(d)) for n, d in entry.tools.items()])


def _prompts(rest: Sequence[str]) -> Iterable[str]:
    for entry in _catalog(rest).entries():
        found = entry.definitions("prompts")
        yield from _named(f"{entry.label}/", [(name, bytes(each)) for name, each in found.items()])


def _resources(rest: Sequence[str]) -> Iterable[str]:
    for entry in _catalog(rest).entries():
        yield from _named("", [(uri, bytes(each)) for uri, each in entry.definitions("resources").items()])


def _arguments(rest: Sequence[str], given: list[str], last: str) -> Iterable[str]:
    """Return `key=` for arguments that have not been given yet; after it, the values of an enumeration."""
    definition = _definition(rest, given, "tools")
    schema = definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return []
    key, equals, _ = last.partition("=")
    about = properties.get(key)
    if equals and isinstance(about, dict):
        values = ["true", "false"] if about.get("type") == "boolean" else about.get("enum")
        return [f"{key}={value}" for value in values] if isinstance(values, list) else []
    taken = {word.partition("=")[0] for word in given[1:]}
    return [
        _described(f"{name}=", each.get("description") if isinstance(each, dict) else "")
        for name, each in properties.items()
        if name not in taken
    ]


def _prompt_arguments(rest: Sequence[str], given: list[str]) -> Iterable[str]:
    arguments = _definition(rest, given, "prompts").get("arguments")
    named = [each for each in arguments if isinstance(each, dict)] if isinstance(arguments, list) else []
    return [_described(f"{each.get('name')}=", each.get("description")) for each in named]


def _definition(rest: Sequence[str], given: list[str], kind: str) -> dict[str, Any]:
    """Return the definition of what was named by its path or in three words."""
    from msgspec.json import decode

    path = "/".join(word for word in given[:3] if "=" not in word)
    for entry in _catalog(rest).entries():
        for name, definition in entry.definitions(kind).items():
            if path == f"{entry.label}/{name}":
                read = decode(definition)
                return read if isinstance(read, dict) else {}
    return {}


def _clients(rest: Sequence[str]) -> list[str]:
    from mcp_workbench.setup.clients.table import clients

    return [_described(client.name, client.title) for client in clients().values()]


def _commands(rest: Sequence[str]) -> Iterable[str]:
    from mcp_workbench.cli.topics import topics

    return dict.fromkeys([*COMMANDS, *topics(), "topics"])


# The candidates for the first positional of commands with only one.
_ONCE: Final[dict[str, Callable[[Sequence[str]], Iterable[str]]]] = {
    "open": _toolboxes,
    "remove": _servers,
    "login": _addresses,
    "logout": _addresses,
    "resource": _resources,
    "help": _commands,
    "completion": lambda rest: ["bash", "zsh", "fish"],
}
_KNOWN_VALUES: Final[dict[str, Callable[[Sequence[str]], Iterable[str]]]] = {
    "face": _faces,
    "toolbox": _toolboxes,
    "from": _clients,
}


def run(parsed: Parsed) -> int:
    shell, *words = parsed.positionals
    if shell == "words":
        line = parsed.value("line")
        # bash splits words at `:` and `=` (`COMP_WORDBREAKS`), so it passes the whole line, which is split here as a
        # shell would.
        for word in completed(words or [""]) if line is None else completed_line(line):
            print(word)
        return 0
    if shell not in SCRIPTS or words:
        raise UsageError(f"SHELL is bash, zsh or fish, not `{' '.join(parsed.positionals)}`")
    stdout().text(SCRIPTS[shell])
    return 0
