"""What is remembered of servers, whatever system call its writer dies at or is refused: the old or the new, whole."""

from __future__ import annotations

import contextlib
from itertools import count
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from tests.engine.catalog.test_manifests import KEY, OFFER
from tests.support.failing_calls import MODES, Died, Mode, failing_at, no_descriptor_left

NEWER = Offer(OFFER.profile, {"tools": {"write": Raw(b'{"name":"write"}')}})


@pytest.mark.parametrize("mode", MODES)
def test_a_later_read_sees_the_old_or_the_new_offer(tmp_path: Path, mode: Mode) -> None:
    for at in count(1):
        folder = tmp_path / str(at)
        ManifestStore(lambda folder=folder: str(folder)).save(KEY, OFFER)  # type: ignore[misc]
        seen: list[object] = []
        with no_descriptor_left(mode), failing_at(at, mode) as calls, contextlib.suppress(Died):
            store = ManifestStore(lambda folder=folder: str(folder))  # type: ignore[misc]
            seen.append(store.load(KEY))
            store.save(KEY, NEWER)
            store.save_blob("index", b"data")
            seen.append(store.load(KEY))
        again = ManifestStore(lambda folder=folder: str(folder))  # type: ignore[misc]
        found = again.load(KEY)
        assert found is not None and sorted(found.lists["tools"]) in (["read", "écrire"], ["write"]), at
        assert again.load_blob("index") in (None, b"data")
        if not calls.was_reached:
            assert sorted(found.lists["tools"]) == ["write"]
            return
