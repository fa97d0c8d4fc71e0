"""The files that a program consists of: the prefix it is installed in, and that of the interpreter that runs it.

Owns where installers put things: nvm, pyenv, uv, venvs, npm. Reads the file system, and writes nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

# Programs whose first argument that is a file is the program that is meant.
_INTERPRETERS: Final = ("node", "python", "deno", "bun", "ruby", "perl", "php", "java", "bash", "sh", "tsx", "ts-node")
# What marks the folder that a program was developed in.
_PROJECT_FILES: Final = ("package.json", "pyproject.toml", "setup.py", "Cargo.toml", "go.mod", "Gemfile", "deno.json")
_MAX_SHEBANG_BYTES: Final = 512
_MAX_INTERPRETERS: Final = 4
# `bin/x` is below the prefix, `node_modules/.bin/x` and `lib/node_modules/npm/bin/x` further down.
_BIN_FOLDERS: Final = ("bin", "sbin", "Scripts", "libexec")


def program_files(program: str, args: Sequence[str], path: str | None, folder: str | None, home: str) -> list[str]:
    """Return the folders that the program at this path needs to run, with links in them, some of which may not exist.
    `path` is its `PATH`."""
    found: dict[str, None] = {}
    waiting = [program]
    script = script_of(program, args, folder)
    if script is not None:
        found |= dict.fromkeys((project_of(script, home), *_packages_around(script)))
    for _ in range(_MAX_INTERPRETERS):
        if not waiting:
            break
        current = waiting.pop()
        for each in dict.fromkeys((os.path.abspath(current), os.path.realpath(current))):
            for prefix in _prefixes(each, home):
                found[prefix] = None
        interpreter = _interpreter_of(current, path)
        if interpreter is not None:
            waiting.append(interpreter)
    return list(found)


def own_files() -> list[str]:
    """The folders of the running installation, for servers that are part of it."""
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return list(dict.fromkeys((ours, sys.prefix, sys.base_prefix, *filter(os.path.isabs, sys.path))))


def script_of(program: str, args: Sequence[str], folder: str | None) -> str | None:
    """The file that an interpreter is told to run."""
    if not os.path.basename(program).startswith(_INTERPRETERS):
        return None
    for each in args:
        path = os.path.join(folder or os.getcwd(), each)
        if not each.startswith("-") and os.path.isfile(path):
            return path
    return None


def project_of(file: str, home: str) -> str:
    """The folder of the project that a file belongs to, or else its own."""
    real = os.path.realpath(file)
    folder = os.path.dirname(real)
    current = folder
    while current not in ("/", home) and not home.startswith(current + "/"):
        if any(os.path.exists(os.path.join(current, name)) for name in _PROJECT_FILES):
            return current
        current = os.path.dirname(current)
    return folder


def _packages_around(script: str) -> list[str]:
    """Where Node looks for what a script imports: beside it, and beside each folder around it."""
    parents = Path(os.path.realpath(script)).parents
    return [str(each / "node_modules") for each in parents if (each / "node_modules").is_dir()]


def _prefixes(program: str, home: str) -> list[str]:
    folder = os.path.dirname(program)
    parent = os.path.dirname(folder)
    if os.path.basename(folder) == "shims":
        # pyenv, asdf, mise: a script that looks for the real one anywhere beside it.
        return [parent]
    if os.path.basename(folder) == ".bin":
        return [parent]
    if os.path.basename(folder) not in _BIN_FOLDERS or parent in ("/", "/usr", home, os.path.join(home, ".local")):
        # `~/.local/bin` and `~/bin` are not below a prefix that belongs to one program.
        return [folder]
    # The folder too, where the prefix is too wide to be granted.
    found = [folder, parent]
    if "/node_modules/" in parent + "/":
        # npm's own `npx-cli.js` reads other packages beside it.
        found.append(parent[: parent.index("/node_modules/") + len("/node_modules")])
    return found + _base_of_environment(parent)


def _base_of_environment(prefix: str) -> list[str]:
    """The Python that a virtual environment was made with."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="surrogateescape") as file:
            lines = dict(line.partition("=")[::2] for line in file)
    except OSError:
        return []
    base = next((value.strip() for name, value in lines.items() if name.strip() == "home"), "")
    if not os.path.isabs(base):
        return []
    real = os.path.realpath(os.path.join(base, "python3"))
    return list(dict.fromkeys((os.path.dirname(base), os.path.dirname(os.path.dirname(real)))))


def _interpreter_of(program: str, path: str | None) -> str | None:
    """The program that runs a script, by its first line."""
    try:
        with open(program, "rb") as file:
            first = file.read(_MAX_SHEBANG_BYTES)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = [os.fsdecode(word) for word in first[2:].split(b"\n")[0].split()]
    if not words:
        return None
    if os.path.basename(words[0]) != "env":
        return words[0]
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return shutil.which(names[0], path=path) if names else None
