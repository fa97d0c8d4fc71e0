"""Who shares a connection, and how many of them there can be."""

from __future__ import annotations

import asyncio

import pytest

from mcp_workbench.downstream.lifecycle import State
from mcp_workbench.downstream.pool import MOST_LOG_LEVELS, MOST_VARIANTS, NO_ROOM, Pool
from mcp_workbench.errors import DownstreamError
from tests.downstream.fakes import House


def pool_of(house: House) -> Pool:
    return Pool(house.catalog, b"{}", house._open, house._start_task)


def kind(number: int) -> bytes:
    """What the clients of one kind declare."""
    return b'{"experimental":{"%d":{}}}' % number


async def test_callers_who_can_do_the_same_share_and_others_do_not() -> None:
    async with House() as house:
        pool = pool_of(house)
        first = pool.connection(house.entry, "anna", kind(1))
        assert pool.connection(house.entry, "anna", kind(1)) is first
        others = [pool.connection(house.entry, "anna", kind(2)), pool.connection(house.entry, "bert", kind(1))]
        assert len({id(each) for each in (first, *others)}) == 3


async def test_an_idle_connection_makes_room_for_another_kind_of_client() -> None:
    async with House() as house:
        pool = pool_of(house)
        first = pool.connection(house.entry, "anna", kind(0))
        await first.ensure_ready()
        for number in range(1, MOST_VARIANTS + 1):
            await pool.connection(house.entry, "anna", kind(number)).ensure_ready()
        assert len(pool.connections()) == MOST_VARIANTS
        await first.wait_stopped()
        assert first.state is State.STOPPED
        with pytest.raises(DownstreamError, match="given up to make room"):
            await first.ensure_ready()
        assert pool.connection(house.entry, "anna", kind(0)) is not first
        await pool.close()


async def test_nobody_who_waits_for_a_start_loses_it_to_another_kind_of_client() -> None:
    async with House() as house:
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        house.before_opening = wait
        pool = pool_of(house)
        waiting = []
        for number in range(MOST_VARIANTS + 4):
            connection = pool.connection(house.entry, "anna", kind(number))
            waiting.append(asyncio.create_task(connection.ensure_ready()))
            await asyncio.sleep(0)
        gate.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert outcomes[:MOST_VARIANTS] == [None] * MOST_VARIANTS
        assert [str(outcome) for outcome in outcomes[MOST_VARIANTS:]] == [NO_ROOM] * 4
        await pool.close()


async def test_where_all_are_in_use_one_more_is_refused_and_none_is_started() -> None:
    async with House() as house:
        pool = pool_of(house)
        for number in range(MOST_VARIANTS):
            connection = pool.connection(house.entry, "anna", kind(number))
            await connection.ensure_ready()
            # It works on something that outlives a call.
            connection.held_until = float("inf")
        started = len(house.links)
        for number in range(MOST_VARIANTS, MOST_VARIANTS + 5):
            with pytest.raises(DownstreamError) as refusal:
                await pool.connection(house.entry, "anna", kind(number)).ensure_ready()
            assert refusal.value.message == NO_ROOM
        assert (len(house.links), len(pool.connections())) == (started, MOST_VARIANTS)
        await pool.connection(house.entry, "bert", kind(0)).ensure_ready()
        pool.connections()[0].held_until = 0.0
        await pool.connection(house.entry, "anna", kind(99)).ensure_ready()
        await pool.close()


async def test_log_levels_are_remembered_for_servers_to_come_within_a_bound() -> None:
    async with House() as house:
        pool = pool_of(house)
        for number in range(MOST_LOG_LEVELS + 10):
            pool.set_log_level("anna", kind(number), "error")
        pool.set_log_level("anna", kind(12), "debug")
        assert len(pool._log_levels) == MOST_LOG_LEVELS
        assert pool.connection(house.entry, "anna", kind(12)).watch.log_level == "debug"
        assert pool.connection(house.entry, "anna", kind(0)).watch.log_level is None
