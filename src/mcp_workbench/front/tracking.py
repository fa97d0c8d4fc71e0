"""Which requests are under way, judging by the bytes that pass: what has to be failed when the workbench dies.

Owns the two sets of ids: requests of the client without an answer, and questions of servers that the client has not
answered. Looks at each line as little as it can; what it cannot tell at a glance is decoded. Refuses to know MCP, but
for the two notifications that end a request.
"""

from __future__ import annotations

# `typing` takes longer to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# How a client writes the id first, and how it writes it last. Ours always comes first, without spaces.
_HEADS: Final = (b'{"jsonrpc":"2.0","id":', b'{"jsonrpc": "2.0", "id": ')
_OUR_HEAD: Final = _HEADS[0]
_OUR_HEAD_LENGTH: Final = len(_OUR_HEAD)
_REQUESTS: Final = (b'{"method":', b'{"jsonrpc":"2.0","method":', b'{"method": ', b'{"jsonrpc": "2.0", "method": ')
_ANSWERS: Final = (b'{"result":', b'{"error":', b'{"jsonrpc":"2.0","result":', b'{"jsonrpc":"2.0","error":')
_CANCELLED: Final = b'"notifications/cancelled"'
# An unfinished line is kept whole up to this length; of longer ones the id is looked for at both ends.
LONGEST_DECODED: Final = 1024 * 1024
_KEPT_OF_LONGER: Final = 4096
# Stands where something was left out of a line; no JSON text contains it.
_LEFT_OUT: Final = b"\x00"
# A longer piece is looked at when it has passed, rather than kept for later.
LONGEST_PASSED: Final = 4096

REQUEST: Final = "request"
ANSWER: Final = "answer"


class Tracking:
    """What is under way between one client and the workbench."""

    def __init__(self) -> None:
        # Requests of the client without an answer, by how often their id is in use.
        self.requests: dict[bytes, int] = {}
        # Requests that go on for as long as the client wants, and that the workbench can begin again by itself.
        self.lasting: set[bytes] = set()
        # Questions of servers to the client.
        self.questions: set[bytes] = set()
        self._unfinished_down = b""
        self._unfinished_up = b""
        # What has passed and has not been looked at, in order: whether the client wrote it, and what it was.
        self.passed: list[tuple[bool, bytes]] = []

    def sent(self, data: bytes) -> None:
        """The workbench was sent this, which the client wrote."""
        self.passed.append((True, data))
        if len(data) > LONGEST_PASSED:
            self.catch_up()

    def received(self, data: bytes) -> None:
        """The client was sent this, which the workbench wrote."""
        self.passed.append((False, data))
        if len(data) > LONGEST_PASSED:
            self.catch_up()

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for an answer, as far as what has passed has been looked at."""
        return len(self.requests) > len(self.lasting)

    def catch_up(self) -> None:
        """Look at all that has passed."""
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
            # Nearly all of them, from most clients: a number as the id, and that first.
            if line.startswith(_OUR_HEAD):
                end = line.find(b",", _OUR_HEAD_LENGTH)
                id = line[_OUR_HEAD_LENGTH:end]
                if id.isdigit() and line.startswith(b',"method"', end):
                    requests[id] = requests.get(id, 0) + 1
                    continue
            self._from_client(line)

    def _read_received(self, data: bytes) -> None:
        if self._unfinished_up:
            # Of what we write the head tells everything.
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
        """More of a line whose beginning the workbench was sent, and whose end has not come yet."""
        unfinished = self._unfinished_down + data
        self._unfinished_down = unfinished if len(unfinished) <= LONGEST_DECODED else _ends_of(unfinished)

    def take_unfinished(self) -> list[bytes]:
        """The line whose beginning the workbench was sent is whole, and is not sent: the requests that it held."""
        line, self._unfinished_down = self._unfinished_down, b""
        return [id for kind, id in messages_in(line) if kind is REQUEST]

    def clear(self) -> tuple[list[bytes], list[bytes]]:
        """The connection is gone: the requests that get no answer any more, and the questions that nobody waits for.
        Requests that last stay, and so does a line of the client's that is not whole."""
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
            if _CANCELLED in line[:80]:
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
    """What a line of the client is: a request or an answer with its id, or the id of a request that is cancelled."""
    if b'"id"' not in line:
        if _CANCELLED in line:
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
    """The id that begins here, as it is written, and where it ends."""
    if line[start : start + 1] == b'"':
        end = start + 1
        while True:
            end = line.find(b'"', end)
            if end < 0:
                return b"", len(line)
            # A quote is escaped when an odd number of backslashes stands before it.
            before = line[start:end]
            if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
                return line[start : end + 1], end + 1
            end += 1
    ends = [end for end in (line.find(b",", start), line.find(b"}", start)) if end >= 0]
    end = min(ends, default=len(line))
    return line[start:end].rstrip(), end


def _last_id(line: bytes) -> bytes:
    """The id of a message that ends with it; empty where it does not.

    In valid JSON `,"id":` cannot stand inside of a string, where its quotes would be escaped, and what is closed by the
    last brace of a line is a member of the message itself.
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
    """The id that a cancellation names."""
    for name in (b'"requestId":', b'"requestId": '):
        at = line.find(name)
        if at >= 0 and line[at + len(name) : at + len(name) + 1] != b" ":
            return _id_at(line, at + len(name))[0]
    return b""


def _decoded(line: bytes) -> list[tuple[str, bytes]]:
    """The same for a line that is written in another way. Rare: such clients alone pay for the import."""
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
            # As it was written: an answer carries it back byte for byte.
            written = _as_written(line, id)
            if written:
                found.append((REQUEST if "method" in message else ANSWER, written))
        elif message.get("method") == "notifications/cancelled":
            found.append(("cancelled", _requested(line)))
    return found


def _near_front(line: bytes) -> list[tuple[str, bytes]]:
    """The same for a long line that names its id before its largest member, as Java's SDK does."""
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
    """The same for a long line that names its id after its largest member, with short ones behind it.

    Quotes inside of a string are escaped, and what a single brace closes at the end is a member of the message itself.
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
            said = rest[1:].lstrip()
            if name[:1] != b'"' or rest[:1] != b":" or said[:1] != b'"':
                break
            rest = said[_id_at(said, 0)[1] :].lstrip()
        if rest == b"}" and id and id[:1] not in b"{[":
            return [(REQUEST if b'"method"' in line else ANSWER, id)]


def _as_written(line: bytes, id: str | float) -> bytes:
    """The bytes of this id; empty where they are not found."""
    import json

    # A fraction has many forms, and a short one may be the beginning of the one that is used.
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
