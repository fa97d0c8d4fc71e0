"""`mcp-workbench call`: use a tool from a shell. stdout is what the tool answered, and nothing else."""

from __future__ import annotations

import contextlib
import mimetypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Raw
from msgspec.json import decode

from mcp_workbench.cli.arguments import read_arguments, read_json, unexpected
from mcp_workbench.cli.engine import Engine, LogMessage, Progress
from mcp_workbench.cli.error_output import FAILED, complain, remark
from mcp_workbench.cli.flags import Command, Flag, Parsed, UsageError
from mcp_workbench.cli.result_content import Binary, ResultContent, asks_the_user
from mcp_workbench.cli.screen import stderr, stdout
from mcp_workbench.cli.settings import CONFIG, DEBUG, NO_CACHE, PRIVATE, configuration, log_for
from mcp_workbench.cli.shared_engine import engine_for
from mcp_workbench.cli.tool_schema import arguments_schema
from mcp_workbench.config.redact import Redactor
from mcp_workbench.economy.signature import signature
from mcp_workbench.errors import WorkbenchError
from mcp_workbench.jsonrpc.messages import ErrorObject
from mcp_workbench.jsonrpc.pending import RemoteError
from mcp_workbench.printable import visible
from mcp_workbench.protocol.constants import MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED

ARGUMENTS = Flag("json", "OBJECT", "all arguments as one JSON object; - reads it from stdin")
RAW = Flag("raw", None, "print the whole result as JSON")
OUTPUT = Flag("output", "FILE", "save image, audio or other data to this file, or the text if there is none")

ABOUT = """
Calls a tool and prints the text of its result. The server is started for the call and stopped afterwards; where a
shared workbench is running, its server is used instead, and stays.

Arguments are key=value; the tool's input schema decides whether a value is text, a number, a boolean or JSON. key:=json
passes a value as JSON regardless of the schema. Repeat a key to pass a list.

    mcp-workbench call desk/clock/now zone=Europe/Vienna
    mcp-workbench call desk clock now zone=Europe/Vienna
    mcp-workbench call now zone=Europe/Vienna
    mcp-workbench call desk notes add_note title=Train text='leaves at nine' tags=travel tags=today
    mcp-workbench call desk notes add_note --json '{"title": "Train", "text": "leaves at nine"}'

The tool's name alone is enough if only one known tool has it.

Tools cannot ask the user questions (elicitation) or use the client's model (sampling) here.

Exit code: 0, 1 if the tool or its server failed, 2 if there is no such tool or the arguments are invalid.
"""

_CLIENTS_ONLY: Final = (
    "the tool asks its client something while it runs (elicitation, sampling or roots), which a command line cannot "
    "answer; use it from an MCP client that can"
)
# How `use_tool` begins what it says of arguments that it did not pass on.
_NOT_CALLED: Final = "the arguments are invalid, so it was not called"
_LOUD_LEVELS: Final = ("warning", "error", "critical", "alert", "emergency")


def run(parsed: Parsed) -> int:
    """Call a tool; the exit status."""
    config = configuration(parsed)
    redactor = log_for(parsed, config)
    engine = engine_for(parsed, config, use_cache=not parsed.has("no-cache"), redactor=redactor, is_audited=True)
    toolbox, server, tool, words = _named(parsed.positionals, engine)
    given = _given_json(parsed, words)
    engine.server(toolbox, server)
    where = f"{toolbox}/{server}/{tool}"
    usage: list[str] = []

    async def work() -> Raw:
        schema = arguments_schema(decode(await engine.tool(toolbox, server, tool)))
        usage.append(signature(tool, schema).text)
        arguments = given
        if arguments is None:
            try:
                arguments = read_arguments(words, schema)
            except UsageError as error:
                raise UsageError(str(error), hint="; ".join(filter(None, (*usage, error.hint)))) from None
            for slip in unexpected(words, schema):
                remark("warning", f"{slip} It is sent anyway.")
        client = engine.client()
        client.on_log = _report
        with _progress_of(where) as client.on_progress:
            await client.initialize()
            return await client.use_tool(toolbox, server, tool, arguments)

    try:
        reading = ResultContent(engine.run(work))
    except RemoteError as error:
        return _say_error(where, error.error, redactor)
    except WorkbenchError as error:
        message = redactor.text(f"[{toolbox}/{server}] {error.message}")
        return complain(message, error.hint and redactor.text(error.hint), status=FAILED)
    if reading.is_error and not parsed.has("raw") and (problems := _not_called(reading, where)):
        return complain(redactor.text(problems), *usage)
    return _show(parsed, reading, where, redactor)


COMMAND = Command(
    "call [OPTIONS] TOOLBOX/SERVER/TOOL [key=value ...]",
    ABOUT,
    (CONFIG, ARGUMENTS, RAW, OUTPUT, NO_CACHE, PRIVATE, DEBUG),
    run,
    names=["TOOLBOX/SERVER/TOOL"],
)


