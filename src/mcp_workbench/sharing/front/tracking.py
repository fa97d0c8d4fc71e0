"""Tracks requests in progress by the bytes that pass: those have to fail when the workbench dies.

Owns the two sets of ids: unanswered requests of the client, and questions of servers that the client has not answered.
Examines each line as little as possible, and decodes only what it cannot tell at a glance. Knows nothing about MCP
except the two notifications that end a request.
"""

from __future__ import annotations

# `typing` takes longer to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# How clients write the id first, and how they write it last. Ours always comes first, without spaces.
_HEADS: Final = (b'{"jsonrpc":"2.0","id":', b'{"jsonrpc": "2.0", "id": ')
_OUR_HEAD: Final = _HEADS[0]
_OUR_HEAD_LENGTH: Final = len(_OUR_HEAD)
_REQUESTS: Final = (b'{"method":', b'{"jsonrpc":"2.0","method":', b'{"method": ', b'{"jsonrpc": "2.0", "method": ')
_ANSWERS: Final = (b'{"result":', b'{"error":', b'{"jsonrpc":"2.0","result":', b'{"jsonrpc":"2.0","error":')
_CANCELLED_METHOD: Final = b'"notifications/cancelled"'
# An unfinished line is kept whole up to this length; in longer ones the id is searched for at both ends.
MAX_DECODED_LINE_BYTES: Final = 1024 * 1024
_KEPT_OF_LONGER: Final = 4096
# Marks where part of a line was left out; no JSON text contains it.
_LEFT_OUT: Final = b"\x00"
# A longer piece is examined at once, rather than kept for later.
MAX_UNEXAMINED_BYTES: Final = 4096

REQUEST: Final = "request"
ANSWER: Final = "answer"


