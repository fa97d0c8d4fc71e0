"""Secrets of other servers in what a server sends."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from mcp_workbench.app.foreign_secrets import MAX_REPORTS, ForeignSecrets, SecretFilter
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.jsonrpc import messages

TOKEN = 'tok"en/ölig+0123456789'
OWN = "own-secret-0123"


class Arrived:
    """What a receiver was told."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []

    def on_message(self, line: bytes) -> None:
        self.lines.append(json.loads(line))

    def on_related_message(self, line: bytes, about: bytes) -> None:
        self.on_message(line)

    def on_answer(self, line: bytes, message: messages.Envelope) -> None:
        assert messages.read(line) == message
        self.on_message(line)

    def on_read_message(self, line: bytes, message: Any, about: bytes | None = None) -> None:
        assert messages.read(line) == message
        self.on_message(line)

    def send(self, *parts: bytes, about: bytes | None = None) -> None:
        self.sent.append(json.loads(b"".join(parts)))


def filtering(mode: Any, redactor: Redactor | None = None) -> tuple[SecretFilter, Arrived, list[str]]:
    arrived, reported = Arrived(), list[str]()
    secrets = ForeignSecrets(redactor or Redactor([TOKEN, OWN, "short"]), ["x", f"Bearer {OWN}"], lambda: None)
    filter = SecretFilter(arrived, secrets, mode, "box/s", reported.append)  # type: ignore[arg-type]
    filter.link = arrived  # type: ignore[assignment]
    return filter, arrived, reported


def answer(text: str, **dumped: Any) -> bytes:
    document = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": text}]}}
    return json.dumps(document, **dumped).encode()


FORMS = {
    "plain": answer(TOKEN, ensure_ascii=False),
    "escaped": answer(TOKEN),
    "escaped throughout": answer("@").replace(b"@", "".join(f"\\u{ord(each):04x}" for each in TOKEN).encode()),
    "slash escaped": answer(TOKEN, ensure_ascii=False).replace(b"/", b"\\/"),
    "JSON within": answer(json.dumps({"a": TOKEN}, ensure_ascii=False), ensure_ascii=False),
    "percent": answer(f"https://example.com/?q={quote(TOKEN, safe='')}"),
    **{
        f"base64 at {before}": answer(base64.b64encode(b"x" * before + TOKEN.encode() + b"!").decode())
        for before in range(3)
    },
    "base64 for URLs": answer(base64.urlsafe_b64encode(TOKEN.encode()).decode()),
}


# As many as are searched for one by one, and as many as are not.
OTHERS = [0, 199]


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("form", FORMS)
def test_another_servers_secret_is_found_however_it_is_written(form: str, others: int) -> None:
    more = [f"{n:03}" * 3 for n in range(others)]
    filter, arrived, reported = filtering("block", Redactor([TOKEN, OWN, "short", *more]))
    filter.on_message(FORMS[form])
    assert TOKEN not in json.dumps(arrived.lines, ensure_ascii=False)
    (line,) = arrived.lines
    assert line["id"] == 7 and "secret of another server" in line["error"]["message"]
    assert reported == ["answer"]


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("around", ["{}", "key={}", "{}, and more", "a/{}=", "x{}x", "\\n{}\\n", "{}{}"])
def test_a_key_is_found_wherever_it_is(around: str, others: int) -> None:
    key = "sk_live-0123456789abcdef"
    secrets = ForeignSecrets(Redactor([key, *(f"{n:03}" * 4 for n in range(others))]), [], lambda: None)
    for text in (key, base64.b64encode(key.encode()).decode()):
        assert secrets.is_in(answer(around.replace("{}", text)))
        assert secrets.is_in(answer(around.replace("{}", text) + " word" * 300_000))
        assert not secrets.is_in(answer(around.replace("{}", text[:11] + "!" + text[12:])))


