"""The process in which a program runs: the interpreter on one side, JSON lines to the workbench on the other.

Started by `program_pool` in a sandbox. Stdin and stdout carry one JSON object a line: a program comes in, what it
prints goes out, each of its calls and pauses goes out with its line and its value comes in, and the end goes out.
Nothing of a program is left for the next: each gets an interpreter process of its own.
"""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any, BinaryIO, Final, NoReturn

# One call is one suspension of the interpreter, and so is a name that it looks up.
_SUSPENSIONS_PER_CALL: Final = 4
_OTHER_SUSPENSIONS: Final = 2000
_MAX_VALUE_DEPTH: Final = 200
# Of one answer, or of the arguments of one call: as many as of a result that is decoded as a whole.
_MAX_VALUES: Final = 1_000_000
_PAUSES: Final = frozenset({"system.sleep", "system.async_sleep"})
# Python writes no number that is much longer.
_MAX_INTEGER_BITS: Final = 8192


class FailedCall(RuntimeError):
    """A call has failed; programs see a `RuntimeError`."""


class PassedLimit(Exception):
    """A program has passed a limit, which the workbench knows: it ends the program."""


class Channel:
    """The lines to and from the workbench."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        # Of the program, where it has stopped to ask something.
        self.line: int | None = None
        # How many bytes one line may have.
        self.limit = sys.maxsize

    def read(self) -> dict[str, Any]:
        line = self._incoming.readline()
        if not line:
            # The workbench has ended, or does not need this process any more.
            os._exit(0)
        read: dict[str, Any] = json.loads(line)
        return read

    def write(self, message: dict[str, Any]) -> None:
        """Raises `PassedLimit`, and ValueError for what JSON does not have."""
        try:
            line = json.dumps(plain(message, Room(self.limit)))
            if len(line) > self.limit:
                raise PassedLimit
        except PassedLimit:
            where = {name: value for name, value in message.items() if name == "line"}
            self._write_line(json.dumps({"limit": "value", **where}))
            raise
        self._write_line(line)

    def tell_print_limit(self) -> None:
        """The interpreter heeds an exception only at the next call or the end, so the workbench ends the program."""
        self._write_line(json.dumps({"limit": "print"}))

    def _write_line(self, line: str) -> None:
        self._outgoing.write(line.encode() + b"\n")
        self._outgoing.flush()

    def ask(self, message: dict[str, Any]) -> Any:
        """Have the workbench do something, and return the value. Raises what a program is to see."""
        self.write({**message, "line": self.line})
        answer = self.read()
        if "error" not in answer:
            return answer["value"]
        raise (PermissionError if answer.get("denied") else FailedCall)(answer["error"])


class Printed:
    """Passes on what a program prints, up to a limit."""

    def __init__(self, limit: int, channel: Channel) -> None:
        self._left = limit
        self._channel = channel

    def __call__(self, stream: str, text: str) -> None:
        self._left -= len(text.encode(errors="replace"))
        if self._left < 0:
            self._channel.tell_print_limit()
            raise PassedLimit
        if text:
            self._channel.write({"printed": text})


class Room:
    """What is left for a value. A part that is in several places takes memory once in the interpreter, and is written
    in each of them: of sixty lists with the next one twice there is no end."""

    def __init__(self, most: int) -> None:
        self._bytes = most
        self._values = _MAX_VALUES

    def take(self, size: int) -> None:
        self._bytes -= size
        self._values -= 1
        if self._bytes < 0 or self._values < 0:
            raise PassedLimit


def plain(value: Any, room: Room, depth: int = 0) -> Any:
    """A value of a program as JSON has it. Raises `PassedLimit`, and ValueError for what has no place there."""
    if depth > _MAX_VALUE_DEPTH:
        raise ValueError("the value is nested too deeply")
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise ValueError(f"an integer of {value.bit_length():,} bits is too large to be an answer or an argument")
    room.take(len(value) if isinstance(value, str | bytes) else 1)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {_key(key, room, depth): plain(each, room, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, room, depth + 1) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(each, room, depth + 1) for each in value), key=repr)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "attributes"):
        # An instance of a class of the program.
        return plain(value.attributes, room, depth + 1)
    return str(value)


def _key(key: Any, room: Room, depth: int) -> str:
    written = plain(key, room, depth + 1)
    return written if isinstance(written, str) else str(written)


def run(pool: Any, channel: Channel, wanted: dict[str, Any]) -> None:
    """Run one program, and tell the workbench its end."""
    import pydantic_monty as monty

    channel.line, channel.limit = None, wanted["value"]
    printed = Printed(wanted["printed"], channel)

    def call(tool: Any, arguments: Any = None, /, **more: Any) -> Any:
        if arguments is not None and not isinstance(arguments, dict):
            raise TypeError("the second argument of call is a dict of arguments; or give them by name")
        return channel.ask({"call": tool, "arguments": {**(arguments or {}), **more}})

    def find(need: Any) -> Any:
        if not isinstance(need, str):
            raise TypeError("find takes a text that says what is needed")
        return channel.ask({"find": need})

    # As a program knows them, for complaints about their arguments.
    call.__qualname__, find.__qualname__ = "call", "find"

    suspensions = wanted["calls"] * _SUSPENSIONS_PER_CALL + _OTHER_SUSPENSIONS
    limits = {
        "max_feed_duration_secs": wanted["cpu"],
        "max_memory": wanted["memory"],
        "max_suspensions": suspensions,
    }
    source = wanted["code"].encode()
    try:
        with pool.checkout(script_name="program.py", limits=limits) as session:
            step = session.feed_start(
                wanted["code"], external_lookup={"call": call, "find": find}, print_callback=printed
            )
            while not isinstance(step, monty.MontyComplete):
                channel.line = _line(step.position, source)
                if isinstance(step, monty.FunctionSnapshot) and step.function_name in _PAUSES:
                    # The workbench waits, which knows the time of the program.
                    channel.ask({"sleep": step.args[0]})
                    step = step.resume({"return_value": None})
                else:
                    step = step.resume_auto()
        channel.write({"end": {"value": step.output}})
        return
    except monty.MontyCrashedError as error:
        told = {"kind": "time" if error.timed_out else "crash", "message": str(error)}
    except monty.MontyError as error:
        told = _described(error, suspensions)
    except (ValueError, TypeError, RuntimeError) as error:
        # Its value cannot leave the interpreter.
        told = {"kind": "value", "message": str(error)}
    except PassedLimit:
        told = {"kind": "limit", "message": "the workbench has ended the program"}
    told["message"] = told["message"][: wanted["printed"]]
    channel.write({"end": {"error": told}})


def _line(position: Any, source: bytes) -> int | None:
    """The line of the program that this is in; None inside of `eval`."""
    is_own = position.filename != "<string>" and position.end > 0
    return source.count(b"\n", 0, position.start) + 1 if is_own else None


def _described(error: Any, suspensions: int) -> dict[str, Any]:
    text = str(error)
    frames = error.traceback() if hasattr(error, "traceback") else []
    # Inside of `eval` there is no line of the program.
    own = [frame for frame in frames if frame.filename != "<string>"]
    described: dict[str, Any] = {"kind": "error", "message": text}
    if type(error).__name__ == "MontySyntaxError":
        described["message"] = f"SyntaxError: {text}"
    if text.startswith("TimeoutError: feed time limit"):
        described["kind"] = "time"
    elif text.startswith("MemoryError: ") and "memory limit" in text:
        described["kind"] = "memory"
    elif text.startswith("RuntimeError: suspension limit"):
        described["message"] = (
            f"the program has called, slept and asked for names {suspensions:,} times, the most allowed"
        )
    if own:
        described["line"] = own[-1].line
    return described


def main() -> NoReturn:
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    # Whatever else writes to stdout must not get between the lines.
    os.dup2(2, 1)
    import pydantic_monty as monty

    with monty.Monty(
        min_processes=1, max_processes=1, max_checkouts_per_worker=1, binary_path=sys.argv[1] or None
    ) as pool:
        channel.write({"ready": True})
        while True:
            run(pool, channel, channel.read())


if __name__ == "__main__":
    main()
