"""`mcp-workbench call`: call a tool from a shell. stdout is the tool's result, and nothing else."""

from __future__ import annotations

import contextlib
import sys
from itertools import takewhile
from pathlib import Path
from typing import Final

from msgspec import Raw
from msgspec.json import decode

from mcp_workbench.cli.arguments import arguments_schema, read_arguments, read_json, unexpected
from mcp_workbench.cli.elicitation import can_ask
from mcp_workbench.cli.engine import Engine, ToolClient
from mcp_workbench.cli.error_output import FAILED_STATUS, complain, remark
from mcp_workbench.cli.flags import Parsed, UsageError, missing_arguments
from mcp_workbench.cli.interactive_client import engine_of, interactive_client
from mcp_workbench.cli.result_content import ResultContent, asks_the_user
from mcp_workbench.cli.result_output import show
from mcp_workbench.cli.screen import stdout
from mcp_workbench.cli.unlisted_servers import TOOLBOX, hint_about
from mcp_workbench.cli.usage import COMMANDS
from mcp_workbench.engine.config.redact import Redactor
from mcp_workbench.engine.economy.signature import signature
from mcp_workbench.engine.jsonrpc.messages import ErrorObject
from mcp_workbench.engine.jsonrpc.pending import RemoteError
from mcp_workbench.engine.protocol.constants import MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED
from mcp_workbench.errors import WorkbenchError

_CLIENTS_ONLY: Final = (
    "the tool asks its client something while it runs (such as sampling or roots) that a command line cannot "
    "answer; use it from an MCP client that can"
)
_NO_TERMINAL: Final = (
    "the tool asks its client something while it runs, and there is no terminal to answer at; run the command at one, "
    "or use the tool from an MCP client"
)
_UNLISTED_HINT: Final = "the last word that is not key=value is the tool"
# In the shared workbench, a server that other clients started knows their capabilities, not ours.
_ASKED_NEXT_TIME: Final = (
    "the server is running for clients that cannot be asked; run the command again, and it is started for you"
)
_NO_SAMPLING: Final = (
    "the tool wants a text written by its client's model (sampling), and a command line has none; use it from an MCP "
    "client that offers sampling"
)
# The words that servers use in errors about a missing capability.
_ELICITATION: Final = "elicit"
_SAMPLING_WORDS: Final = ("sampling", "createmessage")
# The beginning of the error of `use_tool` for arguments that it did not pass on.
_NOT_CALLED: Final = "the arguments are invalid, so it was not called"


def run(parsed: Parsed) -> int:
    engine, redactor, unlisted = engine_of(parsed)
    if unlisted is None:
        toolbox, server, tool, words = _named(parsed.positionals, engine)
    else:
        toolbox, server, (tool, *words) = TOOLBOX, unlisted.server, unlisted.words
    given = _given_json(parsed, words)
    engine.server(toolbox, server)
    where = f"{toolbox}/{server}/{tool}"
    usage: list[str] = []

    async def work() -> ResultContent:
        async with interactive_client(engine, where) as client:
            schema = arguments_schema(decode(await _definition(engine, toolbox, server, tool)))
            # From here on, the tool's signature is the best hint for any error.
            usage.append(signature(tool, schema).text)
            arguments = given
            if arguments is None:
                try:
                    arguments = read_arguments(words, schema)
                except UsageError as error:
                    raise UsageError(str(error), hint="; ".join(filter(None, (*usage, error.hint)))) from None
                for slip in unexpected(words, schema):
                    # The schema may be incomplete, and the server decides: only warn about what looks like a typing
                    # error.
                    remark("warning", f"{slip} It is sent anyway.")
            return await _called(engine, client, (toolbox, server, tool), arguments)

    try:
        reading = engine.run(work)
    except RemoteError as error:
        return _report_error(where, error.error, redactor, _unanswered(engine))
    except WorkbenchError as error:
        message = redactor.text(f"[{toolbox}/{server}] {error.message}")
        hint = hint_about(error, unlisted)
        return complain(message, hint and redactor.text(hint), status=FAILED_STATUS)
    if reading.is_error and not parsed.has("raw") and (problems := _not_called(reading, where)):
        return complain(redactor.text(problems), *usage)
    return _show(parsed, reading, where, redactor, _unanswered(engine))


async def _called(engine: Engine, client: ToolClient, place: tuple[str, str, str], arguments: bytes) -> ResultContent:
    try:
        reading = ResultContent(await client.use_tool(*place, arguments))
    except RemoteError as error:
        await _note_refusal(engine, client, place, error.error.message)
        raise
    if reading.is_error:
        await _note_refusal(engine, client, place, reading.as_text())
    return reading


