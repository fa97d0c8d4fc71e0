"""The content of a client's file, as bytes: which servers are in it, and the same bytes with one added or removed.

Owns the formats. In JSON every byte outside the edit stays, in TOML and YAML all comments and the order (`tomlkit`,
`ruamel.yaml`, imported on use). What cannot be understood is never edited. Does not know what the members of a server
mean (`dialects`).
"""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import Any, Final

from mcp_workbench.engine.config.jsonc_edit import parsed, remove_member, set_member
from mcp_workbench.engine.config.problems import ConfigProblems, Problem
from mcp_workbench.setup.clients.table import ClientFile

Servers = dict[str, dict[str, Any]]
# Brackets in YAML. A client's file has three or four; `ruamel.yaml` takes half a minute for five thousand.
_MAX_NESTED_BRACKETS: Final = 200


def servers_in(content: bytes, file: ClientFile, path: str) -> Servers:
    """Return the servers as written, by name. Raises `ConfigProblems`, named after `path`."""
    root = root_of(content, file, path)
    found: Servers = {}
    for key in (file.key, file.newer_key) if file.newer_key else (file.key,):
        where = _at(root, key)
        if where is None and file.bare and all(isinstance(entry, dict) for entry in root.values()):
            where = root
        if isinstance(where, list):
            found |= {str(entry["name"]): entry for entry in where if isinstance(entry, dict) and "name" in entry}
        elif isinstance(where, dict):
            found |= {str(name): entry for name, entry in where.items() if isinstance(entry, dict)}
    if file.newer_key:
        # The object at the newer key is not itself a server.
        found = {name: entry for name, entry in found.items() if _is_server(entry)}
    return found


def servers_of_folders(content: bytes, file: ClientFile, path: str) -> dict[str, Servers]:
    """Return the servers for single folders, by folder, if `file` keeps such. Raises `ConfigProblems`."""
    if "{folder}" not in file.key:
        return {}
    at = file.key.index("{folder}")
    # In one pass: the file has a member for every folder that the client was ever used in.
    folders = _at(root_of(content, file, path), file.key[:at])
    found = {}
    for folder, holder in folders.items() if isinstance(folders, dict) else ():
        servers = _at(holder, file.key[at + 1 :])
        if isinstance(servers, dict):
            found[folder] = {str(name): entry for name, entry in servers.items() if isinstance(entry, dict)}
    return found


def root_of(content: bytes, file: ClientFile, path: str) -> dict[str, Any]:
    """Return the whole document. Raises `ConfigProblems`."""
    text = _text(content, path)
    if file.format in ("json", "jsonc"):
        root = parsed(text, path)
    elif file.format == "toml":
        root = _toml_values(text, path)
    else:
        root = _yaml(text, path) or {}
    if not isinstance(root, dict):
        raise _problem(path, "is not an object at the top level")
    where = _at(root, file.key)
    allowed = (dict, list, type(None)) if file.list else (dict, type(None))
    if not isinstance(where, allowed):
        raise _problem(path, f"has something other than servers under `{'.'.join(file.key)}`")
    return root


def holds_nothing(content: bytes, file: ClientFile, path: str) -> bool:
    """Whether the content has nothing that a new file would not have. Raises `ConfigProblems`."""
    now, new = (_pruned(root_of(each, file, path)) for each in (content, file.when_new.encode()))
    return bool(now == new)


def _pruned(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: kept for key, each in value.items() if (kept := _pruned(each)) not in ({}, [])}


def has_comments(content: bytes) -> bool:
    """Whether a JSON text contains what strict JSON does not allow."""
    import msgspec

    content = content.removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        return False
    try:
        msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return True
    return False


