"""The file is read once. Who asks for a toolbox that was written into it later is told so."""

from __future__ import annotations

import os

import pytest

from tests.faces.harness import Bench, error_text

CHANGED = "(the configuration file has changed since it was read: restart the workbench"


@pytest.mark.parametrize("face", ["proxy", "dynamic"])
async def test_an_unknown_toolbox_may_be_one_of_a_file_that_has_changed(bench: Bench, face: str) -> None:
    async with bench.within({"dev": {"git": ()}}, face) as seen:
        before = await seen.open("new")
        assert "toolbox `new` does not exist" in error_text(before)
        assert CHANGED not in error_text(before)
        os.utime(seen.gateway.config.path, ns=(1, 1))
        assert CHANGED in error_text(await seen.open("new"))
        os.unlink(seen.gateway.config.path)
        assert CHANGED not in error_text(await seen.open("new"))
