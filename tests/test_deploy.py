"""The examples in deploy/: HAProxy accepts its file, and the configuration in them is one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mcp_workbench.cli.flags import parse as parse_command
from mcp_workbench.cli.serve import SERVE
from mcp_workbench.engine.config.load import parse

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


def documents(name: str) -> list[Any]:
    return list(YAML(typ="safe").load_all((DEPLOY / name).read_text(encoding="utf-8")))


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_haproxy_accepts_its_file() -> None:
    done = subprocess.run(["haproxy", "-c", "-f", DEPLOY / "haproxy.cfg"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_haproxy_distributes_by_a_header_that_is_still_there() -> None:
    written = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    assert "balance hdr(X-Balanced-By)" in written
    assert "del-header" not in written, "rules come before the balancer looks: it would go round robin"


def test_configuration_for_kubernetes_is_one_of_a_cluster() -> None:
    config_map, *others = documents("kubernetes.yaml")
    config = parse(config_map["data"]["workbench-config.json"].encode(), "example.json", {})
    assert config.cluster is not None
    assert [each["kind"] for each in others] == ["Deployment", "PodDisruptionBudget", "Service"]


def test_pods_are_not_privileged_and_have_time_to_drain() -> None:
    _, deployment, *_ = documents("kubernetes.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    waits = [float(each.partition("=")[2]) for each in container["args"] if each.startswith("--drain")]
    assert len(waits) == 2 and sum(waits) < pod["terminationGracePeriodSeconds"]


def test_compose_starts_three_instances() -> None:
    (compose,) = documents("compose.yaml")
    instances = [each for each in compose["services"].values() if "build" in each]
    assert len(instances) == 3
    assert all(each["read_only"] for each in instances)


def test_manifests_are_valid_for_kubernetes_to_the_last_field() -> None:
    validator = pytest.importorskip("kubernetes_validate")

    for manifest in documents("kubernetes.yaml"):
        validator.validate(manifest, validator.latest_version(), strict=True)
    deployment = documents("kubernetes.yaml")[1]
    deployment["spec"]["template"]["spec"]["containers"][0]["readOnlyRootFilesytem"] = True
    with pytest.raises(validator.ValidationError):
        validator.validate(deployment, validator.latest_version(), strict=True)


def test_container_runs_our_command_as_another_user_than_root() -> None:
    """It cannot be built everywhere; its lines can be read."""
    written = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    lines = [line.split(maxsplit=1) for line in written.splitlines() if line.strip() and not line.startswith("#")]
    known = {"FROM", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "ENTRYPOINT"}
    assert {instruction for instruction, _ in lines} <= known
    assert lines[0][0] == "FROM"
    of = dict(lines)
    assert (
        int(of["USER"]) == documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    )
    command = json.loads(of["ENTRYPOINT"])
    parsed = parse_command(command[2:], SERVE.flags, positionals=0)
    assert command[:2] == ["mcp-workbench", "serve"] and parsed.value("http") == f"0.0.0.0:{of['EXPOSE']}"
