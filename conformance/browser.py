"""`python -m conformance.browser URL`: a browser whose user agrees to everything. Follows redirects to the end."""

from __future__ import annotations

import sys
import urllib.request
from http.cookiejar import CookieJar

# A page that takes longer has hung.
PAGE_TIMEOUT = 20.0


def visit(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with opener.open(url, timeout=PAGE_TIMEOUT) as page:
        page.read()


if __name__ == "__main__":
    visit(sys.argv[1])
