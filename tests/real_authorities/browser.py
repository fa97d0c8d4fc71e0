"""`python browser.py URL`: a browser whose user agrees to everything. For `BROWSER`, as `python browser.py %s`.

Debian's Chromium, headless, where it is installed: it runs the scripts of the pages and keeps their cookies by its own
rules. Elsewhere a program that follows redirects, keeps cookies and sends off each form that it is shown. Says on its
standard error which of both it was, and ends when it has arrived at the callback.
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urljoin

PAGE_TIMEOUT = 20.0
# Starting a browser takes seconds on a busy machine.
BROWSER_TIMEOUT = 60.0
MAX_FORMS = 5
CHROMIUM_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    # Scripts that move on to another page are given time to do so; then what is shown is printed.
    *("--virtual-time-budget=10000", "--dump-dom"),
)
FORM = re.compile(r"<form\b([^>]*)>(.*?)</form>", re.DOTALL | re.IGNORECASE)
ATTRIBUTE = re.compile(r'([a-z-]+)="([^"]*)"', re.IGNORECASE)
INPUT = re.compile(r"<input\b([^>]*)>", re.IGNORECASE)


def find_chromium() -> str | None:
    return shutil.which("chromium")


def visit_with_chromium(program: str, url: str) -> str:
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = [program, *CHROMIUM_FLAGS, f"--user-data-dir={profile}", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BROWSER_TIMEOUT, check=False)
    return done.stdout


def visit_and_send_forms(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    page, place = _open(opener, url, None)
    for _ in range(MAX_FORMS):
        form = FORM.search(page)
        if form is None:
            break
        attributes = dict(ATTRIBUTE.findall(form[1]))
        inputs = [dict(ATTRIBUTE.findall(each)) for each in INPUT.findall(form[2])]
        fields = {each["name"]: html.unescape(each.get("value", "")) for each in inputs if "name" in each}
        page, place = _open(opener, urljoin(place, attributes.get("action", place)), urlencode(fields).encode())
    return page


def _open(opener: urllib.request.OpenerDirector, url: str, data: bytes | None) -> tuple[str, str]:
    with opener.open(url, data, timeout=PAGE_TIMEOUT) as page:
        return page.read().decode(errors="replace"), page.geturl()


def visit(url: str) -> str:
    """The last page that was shown."""
    program = find_chromium()
    return visit_and_send_forms(url) if program is None else visit_with_chromium(program, url)


if __name__ == "__main__":
    print(visit(sys.argv[1]), file=sys.stderr)
