"""Secrets of other servers in what a server sends: reported (`"redactResults": "warn"`) or kept back (`"block"`).

Sits between a link and whoever understands its messages, so that nothing passes by: results, errors, notifications,
questions, lists, however they travel. What a server knows itself, from its own settings, is no business of ours. Finds
a value that was passed on by accident, also escaped, percent-encoded or in base64; a server that means to smuggle one
out can always disguise it. Loaded only where the setting is.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from mcp_workbench.engine.config.encodings import in_base64, in_json
from mcp_workbench.engine.jsonrpc import messages
from mcp_workbench.engine.jsonrpc.messages import INTERNAL_ERROR, Envelope, Malformed, error_response

if TYPE_CHECKING:
    from mcp_workbench.engine.config.redact import Redactor
    from mcp_workbench.engine.jsonrpc.framing import Oversized
    from mcp_workbench.engine.transport.link import AnswerReceiver, Link
    from mcp_workbench.errors import DownstreamError

log = logging.getLogger(__name__)

Mode = Literal["warn", "block"]
# Shorter values are ordinary words and numbers, which any result may contain.
MIN_SEARCHED_LENGTH: Final = 8
# Beyond these, the longest are searched for: each costs a search through every message.
MAX_SEARCHED_SECRETS: Final = 200
# Longer messages are not read and written anew to find values that are escaped in an unusual way: it cannot be done in
# pieces, and no other call should wait for it.
MAX_DECODED_BYTES: Final = 1 << 20
# The words of a message that are looked up at once: a quarter of a millisecond.
_WORDS_AT_ONCE: Final = 8192
_WORD_BYTES: Final = 8
# Wherever it begins, a form of this length has one whole word of the message in it.
_MIN_FORM_WITH_WORD: Final = 2 * _WORD_BYTES - 1
# Of short forms: beyond these, one pass leaves out what can be none of them, which takes as long as so many searches.
MAX_SINGLE_SEARCHES: Final = 150
_LETTER: Final = rb"[A-Za-z0-9+/=_.~%-]"
_WORD_FORM: Final = re.compile(_LETTER + b"+")
# A server could repeat itself for ever.
MAX_REPORTS: Final = 100

WITHHELD: Final = (
    "the server's message was withheld, because it contains a secret of another server (`redactResults`); for the "
    "user: the audit and the log name the server"
)


class ForeignSecrets:
    """The secrets that one server must not know, in all forms that are searched for."""

    def __init__(self, redactor: Redactor, own: Iterable[str], owner: Callable[[], object]) -> None:
        """`own`: texts that the server was given. `owner`: whose changing secrets are its own, too."""
        self._redactor = redactor
        self._own = "\0".join(own)
        self._owner = owner
        # Of the redactor's secrets, when they were learnt.
        self.version = -1
        self._plain = _Forms(())
        self._all = _Forms(())

    def is_in(self, line: bytes) -> bool:
        if self.are_outdated:
            self._learn()
        return self.are_known_in(line)

    @property
    def are_outdated(self) -> bool:
        """Whether secrets have been added since they were learnt."""
        return self.version != self._redactor.version

    def are_known_in(self, line: bytes) -> bool:
        """The same for those that were learnt. For any thread: others run in between."""
        if self._all.are_in(line):
            return True
        # Every character of a JSON text can be written in several ways.
        return len(line) <= MAX_DECODED_BYTES and b"\\" in line and self._plain.are_in(_rewritten(line))

    def _learn(self) -> None:
        version = self._redactor.version
        found = self._redactor.known(without=self._owner())
        foreign = [each for each in found if len(each) >= MIN_SEARCHED_LENGTH and each not in self._own]
        foreign = sorted(foreign, key=lambda each: (-len(each), each))[:MAX_SEARCHED_SECRETS]
        # Results often are JSON within the text of a result.
        spelled = (form for each in foreign for form in (in_json(each), in_json(in_json(each))))
        plain = [form.encode(errors="surrogatepass") for form in spelled]
        self._plain = _Forms(plain)
        self._all = _Forms((*plain, *(form for each in foreign for form in _forms(each))))
        self.version = version


class _Forms:
    """Forms of secrets, found in a message by any of them."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        different = list(dict.fromkeys(forms))
        # One pass over the words of a message says that none of these is in it, however many they are.
        self._long = [form for form in different if len(form) >= _MIN_FORM_WITH_WORD]
        self._beginnings = frozenset(
            int.from_bytes(form[place : place + _WORD_BYTES], sys.byteorder)
            for form in self._long
            for place in range(_WORD_BYTES)
        )
        short = [form for form in different if len(form) < _MIN_FORM_WITH_WORD]
        # Keys, base64 and percent-encoding have no other characters, and most of a text is runs that are too short.
        self._words = [form for form in short if _WORD_FORM.fullmatch(form)]
        self._others = [form for form in short if not _WORD_FORM.fullmatch(form)]
        self._long_runs: re.Pattern[bytes] | None = None
        if len(self._words) > MAX_SINGLE_SEARCHES:
            self._long_runs = re.compile(b"%b{%d,}" % (_LETTER, min(map(len, self._words))))

    def are_in(self, line: bytes) -> bool:
        if self._may_be_in(line) and any(form in line for form in self._long):
            return True
        if any(form in line for form in self._others):
            return True
        runs = line if self._long_runs is None else b"\n".join(self._long_runs.findall(line))
        return any(form in runs for form in self._words)

    def _may_be_in(self, line: bytes) -> bool:
        if not self._long:
            return False
        words = memoryview(line)[: len(line) - len(line) % _WORD_BYTES].cast("Q")
        return any(
            not self._beginnings.isdisjoint(words[place : place + _WORDS_AT_ONCE])
            for place in range(0, len(words), _WORDS_AT_ONCE)
        )


