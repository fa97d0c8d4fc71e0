"""Codes work once and soon, sessions end, and cookies are for one workbench."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mcp_workbench.engine.transport.http.server.authentication import (
    UNAVAILABLE,
    Authentication,
    AuthenticationChallenge,
)
from mcp_workbench.seeing.page.sign_in import (
    CHECK_INTERVAL,
    MAX_CODES,
    MAX_SESSIONS,
    MAX_SESSIONS_OF_ONE,
    PAGE_SESSION_LIFETIME,
    SIGN_IN_CODE_LIFETIME,
    PageSignIns,
    PageUser,
    cookie_header,
    cookie_in,
    cookie_name,
)

ADA = PageUser("", is_owner=True, name="ada")
BOB = PageUser("bob", is_owner=False, name="bob")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_code_works_once_within_a_minute() -> None:
    clock = Clock()
    sign_ins = PageSignIns(clock)
    codes = [sign_ins.new_code(user) for user in (ADA, BOB)]
    assert sign_ins.use_code("") is None and sign_ins.use_code("\u00e9") is None
    assert sign_ins.use_code(codes[1]) is BOB and sign_ins.use_code(codes[1]) is None
    clock.now += SIGN_IN_CODE_LIFETIME
    assert sign_ins.use_code(codes[0]) is None


def test_codes_and_sessions_are_bounded_and_the_oldest_go() -> None:
    sign_ins = PageSignIns(Clock())
    codes = [sign_ins.new_code(ADA) for _ in range(MAX_CODES + 1)]
    assert [sign_ins.use_code(code) is None for code in codes[:2]] == [True, False]
    users = [PageUser(str(number), is_owner=False, name="") for number in range(MAX_SESSIONS + 1)]
    sessions = [sign_ins.begin(user) for user in users]
    assert [sign_ins.find(id) is None for id in sessions[:2]] == [True, False]


def test_repeated_sign_ins_drop_only_own_sessions() -> None:
    sign_ins = PageSignIns(Clock())
    owners = sign_ins.begin(ADA)
    sessions = [sign_ins.begin(BOB) for _ in range(MAX_SESSIONS_OF_ONE + 1)]
    assert [sign_ins.find(id) is None for id in sessions[:2]] == [True, False]
    sessions += [sign_ins.begin(BOB) for _ in range(MAX_SESSIONS)]
    assert sign_ins.find(owners) is not None


EXPIRED = AuthenticationChallenge("it has expired", b"Bearer")
UNKNOWN_NOW = AuthenticationChallenge("the provider does not answer", b"Bearer", UNAVAILABLE)


@pytest.mark.parametrize(("found", "ends"), [("bob", False), (UNKNOWN_NOW, False), ("eve", True), (EXPIRED, True)])
@pytest.mark.parametrize("is_later", [False, True])
async def test_a_session_ends_with_its_key_or_token(found: Authentication, ends: bool, is_later: bool) -> None:
    def check(prove: Callable[[object], None]) -> Authentication | asyncio.Future[Authentication]:
        if not is_later:
            return found
        later: asyncio.Future[Authentication] = asyncio.get_running_loop().create_future()
        later.set_result(found)
        return later

    clock = Clock()
    sign_ins = PageSignIns(clock)
    other, id = sign_ins.begin(ADA), sign_ins.begin(BOB, check)
    clock.now += CHECK_INTERVAL
    sign_ins.find(id)
    await asyncio.sleep(0)
    assert (sign_ins.find(id) is None) == ends and sign_ins.find(other) is not None


def test_a_session_ends_after_its_time_by_hand_and_with_its_key() -> None:
    clock = Clock()
    sign_ins = PageSignIns(clock)
    first, second, third = (sign_ins.begin(user) for user in (ADA, BOB, ADA))
    found = sign_ins.find(third)
    assert found is not None and found.user is ADA and found.csrf not in (first, second, third)
    sign_ins.end_those_of(frozenset({"bob"}))
    sign_ins.end(first)
    assert [sign_ins.find(id) is None for id in (first, second, third)] == [True, True, False]
    clock.now += PAGE_SESSION_LIFETIME
    assert sign_ins.find(third) is None


@pytest.mark.parametrize(
    ("host", "is_tls", "name"),
    [
        ("127.0.0.1:8421", False, "wb_page_8421"),
        ("[::1]:8421", False, "wb_page_8421"),
        ("[::1]", False, "wb_page"),
        ("workbench.example", True, "__Host-wb_page"),
    ],
)
def test_two_workbenches_on_one_machine_have_cookies_of_their_own(host: str, is_tls: bool, name: str) -> None:
    assert cookie_name(host, is_tls=is_tls) == name
    assert (b"; Secure" in cookie_header(name, "x", is_tls=is_tls)) == is_tls


def test_a_cookie_that_is_given_twice_is_none() -> None:
    assert cookie_in("a=1; wb_page=x; b=2", "wb_page") == "x"
    assert cookie_in("wb_page=x; wb_page=y", "wb_page") == ""
    assert cookie_in("xwb_page=x", "wb_page") == "" and cookie_in(None, "wb_page") == ""