def with_server(content: bytes, file: ClientFile, name: str, entry: dict[str, Any], path: str) -> bytes:
    """Return the content with `entry` as the server `name`. Raises `ConfigProblems`."""
    root = root_of(content, file, path)
    text = _text(content, path)
    key = _key(root, file)
    expected = _changed(_with_list(root, file), key, name, entry)
    if file.format in ("json", "jsonc"):
        after = set_member(text, (*key, name), entry)
    elif file.format == "toml":
        after = _toml_with(text, file, name, entry, path)
        # Every edit is read back and compared with what it should mean: libraries that keep comments make mistakes.
        if not _says(after, file, path, [key], expected):
            # `tomlkit` gets confused by dotted keys. A separate table at the end is right in any document.
            after = _toml_appended(text, (*key, name), entry)
    else:
        after = _yaml_inserted(text, file, name, entry) if name not in servers_in(content, file, path) else text
        if not _says(after, file, path, [key], expected):
            after = _yaml_with(text, file, name, entry, path)
    if not _says(after, file, path, [key], expected):
        raise _uneditable(path)
    return after.encode()


def without_servers(content: bytes, file: ClientFile, names: list[str], path: str) -> bytes:
    """Return the content without these servers. Raises `ConfigProblems`."""
    expected = root = root_of(content, file, path)
    text = _text(content, path)
    keys = {file.key, file.newer_key or file.key, _key(root, file)}
    for name in names:
        for key in keys:
            expected = _changed(expected, key, name, None)
        if file.format in ("json", "jsonc"):
            for key in keys:
                text = remove_member(text, (*key, name))
        elif file.format == "toml":
            cut = _toml_cut(text, (*file.key, name))
            # `tomlkit` would remove the comments in front of the next table as well.
            text = cut if _says(cut, file, path, keys, expected) else _toml_with(text, file, name, None, path)
        else:
            cut = _yaml_cut(text, file, name)
            text = cut if _says(cut, file, path, keys, expected) else _yaml_with(text, file, name, None, path)
    if not _says(text, file, path, keys, expected):
        raise _uneditable(path)
    return text.encode()


def _with_list(root: dict[str, Any], file: ClientFile) -> dict[str, Any]:
    """Add the empty list, so that a place for a list of servers is recognised while it is empty."""
    return {**root, file.key[0]: []} if file.list and not isinstance(root.get(file.key[0]), list) else root


def _changed(root: dict[str, Any], key: tuple[str, ...], name: str, entry: dict[str, Any] | None) -> dict[str, Any]:
    """Return the values that a document must have after the edit."""
    if key:
        inner = root.get(key[0])
        if inner is None and entry is None:
            return root
        changed = _changed_list(inner, name, entry) if isinstance(inner, list) else None
        return {**root, key[0]: changed if changed is not None else _changed(inner or {}, key[1:], name, entry)}
    rest = {other: value for other, value in root.items() if entry is not None or other != name}
    return rest if entry is None else {**rest, name: entry}


def _changed_list(servers: list[Any], name: str, entry: dict[str, Any] | None) -> list[Any]:
    def is_it(server: object) -> bool:
        return isinstance(server, dict) and server.get("name") == name

    new = [] if entry is None else [{"name": name, **entry}]
    place = next((index for index, server in enumerate(servers) if is_it(server)), len(servers))
    return servers[:place] + new + servers[place + 1 :]


def _says(text: str, file: ClientFile, path: str, keys: Iterable[tuple[str, ...]], expected: dict[str, Any]) -> bool:
    """Whether the text means what it should. A place that became empty may be gone, and a new one created."""
    try:
        found = root_of(text.encode(), file, path)
    except ConfigProblems:
        return False
    for key in keys:
        found, expected = _without_empty(found, key), _without_empty(expected, key)
    return found == expected


def _without_empty(root: Any, key: tuple[str, ...]) -> Any:
    if not key or not isinstance(root, dict) or key[0] not in root:
        return root
    inner = _without_empty(root[key[0]], key[1:])
    rest = {name: value for name, value in root.items() if name != key[0]}
    return {**rest, key[0]: inner} if inner else rest


def _uneditable(path: str) -> ConfigProblems:
    found = "is written in a way that cannot be edited without changing something else; nothing was changed"
    return _problem(path, found, "edit it by hand; mcp-workbench install CLIENT --print shows what to enter")


def _key(root: dict[str, Any], file: ClientFile) -> tuple[str, ...]:
    """Return the key where servers of this file go."""
    if file.newer_key and _at(root, file.newer_key) is not None and not _is_server(_at(root, file.newer_key)):
        return file.newer_key
    if file.bare and _at(root, file.key) is None and root and all(_is_server(entry) for entry in root.values()):
        return ()
    return file.key


