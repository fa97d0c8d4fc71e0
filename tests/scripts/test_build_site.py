"""The site: made of the documents as they stand, with every page in its navigation and nothing from elsewhere."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.build_site import OUTSIDE, arrange, build, place

ROOT = Path(__file__).resolve().parents[2]
PAGES = {place(path.relative_to(ROOT).as_posix()) for path in (ROOT / "docs").rglob("*.md")} | set(OUTSIDE.values())
NAVIGATION = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
# What GitHub reads as a list, a fence or a link, and the site has left as it is.
NOT_READ = re.compile(r"\n *(?:- |\d+\. )\S[^\n]*|```|\]\([^\n]*")
# What a browser loads by itself when it shows a page.
LOADED = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?([^\"\s>]+)|<link\s([^>]*)>")

needs_zensical = pytest.mark.skipif(
    find_spec("zensical") is None, reason="the site's generator is not installed: it needs Python 3.11.5"
)


@pytest.mark.parametrize(
    ("path", "written", "arranged"),
    [
        ("docs/guides/team.md", "[a](http.md#tls) and [b](../start/clients.md)", None),
        ("docs/guides/lock.md", "[a](../../SECURITY.md#servers)", "[a](../security.md#servers)"),
        ("README.md", "[a](docs/guides/team.md#tls)", "[a](guides/team.md#tls)"),
        ("CLAUDE.md", "[a](docs/internals/design.md)", "[a](design.md)"),
        ("README.md", "![two\nlines](docs/images/demo.svg)", "![two\nlines](images/demo.svg)"),
        ("docs/start/clients.md", "[a](https://example.com/x.md) [b](#here) <x@example.com>", None),
    ],
)
def test_links_between_pages_lead_to_the_same_page(path: str, written: str, arranged: str | None) -> None:
    assert arrange(written, path) == (written if arranged is None else arranged)


def test_files_that_the_site_does_not_have_are_named_without_a_link() -> None:
    text = "[one](../guides/team.md), [`test_x`](../../tests/test_x.py), [`a[0]`](../../src/a.py)"
    assert arrange(text, "docs/reference/reliability.md") == "[one](../guides/team.md), `test_x`, `a[0]`"


def test_a_page_that_is_called_by_its_file_name_gets_its_title() -> None:
    text = "[docs/guides/team.md](docs/guides/team.md) [the team](docs/guides/team.md) [http.md](docs/guides/http.md)"
    titles = {"guides/team.md": "Serving a team", "guides/http.md": "HTTP"}
    arranged = arrange(text, "README.md", titles)
    assert arranged == "[Serving a team](guides/team.md) [the team](guides/team.md) [HTTP](guides/http.md)"


def test_examples_are_left_alone() -> None:
    text = "[a](LICENSE)\n\n```text\n[a](LICENSE)\n```\n\n[b](LICENSE)\n"
    assert arrange(text, "README.md") == "a\n\n```text\n[a](LICENSE)\n```\n\nb\n"


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(NAVIGATION) == sorted(page or "" for page in PAGES)


@needs_zensical
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert build(tmp_path) == 0, capfd.readouterr()
    built = sorted((tmp_path / "site").rglob("*.html"))
    assert {page.relative_to(tmp_path / "site").with_suffix(".md").as_posix() for page in built} >= PAGES
    loaded = [
        address
        for page in built
        for source, link in LOADED.findall(page.read_text(encoding="utf-8"))
        for address in [source or link]
    ]
    assert any("stylesheets/" in address for address in loaded)
    assert [address for address in loaded if "//" in address] == []
    articles = {page.name: page.read_text(encoding="utf-8").partition("<article")[2] for page in built}
    prose = {name: re.sub(r"<(pre|code).*?</\1>", "", text, flags=re.DOTALL) for name, text in articles.items()}
    assert {name: found for name, text in prose.items() if (found := NOT_READ.findall(text))} == {}


@needs_zensical
def test_a_link_to_an_anchor_that_does_not_exist_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "copy" / "docs"
    page.mkdir(parents=True)
    (page / "README.md").write_text("# All\n\n[a](#nowhere)\n")
    (tmp_path / "copy" / "mkdocs.yml").write_text("site_name: x\ndocs_dir: documents\nsite_dir: site\n")
    monkeypatch.setattr("scripts.build_site.ROOT", tmp_path / "copy")
    monkeypatch.setattr("scripts.build_site.OUTSIDE", {"docs/README.md": "index.md"})
    assert build(tmp_path) != 0
    assert "anchor does not exist" in re.sub(r"\x1b\[[0-9;]*m", "", capfd.readouterr().err)
