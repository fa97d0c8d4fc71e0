"""Build the site from the documents as they stand, into build/site: `python -m scripts.build_site`.

The documents are written for the repository, where a link may lead to any file. A copy of them is arranged for the
site: links between pages follow, a page that is called by its file name gets its title, and what the site does not have
(a test, a source file) is named without a link.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# Pages that do not lie in docs/, and where the site has them.
OUTSIDE: Final = {
    "README.md": "index.md",
    "docs/README.md": "documents.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CLAUDE.md": "internals/guide.md",
}
_FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def place(path: str) -> str | None:
    """Where the site has a file of the repository, if it has it."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def arrange(text: str, path: str, titles: Mapping[str, str] = MappingProxyType({})) -> str:
    """A document as a page of the site: every link leads to another page, or is plain text.

    `titles`: by the place of a page."""
    here = PurePosixPath(place(path) or path).parent

    def link(found: re.Match[str]) -> str:
        picture, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        there = place(os.path.normpath(os.path.join(os.path.dirname(path), target)))
        if there is None:
            return label
        if re.fullmatch(r"[\w/.-]+\.md", label):
            label = titles.get(there, label)
        return f"{picture}[{label}]({os.path.relpath(there, here)}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def write(folder: Path) -> None:
    """The pages and pictures, arranged in this folder."""
    documents = [ROOT / name for name in OUTSIDE] + sorted((ROOT / "docs").rglob("*.*"))
    pages = {each: each.read_text(encoding="utf-8") for each in documents if each.suffix == ".md"}
    titles = {
        place(page.relative_to(ROOT).as_posix()) or "": text.partition("# ")[2].partition("\n")[0]
        for page, text in pages.items()
    }
    for document in documents:
        path = document.relative_to(ROOT).as_posix()
        target = folder / (place(path) or path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if document.suffix == ".md":
            target.write_text(arrange(pages[document], path, titles), encoding="utf-8")
        else:
            shutil.copyfile(document, target)


def build(folder: Path) -> int:
    """The site in `folder/site`; anything wrong with a link or an anchor fails it."""
    for old in ("documents", "site"):
        shutil.rmtree(folder / old, ignore_errors=True)
    write(folder / "documents")
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(build(BUILD))