def _is_server(entry: object) -> bool:
    return isinstance(entry, dict) and bool({"type", "command", "url", "enabled", "disabled"} & entry.keys())


def _at(root: dict[str, Any], key: tuple[str, ...]) -> Any:
    where: Any = root
    for step in key:
        where = where.get(step) if isinstance(where, dict) else None
    return where


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _problem(path, "is not UTF-8 text") from None


def _problem(path: str, found: str, hint: str = "repair it, or move it aside and try again") -> ConfigProblems:
    return ConfigProblems(path, [Problem(steps=None, found=found, hint=hint)])


def _toml_values(text: str, path: str) -> dict[str, Any]:
    """Parse with a different parser than the one that edits, because this also verifies edits."""
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _problem(path, f"is not TOML: {error}") from None


def _toml(text: str, path: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text.removeprefix("\ufeff"))
    except TOMLKitError as error:
        raise _problem(path, f"is not TOML: {error}") from None


def _toml_with(text: str, file: ClientFile, name: str, entry: dict[str, Any] | None, path: str) -> str:
    import tomlkit

    has_crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    document = _toml(text, path)
    (key,) = file.key
    servers = document.get(key)
    if entry is None:
        if servers is not None and name in servers:
            del servers[name]
            if not servers:
                del document[key]
    else:
        if servers is None:
            # A super table has no header of its own: Codex writes just `[mcp_servers.name]`.
            document[key] = servers = tomlkit.table(is_super_table=True)
        # A table that is replaced keeps the blank line after it.
        servers[name] = entry
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    written = mark + tomlkit.dumps(document)
    return written.replace("\n", "\r\n") if has_crlf else written


def _toml_appended(text: str, key: tuple[str, ...], entry: dict[str, Any]) -> str:
    import tomlkit

    table: Any = entry
    for step in reversed(key):
        table = {step: table}
    newline = "\r\n" if "\r\n" in text else "\n"
    written = tomlkit.dumps(table).replace("\n", newline)
    return f"{text.rstrip()}{newline}{newline}{written}" if text.strip() else written


def _toml_cut(text: str, key: tuple[str, ...]) -> str:
    """Return the text without the lines of a table and those below it. Comments in front of the next one stay."""
    lines = text.splitlines(keepends=True)
    headers = [(at, steps) for at, line in enumerate(lines) if (steps := _toml_header(line))]
    ends = [*(at for at, _ in headers[1:]), len(lines)]
    for (start, steps), end in reversed(list(zip(headers, ends, strict=True))):
        if steps[: len(key)] == key:
            # The blank lines at the end may have gone with the table behind.
            end = min(end, len(lines))
            last = max((at for at in range(start, end) if not _is_remark(lines[at])), default=start)
            kept = next((at for at in range(last + 1, end) if lines[at].strip()), end)
            if kept == len(lines):
                # The blank lines in front of it stood between it and the rest.
                while start and not lines[start - 1].strip():
                    start -= 1
            del lines[start:kept]
    return "".join(lines)


