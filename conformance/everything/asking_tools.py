"""The tools that ask the client something: its user, its model, where it works."""

from __future__ import annotations

import json
from typing import Any, Final

from mcp.types import InputRequest

from conformance.everything.asking import Answer, elicitation, roots, sampling
from conformance.everything.tool import Call, EverythingTool

NAME: Final = {"name": {"type": "string"}}
OK: Final = {"ok": {"type": "boolean"}}
OPTIONS: Final = ["option1", "option2", "option3"]

# One field of every primitive type with a default (SEP-1034).
DEFAULTS: Final[dict[str, Any]] = {
    "name": {"type": "string", "description": "Name", "default": "John Doe"},
    "age": {"type": "integer", "description": "Age", "default": 30},
    "score": {"type": "number", "description": "Score", "default": 95.5},
    "status": {
        "type": "string",
        "description": "Status",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "description": "Verified", "default": True},
}
# The five ways of offering a choice (SEP-1330).
ENUMS: Final[dict[str, Any]] = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)],
    },
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {
        "type": "array",
        "items": {
            "anyOf": [
                {"const": f"value{n}", "title": f"{word} Choice"} for n, word in enumerate(("First", "Second"), 1)
            ]
        },
    },
}


async def _ask_one(call: Call, key: str, request: InputRequest, *, with_state: bool = False) -> Answer:
    return (await call.conversation.ask({key: request}, with_state=with_state))[key]


async def _samples(call: Call) -> str:
    answer = await _ask_one(call, "completion", sampling(str(call.arguments["prompt"])))
    return f"LLM response: {json.dumps(answer.get('content'))}"


async def _elicits(call: Call) -> str:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await _ask_one(call, "user", elicitation(str(call.arguments["message"]), fields))
    return f"User response: {json.dumps(answer)}"


async def _elicits_defaults(call: Call) -> str:
    answer = await _ask_one(call, "review", elicitation("Please review and correct the fields", DEFAULTS))
    return _completed(answer)


async def _elicits_enums(call: Call) -> str:
    answer = await _ask_one(call, "choice", elicitation("Please choose", ENUMS))
    return _completed(answer)


def _completed(answer: Answer) -> str:
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"


async def _greets(call: Call) -> str:
    answer = await _ask_one(call, "user_name", elicitation("What is your name?", NAME))
    return f"Hello, {(answer.get('content') or {}).get('name')}!"


async def _asks_model(call: Call) -> str:
    answer = await _ask_one(call, "capital_question", sampling("What is the capital of France?"))
    return json.dumps(answer.get("content"))


async def _asks_roots(call: Call) -> str:
    answer = await _ask_one(call, "client_roots", roots())
    return json.dumps(answer.get("roots"))


async def _confirms(call: Call) -> str:
    await _ask_one(call, "confirm", elicitation("Please confirm", OK), with_state=True)
    return "state-ok"


async def _asks_everything(call: Call) -> str:
    questions: dict[str, InputRequest] = {
        "user_name": elicitation("What is your name?", NAME),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    return json.dumps(await call.conversation.ask(questions, with_state=True))


async def _asks_twice(call: Call) -> str:
    first = elicitation("Step 1: What is your name?", NAME)
    second = elicitation("Step 2: What is your favorite color?", {"color": {"type": "string"}})
    name = await _ask_one(call, "step1", first, with_state=True)
    color = await _ask_one(call, "step2", second)
    return json.dumps({"name": name, "color": color})


async def _asks_what_it_may(call: Call) -> str:
    questions: dict[str, InputRequest] = {
        "user_name": elicitation("What is your name?", NAME),
        "greeting": sampling("Generate a greeting", 50),
    }
    allowed = {key: request for key, request in questions.items() if call.conversation.can_ask(request)}
    return json.dumps(await call.conversation.ask(allowed))


def _text(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


_INPUT: Final = "test_input_required_result_"
ASKING_TOOLS: Final = (
    EverythingTool("test_sampling", "Asks the client's model.", _samples, _text("prompt")),
    EverythingTool("test_elicitation", "Asks the user.", _elicits, _text("message")),
    EverythingTool("test_elicitation_sep1034_defaults", "Asks the user, with defaults.", _elicits_defaults),
    EverythingTool("test_elicitation_sep1330_enums", "Lets the user choose.", _elicits_enums),
    EverythingTool("test_streaming_elicitation", "Asks the user's name.", _greets),
    EverythingTool(_INPUT + "elicitation", "Asks the user's name.", _greets),
    EverythingTool(_INPUT + "sampling", "Asks the client's model.", _asks_model),
    EverythingTool(_INPUT + "list_roots", "Asks where the client works.", _asks_roots),
    EverythingTool(_INPUT + "request_state", "Asks, and keeps a state.", _confirms),
    EverythingTool(_INPUT + "tampered_state", "Asks, and keeps a state.", _confirms),
    EverythingTool(_INPUT + "multiple_inputs", "Asks three things at once.", _asks_everything),
    EverythingTool(_INPUT + "multi_round", "Asks one thing after the other.", _asks_twice),
    EverythingTool(_INPUT + "capabilities", "Asks what the client can answer.", _asks_what_it_may),
)
