"""What a token is here, and the smallest budget of them. Refuses to know what is counted."""

from __future__ import annotations

from typing import Final

# The rule of thumb that every budget is counted in.
BYTES_PER_TOKEN: Final = 4
# Tokens for a list of tools: less could not even say how to get more.
LEAST_BUDGET: Final = 300


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
