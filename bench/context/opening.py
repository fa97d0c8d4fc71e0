"""What it costs to open each of many real servers as a toolbox of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from bench.context.data import Count, Listed
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.catalog.offer import Offer
from mcp_workbench.engine.catalog.tool_index import ToolIndex
from mcp_workbench.engine.config.model import DEFAULT_BUDGET, ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.economy.forms import Form, show
from mcp_workbench.engine.economy.tokens import tokens
from mcp_workbench.engine.face.open_request import OpenRequest
from mcp_workbench.engine.face.opening import opened
from mcp_workbench.engine.protocol.handshake import ServerProfile

_PROFILE = ServerProfile(
    era="legacy", version="2025-11-25", capabilities=msgspec.Raw(b"{}"), server_info=msgspec.Raw(b"{}")
)


class Opened(NamedTuple):
    """Tokens for opening a toolbox (mean, median, most; `counted` by the tokenizer), and how often in which form."""

    toolboxes: int
    mean: float
    median: float
    most: int
    counted: float
    over: int
    forms: dict[str, int]
    flat: float


def open_each(catalogue: Sequence[Listed], count: Count) -> Opened:
    """Through the face itself, so that what an answer says beside its tools is counted too."""
    toolboxes: dict[str, list[Listed]] = {}
    for listed in catalogue:
        toolboxes.setdefault(listed.server, []).append(listed)
    known, tool_index = _known(toolboxes)
    costs, counted, forms = [], [], Counter[str]()
    for name in toolboxes:
        made, result = opened(known, tool_index, OpenRequest(name), {}, [])
        text: str = msgspec.json.decode(result)["content"][0]["text"]
        costs.append(tokens(text))
        counted.append(count(text))
        forms[f"{made.form}, in pages" if made.cursor else made.form.value] += 1
    return Opened(
        toolboxes=len(toolboxes),
        mean=fmean(costs),
        median=median(costs),
        most=max(costs),
        counted=fmean(counted),
        over=sum(cost > DEFAULT_BUDGET for cost in costs),
        forms=dict(forms.most_common()),
        flat=sum(len(listed.tool().definition) for listed in catalogue) / 4,
    )


def _known(toolboxes: Mapping[str, Sequence[Listed]]) -> tuple[Catalog, ToolIndex]:
    """A catalogue in which every toolbox has one server, whose tools are known."""
    configured = {
        name: ToolboxConfig(name=name, description=f"The tools of {name}.", servers={name: ServerConfig(name=name)})
        for name in toolboxes
    }
    store = ManifestStore(lambda: None)
    catalogue = Catalog(WorkbenchConfig(path="bench", toolboxes=configured), store)
    for name, tools in toolboxes.items():
        definitions = {listed.name: msgspec.Raw(listed.tool(name).definition) for listed in tools}
        catalogue.servers.learn(catalogue.toolboxes[name][name], Offer(_PROFILE, {"tools": definitions}))
    return catalogue, ToolIndex(catalogue, store)


def per_tool(catalogue: Sequence[Listed], count: Count) -> dict[str, float]:
    """The mean tokens of one tool in each form."""
    tools = [listed.tool() for listed in catalogue]
    return {form.value: fmean(count(show(tool, form).text) for tool in tools) for form in Form}


def complete_share(catalogue: Sequence[Listed]) -> float:
    """Per cent of tools whose signature says everything about types."""
    return 100 * fmean(show(listed.tool(), Form.SENTENCE).complete for listed in catalogue)
