"""How many examples property tests look at."""

from __future__ import annotations

from hypothesis import settings

# Of a test that names no number: in the whole suite, and in `make quick`.
THOROUGH = 100
QUICK = 15


def examples(count: int) -> settings:
    """So many in the whole suite, and fewer in proportion in `make quick`."""
    return settings(max_examples=count * settings().max_examples // THOROUGH)
