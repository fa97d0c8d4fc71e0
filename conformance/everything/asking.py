"""Asking the client something in the middle of a request, in the words of either era.

A legacy client is asked directly and the request goes on when it has answered. A modern one is answered
`input_required` and sends the request again: the function that serves it runs again from its start, and gets from
`requestState` what was answered in earlier rounds. So one function serves both eras and does not know which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    InputResponseRequestParams,
    ListRootsRequest,
    ListRootsResult,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

# Under this member of `_meta` a legacy server may name its question. The bridge shows it to modern clients under that
# name, where a modern server would have chosen the key itself.
INPUT_KEY: Final = "mcp-workbench/inputKey"

Answer = dict[str, Any]
_RESULTS: Final[dict[type[InputRequest], type[CreateMessageResult | ElicitResult | ListRootsResult]]] = {
    ElicitRequest: ElicitResult,
    CreateMessageRequest: CreateMessageResult,
    ListRootsRequest: ListRootsResult,
}
_CAPABILITIES: Final[dict[type[InputRequest], str]] = {
    ElicitRequest: "elicitation",
    CreateMessageRequest: "sampling",
    ListRootsRequest: "roots",
}


# The way of one era, whichever the client speaks: how tools are ordinarily written with the SDK.
Way = Literal["legacy", "modern"]


class NeedsInput(Exception):
    """A modern client has to answer first; `result` tells it what."""

    def __init__(self, result: InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


def elicitation(message: str, properties: Mapping[str, Any], required: list[str] | None = None) -> ElicitRequest:
    """A form for the user."""
    schema = {"type": "object", "properties": dict(properties), "required": required or list(properties)}
    return ElicitRequest.model_validate({"params": {"message": message, "requestedSchema": schema}})


def sampling(prompt: str, most_tokens: int = 100) -> CreateMessageRequest:
    """A question to the client's model."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return CreateMessageRequest.model_validate({"params": {"messages": [message], "maxTokens": most_tokens}})


def roots() -> ListRootsRequest:
    """Where the client works."""
    return ListRootsRequest()


class Conversation:
    """What one request asks of its client."""

    def __init__(
        self, context: ServerRequestContext[Any, Any], params: InputResponseRequestParams, way: Way | None = None
    ) -> None:
        self._context = context
        self._is_ordinary = way is not None
        self._is_modern = way == "modern" if way else context.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._given = params.input_responses or {}
        self._has_state = params.request_state is not None
        # The SDK seals the state on its way out and refuses one that was changed.
        self._known: dict[str, Answer] = {} if params.request_state is None else json.loads(params.request_state)

    def can_ask(self, request: InputRequest) -> bool:
        """Whether the client said that it can answer this."""
        declared = self._context.session.client_capabilities
        return declared is not None and getattr(declared, _CAPABILITIES[type(request)]) is not None

    def require(self, request: InputRequest) -> None:
        """Refuse a client that cannot answer this."""
        if not self.can_ask(request):
            needed = _CAPABILITIES[type(request)]
            message = f"this needs the client capability `{needed}`"
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, message, {"requiredCapabilities": {needed: {}}})

    async def ask(self, questions: Mapping[str, InputRequest], *, with_state: bool = False) -> dict[str, Answer]:
        """Have all of these answered. `with_state`: hand out a `requestState` even in the first round."""
        for request in questions.values():
            self.require(request)
        if not self._is_modern and self._is_ordinary:
            return {key: await self._ask_ordinarily(request) for key, request in questions.items()}
        if not self._is_modern:
            return await self._ask_directly(questions)
        unanswered = {key: request for key, request in questions.items() if self._answer(key, request) is None}
        if with_state and not self._has_state:
            unanswered = dict(questions)
        if unanswered:
            state = json.dumps(self._known) if with_state or self._known else None
            raise NeedsInput(InputRequiredResult(input_requests=unanswered, request_state=state))
        for key, request in questions.items():
            self._known[key] = self._answer(key, request) or {}
        return {key: self._known[key] for key in questions}

    def _answer(self, key: str, request: InputRequest) -> Answer | None:
        if key in self._known:
            return self._known[key]
        given = self._given.get(key)
        if not isinstance(given, _RESULTS[type(request)]):
            return None
        return given.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _ask_ordinarily(self, request: InputRequest) -> Answer:
        session, related = self._context.session, self._context.request_id
        answer: ElicitResult | CreateMessageResult | ListRootsResult
        if isinstance(request, ElicitRequest):
            assert isinstance(request.params, ElicitRequestFormParams)
            answer = await session.elicit_form(request.params.message, request.params.requested_schema, related)
        elif isinstance(request, CreateMessageRequest):
            most = request.params.max_tokens
            answer = await session.create_message(request.params.messages, max_tokens=most, related_request_id=related)
        else:
            answer = await session.list_roots()
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _ask_directly(self, questions: Mapping[str, InputRequest]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}

        async def ask(key: str, request: InputRequest) -> None:
            wire = request.model_dump(by_alias=True, mode="json", exclude_none=True)
            named = {**wire, "params": {**wire.get("params", {}), "_meta": {INPUT_KEY: key}}}
            answer = await self._context.session.send_request(
                type(request).model_validate(named),
                _RESULTS[type(request)],
                metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
            )
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)

        async with anyio.create_task_group() as tasks:
            for key, request in questions.items():
                tasks.start_soon(ask, key, request)
        return answers
