"""Many clients and servers, faults, questions and new configurations, on a clock of their own: each answer is the one
that its call may have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from mcp_workbench.engine import blocking_work
from mcp_workbench.engine.config.model import FaceName
from mcp_workbench.engine.session import parking
from tests.bridge.crowd import Crowd, CrowdGateway, Step, crowd_config, script_of
from tests.support.virtual_time import VirtualLoop

SEEDS = range(12)
STEPS = 250
# How often a script that fails is tried again without a part of it.
MAX_SHRINKING_TRIES = 60


async def _play(script: Sequence[Step], face: FaceName, seed: int, done: list[str]) -> None:
    config, eras = crowd_config()
    gateway = CrowdGateway(config, face, eras)
    async with gateway.running():
        crowd = Crowd(gateway, face, seed)
        crowd.done = done
        await crowd.play(script)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1, f"tasks left behind: {asyncio.all_tasks()}"
    timers = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
    assert not timers, f"timers left behind: {timers}"


def failure_of(script: Sequence[Step], face: FaceName, seed: int, done: list[str]) -> str | None:
    """What is wrong with a run of this script."""
    defects = _Defects()
    logger = logging.getLogger("mcp_workbench")
    logger.addHandler(defects)

    def new_loop() -> VirtualLoop:
        loop = VirtualLoop(seed)
        patch.setattr(blocking_work, "aside", loop.aside)
        # Sealed states go by the time of the wall.
        patch.setattr(parking, "time", SimpleNamespace(time=loop.time))
        return loop

    try:
        with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_play(script, face, seed, done))
    except AssertionError as error:
        return str(error)
    except BaseExceptionGroup as group:
        return "; ".join(str(error) for error in group.exceptions)
    finally:
        logger.removeHandler(defects)
    return "\n".join(defects.texts) or None


class _Defects(logging.Handler):
    """What was logged as a defect of ours, which is contained, and a defect all the same."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


def shrunk(script: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """A short script that fails as well: without as many of its steps as can be spared."""
    size, tries = len(script) // 2, 0
    while size:
        start = 0
        while start < len(script) and tries < MAX_SHRINKING_TRIES:
            rest = script[:start] + script[start + size :]
            tries += 1
            if fails(rest):
                script = rest
            else:
                start += size
        size //= 2
    return script


@pytest.mark.bridge("calls-in-flight", "question", "parking", "request-state")
@pytest.mark.parametrize("seed", SEEDS)
def test_every_answer_is_one_that_its_call_may_have(seed: int) -> None:
    face: FaceName = "proxy" if seed % 3 else "flat"
    script = script_of(seed, STEPS)
    if failure_of(script, face, seed, []) is not None:
        script = shrunk(script, lambda each: failure_of(each, face, seed, []) is not None)
        done: list[str] = []
        failure = failure_of(script, face, seed, done)
        pytest.fail("\n".join([*done, str(failure)]))
