"""What counts as a token, and the smallest budget."""

from __future__ import annotations

from typing import Final

# The rule of thumb behind every budget.
BYTES_PER_TOKEN: Final = 4
# With fewer tokens, a list of tools could not even say how to get more.
LEAST_BUDGET: Final = 300


def tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
