"""The software bill of materials: every pinned package with all its hashes, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench import __version__
from scripts.update_constraints import ROOT
from scripts.write_sbom import pins, sbom

CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_every_pin_is_a_component_with_all_its_hashes() -> None:
    components = sbom("1.2.3")["components"]
    names = [line.partition("==")[0] for line in CONSTRAINTS.splitlines() if "==" in line]
    assert [each["name"] for each in components] == sorted(names)
    hashes = [each["content"] for component in components for each in component["hashes"]]
    assert len(hashes) == CONSTRAINTS.count("--hash=sha256:")
    for component in components:
        assert f"{component['name']}=={component['version']} " in CONSTRAINTS
        assert component["purl"] == f"pkg:pypi/{component['name']}@{component['version']}"


def test_requirements_of_the_build_alone_have_the_scope_excluded() -> None:
    scopes = {each["name"]: each["scope"] for each in sbom("1.2.3")["components"]}
    assert (scopes["msgspec"], scopes["markdown-it-py"], scopes["mdurl"]) == ("required",) * 3
    assert (scopes["hatchling"], scopes["pluggy"]) == ("excluded",) * 2


def test_dependencies_lead_from_the_program_to_everything_that_it_installs() -> None:
    bill = sbom("1.2.3")
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert graph["rich"] == ["markdown-it-py", "pygments"] and "rich" in graph["mcp-workbench"]
    refs = {bill["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    assert set(graph) == refs
    assert all(each in refs for needed in graph.values() for each in needed)


def test_two_packages_in_a_constraints_file_are_both_read() -> None:
    one, two = "a" * 64, "b" * 64
    more = " \\\n    --hash=sha256:"
    text = f"# note\nfirst==1.0{more}{one}\nruamel.yaml==2{more}{one}{more}{two}\n"
    assert pins(text) == {"first": ("1.0", [one]), "ruamel-yaml": ("2", [one, two])}


@pytest.mark.processes
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-m", "scripts.write_sbom", tmp_path / name], cwd=ROOT, check=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    bill = json.loads((tmp_path / "one").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == __version__
    assert bill["serialNumber"] != sbom("9.9.9")["serialNumber"]