def _forms(secret: str) -> Iterator[bytes]:
    data = secret.encode(errors="surrogatepass")
    percent = quote(data, safe="")
    if percent != secret:
        yield percent.encode()
        yield quote(data, safe="/:").encode()
    yield from (form.encode() for form in in_base64(data) if len(form) >= MIN_SEARCHED_LENGTH)


def _rewritten(line: bytes) -> bytes:
    """The message with every character written as plainly as JSON allows; empty if it is none."""
    try:
        return msgspec.json.encode(msgspec.json.decode(line))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return b""


class SecretFilter:
    """Receives what arrives from one server, and passes on what it may."""

    def __init__(
        self, receiver: AnswerReceiver, secrets: ForeignSecrets, mode: Mode, label: str, report: Callable[[str], None]
    ) -> None:
        """`report` writes to the audit what was done, with the method or `answer`."""
        self._receiver = receiver
        self._secrets = secrets
        self._mode = mode
        self._label = label
        self._report = report
        self._reports = 0
        # The large message that was examined, whether it contains one, and of which secrets.
        self._examined: tuple[bytes, bool, int] = (b"", False, -1)
        # Where a question that is withheld is answered.
        self.link: Link | None = None

    def examine(self, line: bytes) -> None:
        """Look through a large message in a thread, before it is received."""
        version = self._secrets.version
        self._examined = (line, self._secrets.are_known_in(line), version)

    def _is_found(self, line: bytes) -> bool:
        examined, is_found, version = self._examined
        if examined is line:
            self._examined = (b"", False, -1)
            if version == self._secrets.version and not self._secrets.are_outdated:
                return is_found
        return self._secrets.is_in(line)

    def on_message(self, line: bytes) -> None:
        if not self._is_found(line):
            self._receiver.on_message(line)
        elif (kept := self._replaced(line, _read(line))) is not None:
            self._receiver.on_message(kept)

    def on_related_message(self, line: bytes, about: bytes) -> None:
        if not self._is_found(line):
            self._receiver.on_related_message(line, about)
        elif (kept := self._replaced(line, _read(line))) is not None:
            self._receiver.on_related_message(kept, about)

    def on_answer(self, line: bytes, message: Envelope) -> None:
        if not self._is_found(line):
            self._receiver.on_answer(line, message)
        elif (kept := self._replaced(line, message)) is not None:
            self._receiver.on_answer(kept, message if kept is line else messages.read(kept))

    def on_read_message(self, line: bytes, message: Envelope | Malformed, about: bytes | None = None) -> None:
        if not self._is_found(line):
            self._receiver.on_read_message(line, message, about)
        elif (kept := self._replaced(line, message)) is not None:
            self._receiver.on_read_message(kept, message if kept is line else messages.read(kept), about)

    def on_oversized(self, remains: Oversized) -> None:
        self._receiver.on_oversized(remains)

    def on_request_failed(self, id: bytes, error: DownstreamError) -> None:
        self._receiver.on_request_failed(id, error)

    def on_closed(self, reason: str) -> None:
        self._receiver.on_closed(reason)

    def _replaced(self, line: bytes, message: Envelope | Malformed) -> bytes | None:
        """What is passed on of a message with a foreign secret; None: nothing."""
        is_answer = isinstance(message, Envelope) and message.method is UNSET
        method = str(message.method) if isinstance(message, Envelope) and message.method is not UNSET else "answer"
        self._say(method)
        if self._mode == "warn":
            return line
        id = message.id if isinstance(message, Envelope) else UNSET
        if id is UNSET:
            return None
        withheld = error_response(bytes(id), INTERNAL_ERROR, WITHHELD)
        if is_answer:
            return withheld
        if self.link is not None:
            self.link.send(withheld)
        return None

    def _say(self, method: str) -> None:
        self._reports += 1
        if self._reports > MAX_REPORTS:
            return
        what = "withheld" if self._mode == "block" else "passed on"
        log.warning("[%s] a message (%s) contains a secret of another server; it was %s", self._label, method, what)
        self._report(method)


def _read(line: bytes) -> Envelope | Malformed:
    try:
        return messages.read(line)
    except Malformed as error:
        return error
