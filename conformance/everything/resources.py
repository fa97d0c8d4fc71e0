"""The resources of the everything-server, and completions of what its templates and prompts take."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from conformance.everything.media import PNG

Context = ServerRequestContext[Any, Any]

TEMPLATE: Final = "test://template/{id}/data"
_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")
# What it was up to revision 2025-11-25.
RESOURCE_NOT_FOUND: Final = -32002
WORDS: Final = ("paris", "park", "party", "test", "testing")

_RESOURCES: Final[dict[str, TextResourceContents | BlobResourceContents]] = {
    each.uri: each
    for each in (
        TextResourceContents(
            uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
        ),
        BlobResourceContents(uri="test://static-binary", mime_type="image/png", blob=PNG),
        TextResourceContents(uri="test://watched-resource", mime_type="text/plain", text="Watched resource content."),
    )
}


async def list_resources(context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """`resources/list`."""
    return ListResourcesResult(
        resources=[
            Resource(
                uri=uri,
                name=uri.removeprefix("test://"),
                description=f"The resource {uri.removeprefix('test://')}.",
                mime_type=contents.mime_type,
            )
            for uri, contents in _RESOURCES.items()
        ]
    )


async def list_templates(context: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """`resources/templates/list`."""
    template = ResourceTemplate(
        uri_template=TEMPLATE, name="template", description="Data by its id.", mime_type="application/json"
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    """`resources/read`."""
    found = _RESOURCES.get(params.uri)
    if found is not None:
        return ReadResourceResult(contents=[found])
    match = _TEMPLATE.fullmatch(params.uri)
    if match is None:
        code = INVALID_PARAMS if context.protocol_version in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND
        raise MCPError(code, "Resource not found", {"uri": params.uri})
    text = json.dumps({"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"})
    return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type="application/json", text=text)])


async def subscribe(context: Context, params: SubscribeRequestParams) -> EmptyResult:
    """`resources/subscribe`, legacy era. None of the resources ever changes."""
    return EmptyResult()


async def unsubscribe(context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
    """`resources/unsubscribe`, legacy era."""
    return EmptyResult()


async def complete(context: Context, params: CompleteRequestParams) -> CompleteResult:
    """`completion/complete`: whichever words begin so."""
    values = [word for word in WORDS if word.startswith(params.argument.value)]
    return CompleteResult(completion=Completion(values=values, total=len(values), has_more=False))
