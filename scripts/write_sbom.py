"""Write the software bill of materials of a release: what it runs on and is built with, in CycloneDX 1.6.

Versions and hashes are those of `constraints.txt`, dependencies those that the installed packages declare. Without
times and random numbers, so that the same sources make the same bytes.

    .venv/bin/python -m scripts.write_sbom mcp-workbench.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from mcp_workbench import __version__
from scripts.update_constraints import ROOT, normalized

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def pins(constraints: str) -> dict[str, tuple[str, list[str]]]:
    """Of each package in a constraints file, its version and the hashes of its wheels."""
    return {
        normalized(name): (version, re.findall(r"sha256:([0-9a-f]{64})", hashes))
        for name, version, hashes in _PIN.findall(constraints)
    }


def needed(requirements: Iterable[str]) -> list[str]:
    """The names that apply here, without extras."""
    found = (Requirement(each) for each in requirements)
    return sorted(
        {normalized(each.name) for each in found if each.marker is None or each.marker.evaluate({"extra": ""})}
    )


def closure(names: Iterable[str], graph: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def sbom(version: str) -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    graph = {name: [each for each in needed(requires(name) or ()) if each in pinned] for name in pinned}
    direct = needed(project["project"]["dependencies"])
    runs_on = closure(direct, graph)
    own = {
        "type": "application",
        "bom-ref": "mcp-workbench",
        "name": "mcp-workbench",
        "version": version,
        "licenses": [{"license": {"id": project["project"]["license"]}}],
        "purl": f"pkg:pypi/mcp-workbench@{version}",
    }
    components = [
        {
            "type": "library",
            "bom-ref": name,
            "name": name,
            "version": of,
            # What only the build needs is not part of what is installed.
            "scope": "required" if name in runs_on else "excluded",
            "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
            "purl": f"pkg:pypi/{name}@{of}",
        }
        for name, (of, hashes) in sorted(pinned.items())
    ]
    dependencies = [{"ref": name, "dependsOn": each} for name, each in sorted(graph.items())]
    content = json.dumps([own, components, dependencies])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": "mcp-workbench", "dependsOn": direct}, *dependencies],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(sbom(__version__), indent=1) + "\n", encoding="utf-8")
