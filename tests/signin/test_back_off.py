"""When a failing authorization server is asked again."""

from __future__ import annotations

from mcp_workbench.signin.back_off import FIRST_BACK_OFF_DELAY, MAX_BACK_OFF_DELAY, BackOff


def test_the_pauses_double_up_to_the_longest() -> None:
    back_off, now, pauses = BackOff(), 1000.0, []
    for _ in range(10):
        assert back_off.pause("b", "alice", now) is None
        back_off.failed("b", "alice", now, "down")
        paused = back_off.pause("b", "alice", now)
        assert paused is not None and paused[1] == "down"
        pauses.append(paused[0])
        now += paused[0]
    assert pauses[:4] == [FIRST_BACK_OFF_DELAY * 2**n for n in range(4)]
    assert pauses[-1] == MAX_BACK_OFF_DELAY


def test_others_wait_only_once_it_has_failed_for_two() -> None:
    back_off = BackOff()
    back_off.failed("b", "alice", 0.0, "down")
    assert back_off.pause("b", "bob", 0.0) is None
    back_off.failed("b", "bob", 0.0, "down")
    assert back_off.pause("b", "carol", 0.0) is not None
    assert back_off.pause("a", "alice", 0.0) is None, "another issuer"


def test_an_answer_ends_the_pause_and_the_next_failure_starts_small_again() -> None:
    back_off = BackOff()
    for _ in range(5):
        back_off.failed("b", "alice", 0.0, "down")
    back_off.answered("b")
    assert back_off.pause("b", "alice", 0.0) is None
    back_off.failed("b", "alice", 0.0, "down")
    assert back_off.pause("b", "alice", 0.0) == (FIRST_BACK_OFF_DELAY, "down")


def test_a_clock_that_is_set_back_lengthens_no_pause() -> None:
    back_off = BackOff()
    back_off.failed("b", "alice", 1_000_000.0, "down")
    assert back_off.pause("b", "alice", 0.0) == (FIRST_BACK_OFF_DELAY, "down")
