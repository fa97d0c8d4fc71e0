"""Windows must not be made impossible: what cannot be imported there is named in docs/reference/platforms.md.

Simulated in a process of its own: `sys.platform` is `win32`, and what only POSIX has is gone.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.simulated_windows import ABSENT_MODULES, ABSENT_NAMES

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "platforms.md"
SIMULATED = [sys.executable, "-m", "tests.support.simulated_windows"]
IMPORT_ALL = """
import importlib, json, pkgutil
from tests.support.simulated_windows import apply
apply()
import mcp_workbench

failed = {}
for found in pkgutil.walk_packages(mcp_workbench.__path__, "mcp_workbench."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            failed[found.name] = repr(error)
print(json.dumps(failed))
"""


def test_modules_that_windows_cannot_import_are_documented() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
    )
    failed: dict[str, str] = json.loads(done.stdout)
    assert set(failed.values()) == {"ImportError('fcntl')"}, failed
    # Those that ask for it themselves; the others fail because they import one of these.
    listed = DOCUMENT.read_text("utf-8").partition("<!-- modules -->")[2].partition("\n\nThese")[0]
    named = re.findall(r"^\| `([\w/.]+)` \|", listed, re.MULTILINE)
    asks = [name for name in named if re.search(r"^import fcntl", _source(name), re.MULTILINE)]
    assert asks == named and {f"mcp_workbench.{name[:-3].replace('/', '.')}" for name in named} <= failed.keys()
    others = [
        path for path in (ROOT / "src" / "mcp_workbench").rglob("*.py") if "\nimport fcntl" in path.read_text("utf-8")
    ]
    assert len(others) == len(named)


@pytest.mark.parametrize(
    "module",
    ["engine.router", "engine.transport.http.server.http_server", "cli.commands.init", "cli.commands.install"],
)
def test_first_commands_import_no_posix_modules(module: str) -> None:
    code = f"{IMPORT_ALL.partition('failed = {}')[0]}importlib.import_module('mcp_workbench.{module}')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT)


def test_every_posix_only_use_is_documented_by_file() -> None:
    uses = {}
    for path in sorted((ROOT / "src" / "mcp_workbench").rglob("*.py")):
        if names := _absent_uses(ast.parse(path.read_text("utf-8"))):
            uses[str(path.relative_to(ROOT / "src" / "mcp_workbench"))] = ", ".join(f"`{each}`" for each in names)
    listed = DOCUMENT.read_text("utf-8").partition("<!-- uses -->")[2]
    documented = dict(re.findall(r"^\| `([\w/.]+\.py)` \| (.+) \|$", listed, re.MULTILINE))
    rows = "\n".join(f"| `{name}` | {names} |" for name, names in uses.items())
    assert documented == uses, f"the table should be:\n{rows}"


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import os\ndef f(): os.fork()", ["os.fork"]),
        ("import fcntl\nfcntl.flock(1, 2)", ["fcntl"]),
        ("import os\ndef f():\n    if hasattr(os, 'fork'): os.fork()", []),
        ("import sys\ndef f():\n    if sys.platform == 'win32': return\n    import pwd", []),
        ("def f():\n    try:\n        import pwd\n    except ImportError: pass\n    pwd.getpwuid(0)", []),
        ("resource = {}\nresource.get(1)", []),
    ],
)
def test_a_use_behind_a_check_does_not_count(code: str, names: list[str]) -> None:
    assert _absent_uses(ast.parse(code)) == names


def test_commands_that_start_nothing_run_there(tmp_path: Path) -> None:
    """`init` and `install` look for files with backslashes in their paths, so here they find none. `call` gets as far
    as the pipes of a server."""
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*SIMULATED, *words], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=60)

    done = run("init", "--yes", "--no-check")
    assert "no client on this machine has a file" in done.stderr, done.stderr
    done = run("add", "clock", "--no-check", "--toolbox", "desk", "--", sys.executable, "-m", "mcp_workbench")
    assert done.returncode == 0 and "AppData/Local/mcp-workbench/workbench-config.json" in done.stderr, done.stderr
    for words in (["check"], ["list"], ["secret", "list"], ["install", "cursor", "--print"], ["remove", "--help"]):
        done = run(*words)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stderr)
    done = run("call", "clock", "now")
    assert done.returncode and "have not been listed yet" in done.stderr, done.stderr


def test_tests_that_need_no_posix_pass_there() -> None:
    """Some of those whose subject is text and files."""
    folder = ROOT / "tests"
    chosen = ["engine/config/test_jsonc.py", "engine/config/test_expand.py", "engine/config/test_model.py"]
    chosen += ["engine/test_nearest.py", "setup/clients/test_server_json.py", "setup/clients/test_dialects.py"]
    words = [
        "-m",
        "pytest",
        "-q",
        "--timeout-method=thread",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "tests.support.simulated_windows",
    ]
    done = subprocess.run(
        [sys.executable, *words, *(str(folder / each) for each in chosen)],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_file_that_the_document_names_exists() -> None:
    for name in re.findall(r"`((?:engine|team|signin|sharing|setup|cli)/[\w/.]*)`", DOCUMENT.read_text("utf-8")):
        assert (ROOT / "src" / "mcp_workbench" / name).exists(), name


def _absent_uses(tree: ast.Module) -> list[str]:
    """Return what Windows lacks and the code uses without asking first, in the function around the use."""
    found: set[str] = set()

    def walk(node: ast.AST) -> None:
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and re.search(r"hasattr\(|sys\.platform|ImportError|AttributeError", ast.unparse(node)):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            found.update(name for name in names if name in ABSENT_MODULES and name != "uvloop")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = node.value.id.removeprefix("_")
            if node.attr in ABSENT_NAMES.get(module, ()):
                found.add(f"{module}.{node.attr}")
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(tree)
    return sorted(found)


def _source(name: str) -> str:
    return (ROOT / "src" / "mcp_workbench" / name).read_text("utf-8")
