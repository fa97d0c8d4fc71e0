"""A stranger finds things: one name for one class, a map in every package, and tests where their module lies.

The lists of exceptions below are short and say why. A new entry is a decision about where people look; think of the
other name, or the other place, first.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.source_tree import statements_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "mcp_workbench"
TESTS = ROOT / "tests"

# Classes of one name in several modules: none. A name that two packages need says in each whose it is.
SHARED_CLASS_NAMES: dict[str, str] = {}

# Modules of one name in several packages, and why no reader mistakes one for the other.
SHARED_MODULE_NAMES = {
    "arguments": "of a shell's `call`, and of a tool's schema",
    "policy": "the command, and the rules that it tests",
    "sandbox": "the command, and the sandbox that it describes",
    "schema": "the command, and the JSON Schema that it prints",
    "serve": "the command, and the same where it has joined the shared workbench",
    "status": "the command, and the status that it shows",
    "tokens": "the command, and what a token is to a model",
    "version": "what `--version` prints, and which commit this is",
    "trust": "the command, and the trust that it records",
}

# Folders of tests about what the whole does, not about one module.
BY_BEHAVIOUR = {
    "bridge": "clients of either era in front of servers of either era; docs/reference/eras.md is checked against them",
    "conformance": "the official suite, through the workbench",
    "end_to_end": "the command as clients start it, with real processes",
    "faces": "one contract for all faces, for clients and servers of either era",
    "faults": "faulty servers, clients and environments",
    "http_clients": "clients of others, in front of our endpoint",
    "real_clients": "published clients of others, which list us",
    "real_authorities": "authorization servers of others",
    "real_servers": "published servers of others",
    "sharing": "front ends and the shared workbench, as processes; some by module",
    "support": "the tests' own tools",
}
# Folders of tests about what lies beside the package.
BESIDE_THE_PACKAGE = ("bench", "scripts", "soak")
# Tests about the project or several modules at once, and what they are about.
WITHOUT_MODULE = {
    "test_deploy.py": "the examples in deploy/",
    "test_docs_examples.py": "the examples of all documents",
    "test_layering.py": "all imports",
    "test_linear_text.py": "every reader of foreign text",
    "test_naming.py": "all names",
    "test_platforms.py": "docs/reference/platforms.md",
    "test_project.py": "the project's files",
    "test_reliability_docs.py": "docs/reference/reliability.md",
    "test_security_docs.py": "SECURITY.md",
    "test_requirements.py": "tests/requirements.toml",
    "test_tour_docs.py": "docs/internals/tour.md",
    "app/test_composition.py": "how the parts are connected",
    "app/test_engine_alone.py": "the engine without the other parts",
    "team/test_refusals.py": "refusals by every part of `team/`",
    "cli/test_commands_output.py": "what every command prints",
    "cli/test_error_reference.py": "docs/reference/errors.md",
    "cli/test_reference.py": "docs/reference/cli.md",
    "seeing/page/test_browser.py": "the page, in a browser",
    "seeing/page/test_browser_workbench.py": "the page of a real workbench, in a browser",
    "seeing/page/test_browser_hosts.py": "refused hosts of a real server, in a browser",
    "seeing/page/test_browser_shared.py": "the page of the shared workbench, in a browser",
    "seeing/page/test_browser_http.py": "the page of `serve --http`, in a browser",
    "seeing/page/test_web_files.py": "the page's files",
    "engine/economy/test_docs_context.py": "docs/guides/context.md",
}


def modules() -> Iterator[Path]:
    return (path for path in PACKAGE.rglob("*.py"))


def classes(path: Path) -> Iterator[str]:
    return (node.name for node in statements_of(path) if isinstance(node, ast.ClassDef))


def shared(found: Iterator[tuple[str, Path]]) -> dict[str, set[str]]:
    places: dict[str, set[str]] = defaultdict(set)
    for name, path in found:
        places[name].add(str(path.relative_to(PACKAGE)))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_no_two_classes_have_one_name() -> None:
    found = shared((name, path) for path in modules() for name in classes(path))
    new = {name: sorted(paths) for name, paths in found.items() if name not in SHARED_CLASS_NAMES}
    assert not new, f"say in each name whose it is: {new}"
    assert found.keys() >= SHARED_CLASS_NAMES.keys(), "an exception that is none any more"


def test_modules_of_one_name_are_the_ones_we_know_of() -> None:
    found = shared((path.stem, path) for path in modules() if not path.stem.startswith("__"))
    assert found.keys() == SHARED_MODULE_NAMES.keys(), "say in the name what is inside"


@pytest.mark.parametrize(
    "package",
    sorted({path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_the_docstring_of_a_package_is_its_map(package: Path) -> None:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    inside = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    missing = sorted(name for name in inside - {"__init__", "__main__"} if not re.search(rf"\b{name}\b", said))
    assert not missing, f"the docstring of {package.name}/__init__.py does not say what is in {missing}"


def test_tests_lie_where_their_module_lies() -> None:
    """`tests/<package>/test_<module>.py`, or `test_<module>_<aspect>.py` where there is more to say of one."""
    lost = []
    for path in sorted(TESTS.rglob("test_*.py")):
        place = path.relative_to(TESTS)
        if place.parts[0] in (*BY_BEHAVIOUR, *BESIDE_THE_PACKAGE) or str(place) in WITHOUT_MODULE:
            continue
        words = path.stem.removeprefix("test_").split("_")
        names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
        if not any((PACKAGE / place.parent / f"{name}.py").is_file() for name in names):
            lost.append(str(place))
    assert not lost, f"no module of that name there: {lost}"


def test_every_exception_is_one() -> None:
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert set(BY_BEHAVIOUR) | set(BESIDE_THE_PACKAGE) <= folders
    assert [place for place in WITHOUT_MODULE if not (TESTS / place).is_file()] == []


def constants() -> Iterator[tuple[str, object]]:
    """Every constant of ours, without leading underscores, and its value."""
    for path in modules():
        names = [
            name.id
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(name, ast.Name) and name.id.isupper()
        ]
        if names:
            module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            for name in names:
                value: object = getattr(module, name)
                if not isinstance(value, TypeVar):
                    yield name.lstrip("_"), value


def several_values(found: Iterable[tuple[str, object]]) -> set[str]:
    """The names that stand for more than one value. `1` and `True` are two."""
    first: dict[str, object] = {}
    return {
        name
        for name, value in found
        if (known := first.setdefault(name, value)) is not value and (type(known) is not type(value) or known != value)
    }


def test_no_two_constants_have_one_name() -> None:
    found = list(constants())
    assert {"MAX_NESTING", "KINDS", "TRANSPORT_SPELLINGS", "INVALID_PARAMS"} <= {name for name, _ in found}
    assert several_values(found) == set(), "say in the name of what it is: `MAX_FIELD_CHARACTERS`, `POLL_INTERVAL`"
    assert several_values([("A", 1), ("B", 1), ("A", True), ("B", 1), ("C", "x"), ("C", "y")]) == {"A", "C"}


# What a limit is called elsewhere: `MAX_…` and `MIN_…`.
DIALECT = re.compile(r"_?(MOST|LONGEST|LARGEST|HIGHEST|LEAST|FEWEST|SHORTEST|SMALLEST)_")


def test_limits_have_the_names_of_the_field() -> None:
    assert sorted({name for name, _ in constants() if DIALECT.match(name)}) == []
