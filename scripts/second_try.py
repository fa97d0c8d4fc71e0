"""Run pytest, and the few tests that failed once more, one at a time.

Hundreds of tests start programs and wait for them, side by side: on a busy machine one now and then loses a race that
has nothing to do with the change. CPython's test runner gives such tests a second try, and so does CI. One that fails
again fails the run. One that passes is named as unstable, because that is a defect all the same.

    python -m scripts.second_try -m pytest -n 4 ...
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# More than these are no coincidence.
MAX_SECOND_TRIES = 5
# pytest's status for "some tests failed". Any other (interrupted, a broken plugin, no tests) may mean that tests did
# not run at all, which a second try of those that failed cannot make up for.
TESTS_FAILED = 1
FAILED_TESTS = Path(".pytest_cache/v/cache/lastfailed")


def failed_tests(path: Path = FAILED_TESTS) -> list[str]:
    """The tests that the last run left as failed."""
    try:
        return [*json.loads(path.read_bytes())]
    except FileNotFoundError:
        return []


def main(arguments: list[str]) -> int:
    status = subprocess.call([sys.executable, *arguments, "--cache-clear"])
    # None failed: something else did, for example a plugin's own check.
    if status != TESTS_FAILED or not 0 < len(failed := failed_tests()) <= MAX_SECOND_TRIES:
        return status
    names = "".join(f"\n  {name}" for name in failed)
    print(f"\nThese tests failed beside others. Once more, one at a time:{names}", flush=True)
    status = subprocess.call([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *failed])
    if status == 0:
        print(f"UNSTABLE: {len(failed)} failed beside others and passed alone:{names}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