def test_warning_passes_it_on_and_says_so() -> None:
    filter, arrived, reported = filtering("warn")
    filter.on_message(FORMS["plain"])
    assert arrived.lines == [json.loads(FORMS["plain"])] and reported == ["answer"]


@pytest.mark.parametrize("text", [OWN, "short", "an ordinary result", base64.b64encode(OWN.encode()).decode()])
def test_a_servers_own_secrets_and_ordinary_words_pass(text: str) -> None:
    filter, arrived, reported = filtering("block")
    filter.on_message(answer(text))
    assert arrived.lines == [json.loads(answer(text))] and reported == []


def test_all_ways_in_are_watched() -> None:
    filter, arrived, _ = filtering("block")
    line = FORMS["plain"]
    filter.on_related_message(line, b"7")
    filter.on_answer(line, messages.read(line))
    filter.on_read_message(line, messages.read(line))
    assert len(arrived.lines) == 3 and all("error" in each for each in arrived.lines)
    error = json.dumps({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": TOKEN}}).encode()
    filter.on_message(error)
    assert TOKEN not in json.dumps(arrived.lines, ensure_ascii=False)


def test_a_notification_is_dropped_and_a_question_is_answered() -> None:
    filter, arrived, reported = filtering("block")
    for extra in ({}, {"id": "q"}):
        message = {"jsonrpc": "2.0", "method": "m", "params": {"text": TOKEN}, **extra}
        filter.on_message(json.dumps(message, ensure_ascii=False).encode())
    assert arrived.lines == [] and reported == ["m", "m"]
    (answered,) = arrived.sent
    assert answered["id"] == "q" and "error" in answered


def test_secrets_that_are_learnt_later_count_but_for_those_of_its_own_sign_in() -> None:
    redactor = Redactor([])
    filter, arrived, _ = filtering("block", redactor)
    filter.on_message(answer("a-new-token-123"))
    redactor.replace("another's", ["a-new-token-123"])
    filter.on_message(answer("a-new-token-123"))
    assert ["result" in each for each in arrived.lines] == [True, False]
    owned = ForeignSecrets(redactor, [], lambda: "another's")
    assert not owned.is_in(answer("a-new-token-123"))


def test_reports_are_limited() -> None:
    filter, _, reported = filtering("block")
    for _ in range(MAX_REPORTS + 5):
        filter.on_message(FORMS["plain"])
    assert len(reported) == MAX_REPORTS


@pytest.mark.parametrize("length", range(8, 40))
def test_a_secret_of_any_length_is_found_at_any_place(length: int) -> None:
    secret = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"[:length]
    secrets = ForeignSecrets(Redactor([secret]), [], lambda: None)
    for before in range(20):
        for after in range(10):
            assert secrets.is_in(b"." * before + secret.encode() + b"." * after), (before, after)
            assert not secrets.is_in(b"." * before + secret[:-1].encode() + b"." * after)


def test_results_examined_in_a_thread_are_searched_again_only_for_new_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redactor = Redactor([TOKEN])
    filter, arrived, _ = filtering("block", redactor)
    harmless, late = answer("nothing"), answer("a-new-token-123")
    filter.on_message(harmless)
    searched: list[bytes] = []
    original = ForeignSecrets.are_known_in

    def are_known_in(self: ForeignSecrets, line: bytes) -> bool:
        searched.append(line)
        return original(self, line)

    monkeypatch.setattr(ForeignSecrets, "are_known_in", are_known_in)
    for line in (harmless, FORMS["plain"]):
        filter.examine(line)
        filter.on_read_message(line, messages.read(line))
    assert searched == [harmless, FORMS["plain"]]
    filter.examine(late)
    redactor.replace("another's", ["a-new-token-123"])
    # Another message makes it learn them.
    filter.on_message(harmless)
    filter.on_read_message(late, messages.read(late))
    assert ["result" in each for each in arrived.lines] == [True, True, False, True, False]