def _named(positionals: list[str], engine: Engine) -> tuple[str, str, str, list[str]]:
    """The tool that is meant, in three words, as one path or by its name alone, and the words after it."""
    first, *rest = positionals
    if first not in engine.toolboxes:
        if "/" in first and not (len(rest) > 1 and rest[0] and "=" not in rest[0] + rest[1]):
            return *engine.path(first), rest
        only = engine.toolbox_of(first)
        if only is not None and rest and "=" not in rest[0]:
            return only, first, rest[0], rest[1:]
        if only is None and not (rest and "=" not in rest[0]):
            meant = engine.bare(first)
            if meant is None:
                raise engine.refuse_bare(first)
            return *meant, rest
    _refuse_too_few(positionals)
    toolbox, server, tool, *words = positionals
    return toolbox, server, tool, words


def _not_called(reading: ResultContent, where: str) -> str | None:
    """What is wrong with the arguments, where the workbench found that out before the call; None where it did not."""
    text = "\n".join(reading.texts)
    if not text.startswith(f"[{where}] {_NOT_CALLED}"):
        return None
    # For a shell the signature in the hint says it shorter.
    return text.partition("\nIts schema: ")[0]


def _refuse_too_few(positionals: list[str]) -> None:
    missing = ("TOOLBOX", "SERVER", "TOOL")[len(positionals) :]
    if missing:
        raise UsageError(f"{' and '.join(missing)} missing", hint=f"mcp-workbench {COMMAND.usage}")


def _given_json(parsed: Parsed, words: list[str]) -> bytes | None:
    text = parsed.value("json")
    if text is None:
        return None
    if words:
        raise UsageError(f"`{words[0]}` and --json were both given", hint="use one or the other")
    if text == "-":
        text = sys.stdin.buffer.read().decode(errors="surrogateescape")
    return read_json(text)


def _show(parsed: Parsed, reading: ResultContent, where: str, redactor: Redactor) -> int:
    if parsed.has("raw"):
        _print_raw(reading.raw)
        return FAILED if reading.is_error or reading.questions else 0
    if reading.questions:
        return complain(f"[{where}] asks: {'; '.join(reading.questions)}", _CLIENTS_ONLY, status=FAILED)
    if reading.is_error:
        # It may quote the server's stderr; data on stdout is never touched.
        said = redactor.text("\n".join(reading.texts))
        return _say_failed(where, said or "the tool failed without giving a reason")
    target = parsed.value("output")
    if target is not None:
        _save(Path(target), reading)
    screen = stdout()
    for text in reading.texts if target is None or reading.binaries else []:
        screen.text(text)
    screen.flush()
    for binary in reading.binaries if target is None else []:
        remark("note", f"{binary}; --output FILE saves it")
    for said in reading.remarks:
        remark("note", said)
    if not (reading.texts or reading.binaries or reading.remarks):
        remark("note", "the tool returned no content")
    return 0


def _print_raw(raw: bytes) -> None:
    from msgspec import MsgspecError
    from msgspec.json import format

    # In a pipe the bytes of the server; a terminal gets them laid out.
    with contextlib.suppress(MsgspecError):
        raw = format(raw, indent=2) if sys.stdout.isatty() else raw
    stdout().text(raw.decode(errors="backslashreplace"))


def _say_failed(where: str, text: str) -> int:
    # What the workbench itself says carries the name already, and its own hint.
    message, _, hint = text.partition("\nhint: ") if text.startswith(f"[{where}]") else (f"[{where}] {text}", "", "")
    return complain(message, hint or (_CLIENTS_ONLY if asks_the_user(text) else None), status=FAILED)


def _say_error(where: str, error: ErrorObject, redactor: Redactor) -> int:
    text = f"[{where}] {error.message} (code {error.code})"
    if isinstance(error.data, Raw):
        text += f"\ndata: {bytes(error.data).decode(errors='replace')}"
    hint = _CLIENTS_ONLY if error.code in (URL_ELICITATION_REQUIRED, MISSING_CLIENT_CAPABILITY) else None
    text = redactor.text(text)
    return complain(text, hint, status=FAILED)


def _save(target: Path, reading: ResultContent) -> None:
    if not reading.binaries:
        _write(target, "\n".join(reading.texts).encode(errors="backslashreplace"), "text")
    for number, binary in enumerate(reading.binaries, 1):
        # The first under the name that was asked for, further ones beside it: chart.png, chart-2.wav.
        suffix = mimetypes.guess_extension(binary.type) or target.suffix
        path = target if number == 1 else target.with_name(f"{target.stem}-{number}{suffix}")
        _write(path, binary.data, binary)


def _write(path: Path, data: bytes, what: Binary | str) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror}") from None
    remark("note", f"saved {what} as {path}")


def _report(message: LogMessage) -> None:
    if message.level in _LOUD_LEVELS:
        said = message.data if isinstance(message.data, str) else repr(message.data)
        remark("warning", f"the server says: {said}")


@contextlib.contextmanager
def _progress_of(what: str) -> Iterator[Callable[[Progress], None]]:
    """On a terminal a bar that moves with the server's progress; elsewhere nothing."""
    screen = stderr()
    if not screen.is_terminal:
        yield lambda progress: None
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Bar(*columns, console=screen.console, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(progress: Progress) -> None:
            message = f"{what}  {visible(progress.message)}" if progress.message else what
            bar.update(task, completed=progress.progress, total=progress.total, description=message)

        yield show