class Tracking:
    """What is in progress between a client and the workbench."""

    def __init__(self) -> None:
        # Unanswered requests of the client, with how often their id is in use.
        self.requests: dict[bytes, int] = {}
        # Long-lasting requests, which the workbench can resume by itself.
        self.lasting: set[bytes] = set()
        # Questions of servers to the client.
        self.questions: set[bytes] = set()
        self._unfinished_down = b""
        self._unfinished_up = b""
        # Data that has passed but not been examined, in order: whether the client wrote it, and the data.
        self.passed: list[tuple[bool, bytes]] = []

    def sent(self, data: bytes) -> None:
        """Note data from the client that was sent to the workbench."""
        self.passed.append((True, data))
        if len(data) > MAX_UNEXAMINED_BYTES:
            self.catch_up()

    def received(self, data: bytes) -> None:
        """Note data from the workbench that was sent to the client."""
        self.passed.append((False, data))
        if len(data) > MAX_UNEXAMINED_BYTES:
            self.catch_up()

    @property
    def is_awaited(self) -> bool:
        """Whether the client waits for an answer, according to the data examined so far."""
        return len(self.requests) > len(self.lasting)

    def catch_up(self) -> None:
        """Examine all data that has passed."""
        passed = self.passed.copy()
        self.passed.clear()
        for is_sent, data in passed:
            if is_sent:
                self._read_sent(data)
            else:
                self._read_received(data)

    def _read_sent(self, data: bytes) -> None:
        if self._unfinished_down:
            data, self._unfinished_down = self._unfinished_down + data, b""
        *lines, unfinished = data.split(b"\n")
        if unfinished:
            self.add_to_unfinished(unfinished)
        requests = self.requests
        for line in lines:
            # Nearly all lines of most clients: the id first, and a number.
            if line.startswith(_OUR_HEAD):
                end = line.find(b",", _OUR_HEAD_LENGTH)
                id = line[_OUR_HEAD_LENGTH:end]
                if id.isdigit() and line.startswith(b',"method"', end):
                    requests[id] = requests.get(id, 0) + 1
                    continue
            self._from_client(line)

    def _read_received(self, data: bytes) -> None:
        if self._unfinished_up:
            # For messages that we write, the head is enough.
            end = data.find(b"\n")
            if end < 0:
                return
            head, self._unfinished_up = self._unfinished_up, b""
            self._from_workbench(head)
            data = data[end + 1 :]
        *lines, unfinished = data.split(b"\n")
        self._unfinished_up = unfinished[:_KEPT_OF_LONGER]
        requests = self.requests
        for line in lines:
            if line.startswith(_OUR_HEAD):
                end = line.find(b",", _OUR_HEAD_LENGTH)
                id = line[_OUR_HEAD_LENGTH:end]
                if requests.get(id) == 1 and line.startswith(b',"result"', end):
                    del requests[id]
                    if id in self.lasting:
                        self.lasting.discard(id)
                    continue
            self._from_workbench(line)

    def add_to_unfinished(self, data: bytes) -> None:
        """Add to a line whose beginning was sent to the workbench, and whose end has not arrived yet."""
        unfinished = self._unfinished_down + data
        self._unfinished_down = unfinished if len(unfinished) <= MAX_DECODED_LINE_BYTES else _ends_of(unfinished)

    def take_unfinished(self) -> list[bytes]:
        """Return the requests in that line, which is complete now and will not be sent."""
        line, self._unfinished_down = self._unfinished_down, b""
        return [id for kind, id in messages_in(line) if kind is REQUEST]

    def clear(self) -> tuple[list[bytes], list[bytes]]:
        """Forget the connection. Returns the requests that will get no answer, and the questions whose answers are no
        longer awaited. Long-lasting requests stay, and so does an unfinished line of the client."""
        self.catch_up()
        failed = [id for id in self.requests if id not in self.lasting]
        asked = list(self.questions)
        self.requests = {id: count for id, count in self.requests.items() if id in self.lasting}
        self.questions.clear()
        self._unfinished_up = b""
        return failed, asked

    def _from_client(self, line: bytes) -> None:
        for kind, id in messages_in(line):
            if kind is REQUEST:
                self.requests[id] = self.requests.get(id, 0) + 1
            elif kind is ANSWER:
                self.questions.discard(id)
            else:
                self._answered(id)

    def _from_workbench(self, line: bytes) -> None:
        if not line.startswith(_OUR_HEAD):
            if _CANCELLED_METHOD in line[:80]:
                self.questions.discard(_requested(line))
            return
        id, rest = _id_at(line, _OUR_HEAD_LENGTH)
        if line.startswith(b',"method"', rest):
            self.questions.add(id)
        else:
            self._answered(id)

    def _answered(self, id: bytes) -> None:
        count = self.requests.pop(id, 0)
        if count > 1:
            self.requests[id] = count - 1
        else:
            self.lasting.discard(id)


def messages_in(line: bytes) -> list[tuple[str, bytes]]:
    """Return what a line of the client is: a request or an answer with its id, or the id of a cancelled request."""
    if b'"id"' not in line:
        if _CANCELLED_METHOD in line:
            return [("cancelled", _requested(line))]
        return []
    for head in _HEADS:
        if line.startswith(head):
            id, rest = _id_at(line, len(head))
            following = line[rest : rest + 12].lstrip(b", ")
            if following.startswith(b'"method"'):
                return [(REQUEST, id)]
            if following.startswith((b'"result"', b'"error"')):
                return [(ANSWER, id)]
            return _decoded(line)
    kind = REQUEST if line.startswith(_REQUESTS) else ANSWER if line.startswith(_ANSWERS) else None
    if kind is not None:
        found = _last_id(line)
        if found:
            return [(kind, found)]
    return _decoded(line)


def _id_at(line: bytes, start: int) -> tuple[bytes, int]:
    """Return the id that begins here, as written, and where it ends."""
    if line[start : start + 1] == b'"':
        end = start + 1
        while True:
            end = line.find(b'"', end)
            if end < 0:
                return b"", len(line)
            # A quote is escaped if an odd number of backslashes precedes it.
            before = line[start:end]
            if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
                return line[start : end + 1], end + 1
            end += 1
    ends = [end for end in (line.find(b",", start), line.find(b"}", start)) if end >= 0]
    end = min(ends, default=len(line))
    return line[start:end].rstrip(), end


