"""A page for people, as one file: needs nothing beside it, and nothing from the network.

Owns the frame and the look (`page.css`); what is on the page is its caller's, who escapes what comes from elsewhere.
"""

from __future__ import annotations

from html import escape
from pathlib import Path


def html_page(title: str, body: str) -> str:
    """The page with this body, which is HTML already."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} – MCP Workbench</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
