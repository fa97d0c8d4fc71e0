"""Start-up is a feature: only what serving over stdio needs is loaded before the first answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_workbench
from tests.end_to_end.harness import Workbench
from tests.support.workbench import scripted_entry, write_config

# Each costs milliseconds that every start would pay for. What asyncio itself loads (ssl, inspect, …) cannot be helped.
HEAVY = {
    "valkey",
    *("argparse", "rich", "platformdirs", "aiohttp", "uvicorn", "starlette", "httptools", "mcp", "pydantic", "anyio"),
    *(
        "jsonschema",
        "jmespath",
        "ctypes",
        "email",
        "http",
        "urllib.request",
        "xml",
        "multiprocessing",
        "watchfiles",
        "click",
    ),
    *("httpx", "httpx2", "requests", "yaml", "tomllib", "sqlite3", "unittest", "pdb", "zipfile", "tarfile", "tempfile"),
    *("fractions", "statistics", "difflib", "pickle", "importlib.metadata", "json", "html"),
}
# Packages and modules that a client has not asked for yet.
UNNEEDED = {
    *(
        "http",
        "demo",
        "commands",
        "signin",
        "secrets",
        "encodings",
        "oauth_settings",
        "child",
        "flat",
        "dynamic",
        "screen",
    ),
    *("index", "postings", "fields", "terms", "synonyms", "forms", "distinctive_words", "toolbox_search"),
    *("search_answer", "named_tools", "budget_ladder", "lean_schema", "learned_needs", "opening"),
    *("seeing", "call_figures", "metrics_page", "saved_tokens", "metrics_settings"),
    *("traces", "traced_steps", "telemetry_settings"),
    *("signature", "arguments", "quick_check", "argument_check", "select", "value_shape", "result_pieces"),
    *("programs", "program_settings", "call_list", "call_values", "kept_results", "inner_call", "task_runs"),
    *("cluster", "cluster_settings", "cluster_instance"),
    *("own_questions", "relayed_inputs", "rounds", "signing_in", "client_behaviour", "app_tools"),
}
# A new module costs about a third of a millisecond. More than this is a decision, not an accident.
MAX_MODULES = 97


def imported_until_answered(workbench: Workbench, *, modern: bool) -> set[str]:
    """Every module that is loaded by a workbench that answers its first requests and ends."""
    boxes = {f"box{number}": {"server": scripted_entry()} for number in range(10)}
    config = write_config(workbench.folder, boxes)
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    shake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    asked: list[tuple[str, object]] = (
        [("server/discover", {"_meta": meta}), ("tools/list", {"_meta": meta})]
        if modern
        else [("initialize", shake), ("tools/list", {})]
    )
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"
        for number, (method, params) in enumerate(asked)
    ]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "mcp_workbench", "serve", "--config", str(config)],
        input="".join(lines).encode(),
        capture_output=True,
        check=True,
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    reported = [line for line in done.stderr.decode().splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in reported}


@pytest.mark.requirement("start-up.lean")
@pytest.mark.parametrize("modern", [False, True])
def test_nothing_heavy_is_loaded_before_the_first_answer(workbench: Workbench, modern: bool) -> None:
    loaded = imported_until_answered(workbench, modern=modern)
    assert "mcp_workbench.engine.session.session" in loaded, "otherwise this test looks at nothing"
    assert loaded & HEAVY == set()
    own = {name for name in loaded if name.startswith("mcp_workbench")}
    assert {name for name in own if UNNEEDED & set(name.split("."))} == set()
    assert len(own) <= MAX_MODULES, sorted(own)


def test_forbidden_modules_exist() -> None:
    """Of a module that has another name now, nothing would be checked."""
    own = Path(mcp_workbench.__file__).parent
    found = {path.stem for path in own.rglob("*.py")} | {path.name for path in own.rglob("*") if path.is_dir()}
    assert UNNEEDED - found == set()


def test_importing_the_package_loads_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import mcp_workbench; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout == "['mcp_workbench']\n"
