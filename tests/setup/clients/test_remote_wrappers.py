"""`mcp-remote` becomes the address that it reaches."""

from __future__ import annotations

from typing import Any

import pytest

from mcp_workbench.setup.clients.remote_wrappers import unwrapped


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            {"command": "npx", "args": ["-y", "mcp-remote@latest", "https://x/sse", "--transport", "sse-only"]},
            {"url": "https://x/sse", "type": "sse"},
        ),
        (
            {
                "command": "npx",
                "args": ["mcp-remote", "https://x/mcp", "--header", "Authorization:${AUTH}", "--header", "X-A: b"],
                "env": {"AUTH": "Bearer abc"},
                "disabled": True,
            },
            {"url": "https://x/mcp", "headers": {"Authorization": "Bearer abc", "X-A": "b"}, "disabled": True},
        ),
        ({"command": "mcp-remote", "args": ["https://x"]}, {"url": "https://x"}),
        ({"command": "npx", "args": ["mcp-remote"]}, {"command": "npx", "args": ["mcp-remote"]}),
        ({"url": "https://x"}, {"url": "https://x"}),
    ],
)
def test_wrapper_becomes_an_address(entry: dict[str, Any], expected: dict[str, Any]) -> None:
    assert unwrapped(entry)[0] == expected


def test_options_that_mean_nothing_here_are_reported() -> None:
    remarks = unwrapped({"command": "mcp-remote", "args": ["https://x", "--auth-timeout", "5"]})[1]
    assert "`--auth-timeout` of mcp-remote is not carried over" in remarks