def _last_id(line: bytes) -> bytes:
    """Return the id of a message that ends with it; empty if it does not.

    In valid JSON `,"id":` cannot occur inside a string, where its quotes would be escaped, and what the last brace of a
    line closes is a member of the message itself.
    """
    line = line.rstrip()
    for tail in (b',"id":', b', "id": '):
        at = line.rfind(tail, -_KEPT_OF_LONGER)
        if at >= 0:
            id, end = _id_at(line, at + len(tail))
            if line[end:].strip() == b"}" and id[:1] not in b"{[":
                return id
    return b""


def _requested(line: bytes) -> bytes:
    """Return the id that a cancellation names."""
    for name in (b'"requestId":', b'"requestId": '):
        at = line.find(name)
        if at >= 0 and line[at + len(name) : at + len(name) + 1] != b" ":
            return _id_at(line, at + len(name))[0]
    return b""


def _decoded(line: bytes) -> list[tuple[str, bytes]]:
    """Do the same for a line in another format. Rare: only such clients pay for the import."""
    if _LEFT_OUT in line:
        return _near_front(line) or _near_end(line)
    import json

    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, bytes]] = []
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict):
            continue
        id = message.get("id")
        if isinstance(id, str | int | float):
            # As written, because an answer carries it back byte for byte.
            written = _as_written(line, id)
            if written:
                found.append((REQUEST if "method" in message else ANSWER, written))
        elif message.get("method") == "notifications/cancelled":
            found.append(("cancelled", _requested(line)))
    return found


def _near_front(line: bytes) -> list[tuple[str, bytes]]:
    """Do the same for a long line with the id before its largest member, as in Java's SDK."""
    at, depth = 0, 0
    while at < _KEPT_OF_LONGER:
        byte = line[at : at + 1]
        if byte != b'"':
            depth += (byte in b"{[") - (byte in b"}]")
            at += 1
            continue
        text, end = _id_at(line, at)
        value = line[end : end + 200].lstrip()
        if depth == 1 and text == b'"id"' and value.startswith(b":"):
            id = _id_at(value[1:].lstrip(), 0)[0]
            kind = REQUEST if b'"method"' in line[:_KEPT_OF_LONGER] else ANSWER
            return [(kind, id)] if id and id[:1] not in b"{[" else []
        at = end
    return []


def _near_end(line: bytes) -> list[tuple[str, bytes]]:
    """Do the same for a long line with the id after its largest member, followed by short ones.

    Quotes inside a string are escaped, and what a single brace closes at the end is a member of the message itself.
    """
    end = len(line)
    while True:
        end = line.rfind(b'"id"', line.index(_LEFT_OUT), end)
        if end < 0:
            return []
        value = line[end + 4 :].lstrip()
        if line[:end].rstrip()[-1:] not in (b",", b"{") or value[:1] != b":":
            continue
        value = value[1:].lstrip()
        id, at = _id_at(value, 0)
        rest = value[at:].strip()
        while rest[:1] == b",":
            # Another member whose value is a string: the method, the version.
            name, at = _id_at(rest[1:].lstrip(), 0)
            rest = rest[1:].lstrip()[at:].lstrip()
            member = rest[1:].lstrip()
            if name[:1] != b'"' or rest[:1] != b":" or member[:1] != b'"':
                break
            rest = member[_id_at(member, 0)[1] :].lstrip()
        if rest == b"}" and id and id[:1] not in b"{[":
            return [(REQUEST if b'"method"' in line else ANSWER, id)]


def _as_written(line: bytes, id: str | float) -> bytes:
    """Return the bytes of this id; empty if they are not found."""
    import json

    # A fraction has many forms, and a short one may be the beginning of the one that was used.
    for form in () if isinstance(id, float) else (json.dumps(id), json.dumps(id, ensure_ascii=False)):
        written = form.encode("utf-8", "surrogatepass")
        if written in line:
            return written
    for before in line.split(b'"id"')[1:]:
        value = before.lstrip()[1:].lstrip()
        written = _id_at(value, 0)[0]
        try:
            if json.loads(written) == id:
                return written
        except ValueError:
            continue
    return b""


def _ends_of(line: bytes) -> bytes:
    return line[:_KEPT_OF_LONGER] + _LEFT_OUT + line[-_KEPT_OF_LONGER:]
