"""A face is one entry in one table."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import mcp_workbench
from mcp_workbench.catalog.catalog import Catalog
from mcp_workbench.catalog.manifests import ManifestStore
from mcp_workbench.config.keys import FACE
from mcp_workbench.config.model import WorkbenchConfig
from mcp_workbench.face.base import Face, FaceSettings
from mcp_workbench.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES, names_of_faces
from mcp_workbench.gateway import Options, make_face

PACKAGE = Path(mcp_workbench.__file__).parent
# What a command reckons for people in one face or another.
COMPARES_FACES = {
    "cli/commands/tokens.py",
    "cli/token_report.py",
    "cli/tokens_page.py",
    "cli/commands/list.py",
    "cli/engine.py",
}


@pytest.mark.parametrize("name", FACES)
def test_every_face_of_the_table_is_made_by_its_module(name: str) -> None:
    config = WorkbenchConfig(path="x", toolboxes={})
    catalog = Catalog(config, ManifestStore(lambda: None))
    face = import_module(FACES[name].module).make(catalog, FaceSettings())
    assert isinstance(face, Face)
    assert face.name == make_face(catalog, config, Options(face=name)).name == name


def test_settings_and_help_read_the_table() -> None:
    assert {DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES} <= FACES.keys()
    assert names_of_faces() == "proxy, flat, dynamic or auto"
    assert all(face.shows in FACE.description for face in FACES.values())


def test_no_other_module_knows_a_face_by_name() -> None:
    known = []
    # HTTP has a word `proxy` of its own, and so have transports and revisions `auto`.
    telling = FACES.keys() - {"proxy", "auto"}
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where == "faces.py" or where in COMPARES_FACES or where in {f"face/{name}.py" for name in FACES}:
            continue
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if any(name in source for name in telling) else ():
            if isinstance(node, ast.Constant) and node.value in telling:
                known.append(f"{where}:{node.lineno}")
    assert known == []
