"""What became of every call: answered, failed with a reason, or cancelled; the sums must match.

Owns the counting and the judging of answers. Refuses to know how calls travel.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

Json = dict[str, Any]

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
MAX_CHARACTERS = 120


class Accounts:
    """One for all clients of a run."""

    def __init__(self) -> None:
        self.started = 0
        self.answered = 0
        self.failed = 0
        self.cancelled = 0
        # Why calls failed, in few words.
        self.reasons: Counter[str] = Counter()
        # What must not happen: wrong answers, answers without a reason, connections that broke.
        self.wrong: list[str] = []
        # Seconds that answered calls took, since somebody last looked.
        self.latencies: list[float] = []

    def __repr__(self) -> str:
        return (
            f"<Accounts {self.started:,} started: {self.answered:,} answered, {self.failed:,} failed, "
            f"{self.cancelled:,} cancelled, {len(self.wrong)} wrong>"
        )

    @property
    def under_way(self) -> int:
        """Calls that have no end yet."""
        return self.started - self.answered - self.failed - self.cancelled - len(self.wrong)

    def start(self) -> int:
        """A number that no other call has."""
        self.started += 1
        return self.started

    def judge(self, number: int, response: Json, seconds: float | None = None) -> None:
        """An answer to the call with this number; `seconds` when how long it took is our doing."""
        result = response.get("result")
        if result is None:
            self._fail(number, str(response.get("error", {}).get("message", "")))
        elif result.get("isError"):
            self._fail(number, str(result["content"][0]["text"]))
        elif result.get("structuredContent") == {"n": number}:
            self.answered += 1
            if seconds is not None:
                self.latencies.append(seconds)
        else:
            self.wrong.append(f"call {number} was answered with {str(result)[:200]}")

    def cancel(self, number: int) -> None:
        """The client gave it up, and got no answer."""
        self.cancelled += 1

    def lose(self, number: int, error: BaseException) -> None:
        """Neither an answer nor an error that says why."""
        self.wrong.append(f"call {number}: {error!r}")

    def _fail(self, number: int, text: str) -> None:
        if not text.strip():
            self.wrong.append(f"call {number} failed without a reason")
            return
        self.failed += 1
        self.reasons[_in_few_words(text)] += 1

    def take_latencies(self) -> list[float]:
        """Those since the last time, sorted."""
        taken, self.latencies = sorted(self.latencies), []
        return taken


def _in_few_words(text: str) -> str:
    """Without the name in front and whatever differs from case to case."""
    words = text.splitlines()[0]
    words = words.partition("] ")[2] if words.startswith("[") else words
    return ADDRESS.sub("its address", words)[:MAX_CHARACTERS]


def repeated(numbers: list[int], most: int) -> list[int]:
    """Calls that a server got to see more than once. `most` is the largest number there can be."""
    seen = bytearray(most + 1)
    found = []
    for number in numbers:
        if seen[number]:
            found.append(number)
        seen[number] = 1
    return found
