"""The decisions of a sign-in, without a network: which scopes are requested, how long a device code is polled."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from mcp_workbench.engine.config.oauth_settings import OAuthConfig
from mcp_workbench.signin import flow
from mcp_workbench.signin.challenge import Challenge
from mcp_workbench.signin.discovery import AuthorizationServer, Discovery
from mcp_workbench.signin.flow import DEVICE_CODE_TIMEOUT, DEVICE_PAUSE, MAX_DEVICE_POLL_INTERVAL
from mcp_workbench.signin.flow_io import DeviceCodeWait, OAuthRequest, OAuthResponse, SignInFailed
from mcp_workbench.signin.profiles import Profile

ORIGIN = "https://mcp.example.com"
URL = f"{ORIGIN}/mcp"
OFFLINE = "offline_access"


def scopes(*asked: str, published: tuple[str, ...] = (), **profile: Any) -> tuple[str, ...]:
    server = AuthorizationServer(
        issuer=ORIGIN, identifier=ORIGIN, token_endpoint=f"{ORIGIN}/token", scopes_supported=published
    )
    discovery = Discovery(server=server, resource=URL, profile=Profile(**profile))
    return flow.select_scopes(flow.SignInRequest(url=URL, challenge=Challenge(scope=asked)), discovery)


@pytest.mark.parametrize(
    ("published", "offline_access", "asked", "requested"),
    [
        ((), "auto", ("read", OFFLINE), ("read", OFFLINE)),
        (("read",), "auto", ("read", OFFLINE), ("read",)),
        (("read", OFFLINE), "auto", ("read",), ("read", OFFLINE)),
        (("read", OFFLINE), "never", ("read", OFFLINE), ("read",)),
        ((), "never", ("read", OFFLINE), ("read",)),
        ((), "always", ("read",), ("read", OFFLINE)),
    ],
)
def test_offline_access_is_left_out_only_where_it_is_known_not_to_be_supported(
    published: tuple[str, ...], offline_access: str, asked: tuple[str, ...], requested: tuple[str, ...]
) -> None:
    assert scopes(*asked, published=published, offline_access=offline_access) == requested


class Device:
    """An authorization server that has been asked for a device code, and the pauses before each question for it."""

    def __init__(self, **given: Any) -> None:
        settings = OAuthConfig(client_id="app", scopes=("read", "write"))
        self._steps = flow.device_code(flow.SignInRequest(url=URL, settings=settings))
        self.waits: list[DeviceCodeWait] = []
        self.polls = 0
        self.begun: dict[str, str] = {}
        self.asked: dict[str, str] = {}
        self.status = 200
        self.has_codes = True
        self._given = {"device_code": "d", "user_code": "ABCD", "verification_uri": f"{ORIGIN}/activate", **given}

    def run(self, *errors: str) -> flow.Grant:
        """Poll until a token is given, which is after these errors; the last one is repeated if it is pending."""
        step: Any = next(self._steps)
        try:
            while True:
                step = self._steps.send(self._answer(step, errors))
        except StopIteration as done:
            grant: flow.Grant = done.value
            return grant

    def _answer(self, step: Any, errors: tuple[str, ...]) -> OAuthResponse | None:
        if isinstance(step, DeviceCodeWait):
            self.waits.append(step)
            return None
        assert isinstance(step, OAuthRequest)
        if "well-known" in step.url:
            if "protected-resource" in step.url:
                return _json({"resource": URL, "authorization_servers": [ORIGIN]})
            endpoints = {"token_endpoint": f"{ORIGIN}/token"}
            if self.has_codes:
                endpoints["device_authorization_endpoint"] = f"{ORIGIN}/device"
            return _json({"issuer": ORIGIN, "authorization_endpoint": f"{ORIGIN}/authorize", **endpoints,
                          "code_challenge_methods_supported": ["S256"]})  # fmt: skip
        if step.url.endswith("/device"):
            self.begun = dict(parse_qsl((step.body or b"").decode()))
            return _json(self._given, self.status)
        assert self.waits, "nobody has been shown the code yet"
        self.polls += 1
        self.asked = dict(parse_qsl((step.body or b"").decode()))
        error = errors[min(self.polls, len(errors)) - 1] if errors else ""
        if self.polls <= len(errors) or error == "authorization_pending":
            return _json({"error": error}, 400)
        return _json({"access_token": "a", "token_type": "bearer"})


def _json(value: object, status: int = 200) -> OAuthResponse:
    return OAuthResponse(status, json.dumps(value).encode(), "application/json")


def test_a_code_is_asked_for_and_exchanged_by_the_client() -> None:
    device = Device()
    grant = device.run()
    assert (grant.client.id, grant.scopes, grant.dpop_key) == ("app", ("read", "write"), "")
    assert device.begun == {"client_id": "app", "scope": "read write", "resource": URL}
    kind = "urn:ietf:params:oauth:grant-type:device_code"
    assert device.asked == {"client_id": "app", "grant_type": kind, "device_code": "d", "resource": URL}


@pytest.mark.parametrize("missing", ["device_code", "user_code", "verification_uri"])
@pytest.mark.parametrize("value", [None, "", 7])
def test_a_code_that_is_incomplete_is_neither_shown_nor_polled_for(missing: str, value: object) -> None:
    device = Device(**{missing: value})
    with pytest.raises(SignInFailed, match="issued no device code"):
        device.run()
    assert device.waits == [] and device.polls == 0


def test_a_code_that_was_refused_or_cannot_be_had_is_not_polled_for() -> None:
    refused, without = Device(), Device()
    refused.status, without.has_codes = 400, False
    for device, why in ((refused, "issued no device code"), (without, "does not support device codes")):
        with pytest.raises(SignInFailed, match=why):
            device.run()
        assert device.waits == [] and device.polls == 0
    assert without.begun == {}


@pytest.mark.parametrize(
    ("interval", "pause"), [(0.5, 0.5), *((each, DEVICE_PAUSE) for each in (0, -1, True, "5", None))]
)
def test_an_interval_that_is_none_is_the_usual_one(interval: object, pause: float) -> None:
    device = Device(interval=interval)
    device.run()
    assert [each.seconds for each in device.waits] == [pause]


def test_the_page_is_shown_before_the_first_pause_and_once() -> None:
    device = Device(interval=2)
    grant = device.run("slow_down")
    assert grant.tokens.access_token == "a"
    assert [(each.seconds, each.page, each.code) for each in device.waits] == [
        (2.0, f"{ORIGIN}/activate", "ABCD"),
        (2.0 + DEVICE_PAUSE, "", "ABCD"),
    ]


def test_a_page_that_has_the_code_already_is_shown_instead() -> None:
    device = Device(verification_uri_complete=f"{ORIGIN}/activate?code=ABCD")
    device.run()
    assert [(each.seconds, each.page) for each in device.waits] == [(DEVICE_PAUSE, f"{ORIGIN}/activate?code=ABCD")]


def test_however_often_a_server_wants_us_to_slow_down_there_is_a_longest_pause() -> None:
    device = Device(expires_in=3600)
    device.run(*["slow_down"] * 15)
    assert [each.seconds for each in device.waits][-2:] == [MAX_DEVICE_POLL_INTERVAL] * 2


@pytest.mark.parametrize(
    ("given", "polls"),
    [
        ({"expires_in": 12, "interval": 5}, 3),
        ({"expires_in": DEVICE_CODE_TIMEOUT * 10, "interval": 60}, DEVICE_CODE_TIMEOUT / 60),
        # A pause beyond the life of the code is no reason to wait that long.
        ({"expires_in": 30, "interval": 1e9}, 1),
        ({"interval": 1e9}, 1),
    ],
)
def test_a_device_code_that_is_not_entered_expires(given: dict[str, float], polls: float) -> None:
    device = Device(**given)
    with pytest.raises(SignInFailed, match="not entered in time"):
        device.run("authorization_pending")
    assert device.polls == polls
    assert sum(each.seconds for each in device.waits) <= min(given.get("expires_in", 1e9), DEVICE_CODE_TIMEOUT) + 60


def test_polling_stops_when_the_user_refuses() -> None:
    device = Device()
    with pytest.raises(SignInFailed, match="access_denied"):
        device.run("authorization_pending", "access_denied")
    assert device.polls == 2
