"""`mcp-workbench help TOPIC`: the documents in the terminal. The wheel carries them; a checkout has them in `docs`.

On a terminal they are laid out and paged, in a pipe they are the Markdown as it was written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mcp_workbench.cli.error_output import complain
from mcp_workbench.cli.flags import columns_text
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.usage import COMMANDS
from mcp_workbench.engine.nearest import nearest

_PACKAGE_FOLDER: Final = Path(__file__).resolve().parents[1]
# Where the documents for users lie: in the wheel, or in the checkout that the package is run from.
_FOLDERS: Final = (_PACKAGE_FOLDER / "documents", _PACKAGE_FOLDER.parents[1] / "docs")
_DOC_GROUPS: Final = ("start", "guides", "reference")
_LIST_OF_TOPICS: Final = "topics"
_PICTURE: Final = re.compile(r"!\[[^\]]*\]\([^)]*\)\n*")
_MARKDOWN_LINK: Final = re.compile(r"\[([^\[\]]{1,200})\]\((?![a-z]{1,9}:)([^()#\s]{0,200})(?:#[^()\s]{0,200})?\)")
_HTML_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)


def topics() -> dict[str, Path]:
    """Return the documents by the name that people give."""
    folder = next((each for each in _FOLDERS if each.is_dir()), _FOLDERS[0])
    found = [(kind, path) for kind in _DOC_GROUPS for path in sorted((folder / kind).glob("*.md"))]
    return {path.stem: path for _, path in found}


def named(name: str) -> str:
    """The topic that is meant: `guides/sandbox` is `sandbox`."""
    kind, _, stem = name.rpartition("/")
    return stem if kind in _DOC_GROUPS else name


def show(name: str, usage: str = "") -> int:
    """Print a document, or the list of all. `usage`: that of the command of this name, which comes first. Returns the
    exit status."""
    found, name = topics(), named(name)
    screen = stdout()
    if name == _LIST_OF_TOPICS:
        rows = [(topic, _title(path)) for topic, path in found.items()]
        screen.line(columns_text(rows), is_whole=True)
        return 0
    if name not in found:
        near = nearest(name, [*COMMANDS, *found, _LIST_OF_TOPICS], limit=1)
        meant = f"; did you mean `{near[0]}`?" if near else ""
        hint = "mcp-workbench help lists the commands, mcp-workbench help topics the documents"
        return complain(f"unknown command or topic `{name}`{meant}", hint)
    text = found[name].read_text(encoding="utf-8")
    if not screen.is_terminal:
        screen.text(f"{usage}\n\n{text}" if usage else text)
        return 0
    from rich.markdown import Markdown

    with screen.console.pager(styles=True):
        if usage:
            screen.console.print(usage, end="\n\n", markup=False, highlight=False)
        screen.console.print(Markdown(for_terminal(text, found), hyperlinks=False))
    return 0


def for_terminal(text: str, known: dict[str, Path]) -> str:
    """Return the Markdown without what a terminal cannot show: pictures, comments, links to files."""

    def reference(found: re.Match[str]) -> str:
        label, stem = found[1], Path(found[2]).stem
        if stem not in known:
            return label
        return f"`help {stem}`" if label == f"{stem}.md" else f"{label} (`help {stem}`)"

    return _MARKDOWN_LINK.sub(reference, _PICTURE.sub("", _HTML_COMMENT.sub("", text)))


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline().removeprefix("# ").strip()