def _toml_header(line: str) -> tuple[str, ...]:
    """Return the names in the header of a table; none if the line is no such header."""
    import tomllib

    if not line.lstrip("\ufeff \t").startswith("["):
        return ()
    try:
        table: Any = tomllib.loads(line.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        return ()
    steps = []
    while table:
        ((name, inner),) = table.items()
        steps.append(name)
        table = inner[0] if isinstance(inner, list) else inner
    return tuple(steps)


def _yaml(text: str, path: str) -> Any:
    opened = depth = 0
    # By hand, before the parser: also counting brackets within strings does no harm.
    for letter in text:
        opened += (letter in "[{") - (letter in "]}")
        depth = max(depth, opened)
    if depth > _MAX_NESTED_BRACKETS:
        raise _problem(path, f"is nested more than {_MAX_NESTED_BRACKETS} levels deep")
    try:
        return _round_trip(text).load(text)
    except Exception as error:
        # `ruamel.yaml` does not catch what its constructors raise: for an invalid date, or a mapping merged with
        # itself.
        lines = str(error).splitlines() or [type(error).__name__]
        raise _problem(path, f"is not YAML: {lines[0]}") from None


def _round_trip(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.util import load_yaml_guess_indent

    yaml: Any = YAML()
    yaml.preserve_quotes = True
    # Long lines belong to the user, and are not ours to break.
    yaml.width = 1 << 20
    try:
        _, mapping, offset = load_yaml_guess_indent(text)
    except Exception:
        # Loading it will report what is not YAML.
        mapping, offset = None, None
    if mapping and offset is not None and mapping >= offset + 2:
        yaml.indent(mapping=2, sequence=mapping, offset=offset)
    return yaml


def _yaml_inserted(text: str, file: ClientFile, name: str, entry: dict[str, Any]) -> str:
    """Return the text with a server after the others; the same text if they are not written in one block. A library
    that reads and writes the whole document would reformat the rest of it as well."""
    lines = text.splitlines(keepends=True)
    start, end = _block(lines, file.key[-1])
    first = next((line for line in lines[start:end] if not _is_remark(line)), "")
    if not first or (not file.list and not _margin(first)):
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    out = StringIO()
    if file.list:
        # Below a key, because lists are indented there.
        _round_trip(text).dump({"": [{"name": name, **entry}]}, out)
    else:
        _round_trip("").dump({"": {name: entry}}, out)
    written = out.getvalue().splitlines()[1:]
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += newline
    lines[end:end] = [f"{' ' * _margin(first)}{line[_margin(written[0]) :]}{newline}" for line in written]
    return "".join(lines)


def _yaml_cut(text: str, file: ClientFile, name: str) -> str:
    """Return the text without the lines of a server; the same text if they cannot be found."""
    lines = text.splitlines(keepends=True)
    start, end = _block(lines, file.key[-1])
    heads = [f"- name: {name}", f'- name: "{name}"', f"- name: '{name}'"] if file.list else [f"{name}:"]
    first = next((at for at in range(start, end) if lines[at].strip() in heads), None)
    if first is None:
        return text
    last = next((at for at in range(first + 1, end) if _margin(lines[at]) <= _margin(lines[first])), end)
    if file.list and (first, last) == (start, end):
        # A key without a list would be none.
        first -= 1
    return "".join(lines[:first] + lines[last:])


def _block(lines: list[str], key: str) -> tuple[int, int]:
    """Return where the lines of a top-level key begin and end. Comments and blank lines at the end belong to what
    follows."""
    start = next((at + 1 for at, line in enumerate(lines) if _bare(line) == f"{key}:"), len(lines))
    end = start
    for at in range(start, len(lines)):
        if not _is_remark(lines[at]):
            # A list may stand at the margin of its key.
            if not _margin(lines[at]) and not lines[at].startswith("- "):
                break
            end = at + 1
    return start, end


def _bare(line: str) -> str:
    return line.removeprefix("\ufeff").partition(" #")[0].rstrip()


def _is_remark(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _yaml_with(text: str, file: ClientFile, name: str, entry: dict[str, Any] | None, path: str) -> str:
    # `ruamel.yaml` writes a comment's line break twice.
    has_crlf = "\r\n" in text
    text = text.replace("\r\n", "\n")
    document = _yaml(text, path)
    if document is None:
        document = {}
    (key,) = file.key
    servers = document.get(key)
    if file.list:
        listed = servers if isinstance(servers, list) else []
        index = next((i for i, each in enumerate(listed) if isinstance(each, dict) and each.get("name") == name), None)
        if entry is None:
            if index is not None:
                del listed[index]
        elif index is None:
            listed.append({"name": name, **entry})
        else:
            listed[index] = {"name": name, **entry}
        if entry is not None or servers is not None:
            document[key] = listed
    elif entry is None:
        if isinstance(servers, dict):
            servers.pop(name, None)
    elif isinstance(servers, dict):
        servers[name] = entry
    else:
        document[key] = {name: entry}
    out = StringIO(newline="")
    _round_trip(text).dump(document, out)
    return out.getvalue().replace("\n", "\r\n") if has_crlf else out.getvalue()
