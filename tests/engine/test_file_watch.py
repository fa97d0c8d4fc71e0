"""Watching files: told once a change is over, and not before."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mcp_workbench.engine.file_watch import FILE_SETTLE_DELAY, FileWatch, Fingerprint, Watched, fingerprint


class Clock:
    """Looks at the files as time goes by, and counts what is told."""

    def __init__(self, *files: Path, known: bool = True) -> None:
        paths = [str(file) for file in files]
        self.told: list[Fingerprint] = []
        self.watched = Watched(paths, fingerprint(paths) if known else None, self.told.append)
        self._now = 0.0

    def later(self, seconds: float) -> int:
        """Look after so long; how often something has been told by then."""
        self._now += seconds
        self.watched.look(self._now)
        return len(self.told)


def test_a_change_is_reported_once_and_only_after_the_file_has_been_still(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    clock = Clock(file)
    assert clock.later(10.0) == 0
    file.write_text('{"a": 1}')
    assert clock.later(0.1) == 0, "it may not be over"
    assert clock.later(FILE_SETTLE_DELAY / 2) == 0
    assert clock.later(FILE_SETTLE_DELAY / 2 + 0.01) == 1
    assert clock.told == [fingerprint([str(file)])]
    assert clock.later(10.0) == 1


def test_a_file_that_keeps_changing_is_told_when_it_stops(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    clock = Clock(file)
    # As many as some tool may make in a minute.
    for number in range(10_000):
        file.write_text(str(number))
        assert clock.later(60 / 10_000) == 0
    assert clock.later(FILE_SETTLE_DELAY + 0.01) == 1


@pytest.mark.parametrize("way", ["replaced by another file", "removed and written again", "a link to another file"])
def test_it_does_not_matter_how_a_file_is_changed(tmp_path: Path, way: str) -> None:
    file, other = tmp_path / "config.json", tmp_path / "other"
    file.write_text("a")
    other.write_text("b")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    clock = Clock(file)
    match way:
        case "replaced by another file":
            os.replace(other, file)
        case "removed and written again":
            file.unlink()
            assert clock.later(0.1) == 0
            other.rename(file)
        case _:
            file.unlink()
            file.symlink_to(other)
    clock.later(0.1)
    assert clock.later(FILE_SETTLE_DELAY + 0.01) == 1


def test_a_file_that_goes_and_one_that_comes_are_reported(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("")
    clock = Clock(first, second)
    second.write_text("")
    clock.later(0.1)
    assert clock.later(FILE_SETTLE_DELAY + 0.01) == 1
    first.unlink()
    clock.later(0.1)
    assert clock.later(FILE_SETTLE_DELAY + 0.01) == 2
    assert clock.told[-1][0] is None


def test_change_that_is_reverted_before_it_settles_is_not_reported(tmp_path: Path) -> None:
    file, aside = tmp_path / "config.json", tmp_path / "aside"
    file.write_text("{}")
    clock = Clock(file.parent / "link")
    (tmp_path / "link").symlink_to(file)
    assert clock.later(0.1) == 0
    (tmp_path / "link").rename(aside)
    assert clock.later(FILE_SETTLE_DELAY) == 0
    assert clock.later(FILE_SETTLE_DELAY) == 0


def test_a_file_that_was_not_looked_at_before_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    clock = Clock(file, known=False)
    clock.later(0.0)
    assert clock.later(FILE_SETTLE_DELAY + 0.01) == 1


def test_thread_checks_added_files_and_ends_on_close(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    changed = threading.Event()
    watch = FileWatch()
    watched = Watched([str(file)], fingerprint([str(file)]), lambda _: changed.set())
    watch.add(watched)
    file.write_text("{}")
    assert changed.wait(30)
    thread = watch._thread
    assert thread is not None and thread.is_alive()
    watch.close()
    thread.join(30)
    assert not thread.is_alive()
