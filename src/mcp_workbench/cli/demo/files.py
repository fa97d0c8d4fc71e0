"""Demo server `files`: look into one folder, read-only.

Run as `python -m mcp_workbench.cli.demo.files [FOLDER]` (default: the current folder). Paths are relative to that
folder; paths that lead out of it, through `..` or a symbolic link, are treated as if they did not exist.
"""

from __future__ import annotations

import os
import sys

from mcp_workbench.cli.demo.offerings import ToolError, object_schema
from mcp_workbench.cli.demo.stdio_server import Server, usage_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_workbench.cli.demo.offerings import Json, Outcome
    from mcp_workbench.cli.demo.stdio_server import Request

FILES_USAGE = "usage: python -m mcp_workbench.cli.demo.files [FOLDER]"
# Enough to be useful, few enough to stay readable.
MAX_DEMO_FILES = 500
MAX_DEMO_MATCHES = 100
MAX_DEMO_LINES = 2000
MAX_DEMO_FILE_BYTES = 4 * 1024 * 1024

PATH_SCHEMA = {"type": "string", "description": "Relative to the folder that this server shows"}
PATTERN = {"type": "string", "minLength": 1, "description": "File names, such as *.py"}
FILE = object_schema({"path": {"type": "string"}, "bytes": {"type": "integer"}})
LISTING = object_schema({"files": {"type": "array", "items": FILE}, "complete": {"type": "boolean"}})
MATCH = object_schema({"path": {"type": "string"}, "line": {"type": "integer"}, "text": {"type": "string"}})
MATCHES = object_schema({"matches": {"type": "array", "items": MATCH}, "complete": {"type": "boolean"}})


class Folder:
    def __init__(self, root: str) -> None:
        # Compared with real paths, so it has to be one.
        self.root = os.path.realpath(root)

    def inside(self, path: str) -> str:
        """The real path of `path`, which must exist inside the folder."""
        try:
            real = os.path.realpath(os.path.join(self.root, path))
            # Not `startswith`: `/data-private` begins with `/data`.
            if os.path.commonpath((self.root, real)) == self.root and os.path.exists(real):
                return real
        except ValueError:
            # A NUL in the path, or another drive.
            pass
        raise ToolError(f"there is no `{path}` in this folder")

    def files(self, start: str, pattern: str) -> Iterator[str]:
        """Paths relative to the root, in a stable order."""
        import fnmatch

        for parent, folders, names in os.walk(self.inside(start)):
            # In place: that is the order in which `os.walk` goes on.
            folders.sort()
            for name in sorted(names):
                place = os.path.join(parent, name)
                # A link may point anywhere, so only regular files are shown.
                if fnmatch.fnmatch(name, pattern) and os.path.isfile(place) and not os.path.islink(place):
                    yield os.path.relpath(place, self.root)

    def text(self, path: str) -> str:
        place = self.inside(path)
        if not os.path.isfile(place):
            raise ToolError(f"`{path}` is not a file")
        try:
            if os.path.getsize(place) > MAX_DEMO_FILE_BYTES:
                raise ToolError(f"`{path}` is larger than {MAX_DEMO_FILE_BYTES} bytes")
            with open(place, encoding="utf-8") as file:
                return file.read()
        except UnicodeDecodeError:
            raise ToolError(f"`{path}` is not text") from None
        except OSError as error:
            raise ToolError(f"cannot read `{path}`: {error.strerror}") from None


def build(folder: Folder) -> Server:
    server = Server("files", "Demo files", f"Reads text files below the folder `{os.path.basename(folder.root)}`.")

    @server.tool(
        "List files below a folder, with their sizes.", {"folder": PATH_SCHEMA, "pattern": PATTERN}, output=LISTING
    )
    def list_files(request: Request, folder: str = "", pattern: str = "*") -> Outcome:
        found: list[Json] = []
        for path in shown.files(folder, pattern):
            if len(found) == MAX_DEMO_FILES:
                break
            found.append({"path": path, "bytes": os.path.getsize(os.path.join(shown.root, path))})
        else:
            return _listing(found, complete=True)
        return _listing(found, complete=False)

    @server.tool(
        f"Read a text file, at most {MAX_DEMO_LINES} lines at a time.",
        {
            "path": {**PATH_SCHEMA, "minLength": 1},
            "first_line": {"type": "integer", "minimum": 1},
            "lines": {"type": "integer", "minimum": 1, "maximum": MAX_DEMO_LINES},
        },
        required=("path",),
    )
    def read_file(request: Request, path: str, first_line: int = 1, lines: int = MAX_DEMO_LINES) -> Outcome:
        every = shown.text(path).splitlines(keepends=True)
        end = first_line - 1 + lines
        more = f"\n[{len(every) - end} more lines; go on with first_line {end + 1}]" if len(every) > end else ""
        return "".join(every[first_line - 1 : end]) + more

    @server.tool(
        "Find a text, ignoring case, in the files below a folder.",
        {"text": {"type": "string", "minLength": 1}, "folder": PATH_SCHEMA, "pattern": PATTERN},
        required=("text",),
        output=MATCHES,
    )
    def search_files(request: Request, text: str, folder: str = "", pattern: str = "*") -> Outcome:
        wanted = text.casefold()
        found: list[Json] = []
        for path in shown.files(folder, pattern):
            try:
                lines = shown.text(path).splitlines()
            except ToolError:
                # Not text, too large, or deleted in the meantime.
                continue
            for number, line in enumerate(lines, 1):
                if wanted in line.casefold():
                    if len(found) == MAX_DEMO_MATCHES:
                        return _matches(found, complete=False)
                    found.append({"path": path, "line": number, "text": line.strip()})
        return _matches(found, complete=True)

    shown = folder
    return server


def _listing(found: list[Json], complete: bool) -> Outcome:
    lines = [f"{file['bytes']:>10} {file['path']}" for file in found] or ["No files."]
    return "\n".join(lines + ([] if complete else ["… and more"])), {"files": found, "complete": complete}


def _matches(found: list[Json], complete: bool) -> Outcome:
    lines = [f"{match['path']}:{match['line']}: {match['text']}" for match in found] or ["Nothing found."]
    return "\n".join(lines + ([] if complete else ["… and more"])), {"matches": found, "complete": complete}


def main() -> None:
    arguments = sys.argv[1:] or ["."]
    if len(arguments) != 1 or arguments[0].startswith("-"):
        usage_error(FILES_USAGE)
    if not os.path.isdir(arguments[0]):
        usage_error(f"`{arguments[0]}` is not a folder")
    build(Folder(arguments[0])).run()


if __name__ == "__main__":
    main()
