"""A face is one entry in one table."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.json import decode

import mcp_workbench
from mcp_workbench.app.gateway import Options, make_face
from mcp_workbench.engine.catalog.catalog import Catalog
from mcp_workbench.engine.catalog.manifests import ManifestStore
from mcp_workbench.engine.config.model import WorkbenchConfig
from mcp_workbench.engine.face.base import Face, FaceSettings
from mcp_workbench.engine.face.view import View
from mcp_workbench.engine.faces import DEFAULT_FACE, DEFAULT_FACE_OF_PLAIN_FILES, FACES, names_of_faces

PACKAGE = Path(mcp_workbench.__file__).parent
# What a command reckons for people in one face or another.
COMPARES_FACES = {
    "cli/commands/tokens.py",
    "cli/token_report.py",
    "cli/commands/list.py",
}
# HTTP has a word `proxy` of its own, and so have transports, revisions, sign-ins and sandboxes `auto`.
OTHER_MEANINGS = {
    "proxy": ("engine/transport/http/client/",),
    "auto": (
        "engine/transport/http/client/",
        "signin/",
        "engine/downstream/server_run.py",
        "engine/config/model.py",
        "engine/config/oauth_settings.py",
        "engine/config/sandbox_settings.py",
        "engine/config/server",
        "engine/sandbox/",
        "app/server_links.py",
        "cli/unlisted_servers.py",
    ),
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
    assert all(face.shows in WorkbenchConfig.SETTINGS["face"].description for face in FACES.values())


def test_no_other_module_knows_a_face_by_name() -> None:
    known = []
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if (
            where == "engine/faces.py"
            or where in COMPARES_FACES
            or where in {f"engine/face/{name}.py" for name in FACES}
        ):
            continue
        source = path.read_text(encoding="utf-8")
        telling = {name for name in FACES if not where.startswith(OTHER_MEANINGS.get(name, "//"))}
        for node in ast.walk(ast.parse(source)) if any(f'"{name}"' in source for name in telling) else ():
            if isinstance(node, ast.Constant) and node.value in telling:
                known.append(f"{where}:{node.lineno}")
    assert known == []


@pytest.mark.parametrize("name", FACES)
def test_kept_results_are_shared_by_users_and_judged_by_policies(name: str) -> None:
    catalog = Catalog(WorkbenchConfig(path="x", toolboxes={}), ManifestStore(lambda: None))
    make = import_module(FACES[name].module).make
    whole, made = make(catalog, FaceSettings()), make(catalog, FaceSettings())
    made.share_state_of(whole)
    assert made.kept_results() is whole.kept_results()
    assert made.own_names() == [decode(each)["name"] for each in made.tools(View(""))]
    for shown in (made.for_client(View("")), made):
        shortens = any("shorten" in vars(each) or "shortening" in vars(each) for each in type(shown).__mro__[:-2])
        assert shown.links is whole.links and not shown.reports
        assert not shortens or shown.kept_results() is not None, "policies would not be asked about its results"