async def _note_refusal(engine: Engine, client: ToolClient, place: tuple[str, str, str], text: str) -> None:
    """Have a server that other clients started be started for us next time, if it may lack a user to ask. The call is
    not repeated now, because the server may have done half of it."""
    if engine.is_shared and can_ask() and not client.was_asked and _ELICITATION in text.lower():
        await engine.note_asking(*place[:2])


def _unanswered(engine: Engine) -> str:
    """Return what to do about a question that could not be asked."""
    if engine.can_ask_next_time:
        return _ASKED_NEXT_TIME
    return _CLIENTS_ONLY if can_ask() else _NO_TERMINAL


def _advice(text: str, unanswered: str) -> str:
    """Return what to do about a question, which a terminal helps with only if it is for the user."""
    words = text.lower()
    is_sampling = _ELICITATION not in words and any(word in words for word in _SAMPLING_WORDS)
    return _NO_SAMPLING if is_sampling else unanswered


async def _definition(engine: Engine, toolbox: str, server: str, tool: str) -> Raw:
    try:
        return await engine.tool(toolbox, server, tool)
    except UsageError as error:
        # No other command can show what an unlisted server offers.
        raise error if toolbox != TOOLBOX else UsageError(str(error), hint=_UNLISTED_HINT) from None


def _named(positionals: list[str], engine: Engine) -> tuple[str, str, str, list[str]]:
    """Return the tool, named in three words or as one path, and the words after it."""
    if not positionals:
        raise missing_arguments(("TOOLBOX", "SERVER", "TOOL"), COMMANDS["call"].usage)
    first, *rest = positionals
    names = [first, *takewhile(lambda word: word and "=" not in word, rest)]
    # In three words, a toolbox may be called `a/b`; with fewer plain words after it, `a/b` is the path of a tool.
    if len(names) > 2:
        toolbox, server, tool, *words = positionals
        return toolbox, server, tool, words
    if "/" in first and first not in engine.toolboxes:
        return *engine.path(first), rest
    return *engine.path("/".join(names)), positionals[len(names) :]


def _not_called(reading: ResultContent, where: str) -> str | None:
    """Return what is wrong with the arguments if the workbench found that out before the call, else None."""
    text = "\n".join(reading.texts)
    if not text.startswith(f"[{where}] {_NOT_CALLED}"):
        return None
    # In a shell, the signature in the hint says the same in fewer words.
    return text.partition("\nIts schema: ")[0]


def _given_json(parsed: Parsed, words: list[str]) -> bytes | None:
    text = parsed.value("json")
    if text is None:
        return None
    if words:
        raise UsageError(f"`{words[0]}` and --json were both given", hint="use one or the other")
    if text == "-":
        # Decoded like words of the command line, so that `read_json` reports input that is not UTF-8.
        text = sys.stdin.buffer.read().decode(errors="surrogateescape")
    return read_json(text)


def _show(parsed: Parsed, reading: ResultContent, where: str, redactor: Redactor, unanswered: str) -> int:
    if parsed.has("raw"):
        print_raw(reading.raw)
        return FAILED_STATUS if reading.is_error or reading.questions else 0
    if reading.questions:
        asked = "; ".join(reading.questions)
        return complain(f"[{where}] asks: {asked}", _advice(asked, unanswered), status=FAILED_STATUS)
    if reading.is_error:
        # It may quote the server's stderr, so it is redacted; data on stdout is never changed.
        text = redactor.text(reading.as_text())
        return _report_failure(where, text or "the tool failed without giving a reason", unanswered)
    target = parsed.value("output")
    show(reading, None if target is None else Path(target))
    if not (reading.as_text() or reading.binaries or reading.remarks):
        remark("note", "the tool returned no content")
    return 0


def print_raw(raw: bytes) -> None:
    from msgspec import MsgspecError
    from msgspec.json import format

    # A pipe gets the server's bytes; a terminal gets them formatted.
    with contextlib.suppress(MsgspecError):
        raw = format(raw, indent=2) if sys.stdout.isatty() else raw
    stdout().text(raw.decode(errors="backslashreplace"))


def _report_failure(where: str, text: str, unanswered: str) -> int:
    # Messages of the workbench already contain the name, and their own hint.
    message, _, hint = text.partition("\nhint: ") if text.startswith(f"[{where}]") else (f"[{where}] {text}", "", "")
    if not hint and asks_the_user(text):
        hint = _advice(text, unanswered)
    return complain(message, hint, status=FAILED_STATUS)


def _report_error(where: str, error: ErrorObject, redactor: Redactor, unanswered: str) -> int:
    text = f"[{where}] {error.message} (code {error.code})"
    if isinstance(error.data, Raw):
        text += f"\ndata: {bytes(error.data).decode(errors='replace')}"
    is_question = error.code in (URL_ELICITATION_REQUIRED, MISSING_CLIENT_CAPABILITY)
    hint = _advice(text, unanswered) if is_question else None
    text = redactor.text(text)
    return complain(text, hint, status=FAILED_STATUS)
