"""docs/reference/errors.md has every error text of the source, and none that does not exist."""

from __future__ import annotations

import ast
import re

import pytest

from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import ServerConfig, ToolboxConfig, WorkbenchConfig
from mcp_workbench.engine.downstream.quoted_output import with_quoted_output
from mcp_workbench.engine.face.suggestions import no_such_path
from mcp_workbench.engine.face.wording import no_such
from mcp_workbench.engine.transport.stderr import GAP
from scripts.error_docs import UNEXPLAINED, documented, with_tables
from scripts.error_texts import COMPOSED, error_texts, spelled
from scripts.write_reference_docs import ERRORS


@pytest.mark.requirement("project.documentation")
def test_the_tables_have_every_error_text_and_no_other() -> None:
    document = ERRORS.read_text("utf-8")
    assert document == with_tables(document, error_texts(), COMPOSED), "run python -m scripts.write_reference_docs"
    assert set(documented(document)) >= error_texts().keys()


def test_every_error_text_is_explained() -> None:
    unexplained = [line for line in ERRORS.read_text("utf-8").splitlines() if line.endswith(f"| {UNEXPLAINED} |")]
    assert not unexplained


@pytest.mark.parametrize(
    ("stderr", "stdout", "expected"),
    [
        (["boom"], [], "… last lines of its stderr: …"),
        (["boom", GAP, "usage"], [], "… from its stderr: …"),
        ([], ["ready"], "… on its stdout, where only protocol messages belong: …"),
    ],
)
def test_server_output_is_quoted_as_documented(stderr: list[str], stdout: list[str], expected: str) -> None:
    text = with_quoted_output("it failed", stderr, stdout)
    assert re.fullmatch(re.escape(expected).replace("…", ".*").replace(r"\ ", r"\s+"), text, re.DOTALL)
    assert with_quoted_output(text, stderr, stdout) == text, "nothing is said twice"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("dve", ["dev"], "… `…` does not exist…; did you mean …?"),
        ("xyz", ["dev"], "… `…` does not exist…; available: …"),
        ("xyz", [], "… `…` does not exist…; none are available"),
    ],
)
def test_texts_that_are_put_together_read_as_documented(name: str, known: list[str], expected: str) -> None:
    pattern = re.escape(expected).replace("…", ".*")
    assert re.fullmatch(pattern, no_such("toolbox", name, known, " here"))


def test_a_tool_possibly_on_an_unlisted_server_is_reported_as_missing_for_now() -> None:
    server = ServerConfig(name="server", command="x")
    box = ToolboxConfig(name="box", description="A box.", servers={"server": server})
    catalog = Catalog(WorkbenchConfig(path="config", toolboxes={"box": box}), ManifestStore(lambda: None))
    assert no_such_path(catalog, "box/other/tool").splitlines()[-1] == COMPOSED[-1]


def test_texts_are_found_however_they_are_written() -> None:
    source = """
CONSTANT: Final = "said above"

def function(fast):
    found = f"it is {value}"
    other = "never used"
    return (found, f"a {b}" + " and c", "x" if fast else f"y{z}", f"{'on' if fast else 'off'} it", call(), CONSTANT)
"""
    module = ast.parse(source)
    function = module.body[1]
    assert isinstance(function, ast.FunctionDef)
    [values] = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    assert isinstance(values, ast.Tuple)
    assert [spelled(value, function, module) for value in values.elts] == [
        ["it is …"],
        ["a … and c"],
        ["x", "y…"],
        ["on it", "off it"],
        ["…"],
        ["said above"],
    ]
