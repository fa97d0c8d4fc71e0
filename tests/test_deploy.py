"""The examples in deploy/: HAProxy accepts its file, and the configuration in them is one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`install` of another system has other options")
def test_compose_gives_the_key_to_the_user_of_the_instances_alone(tmp_path: Path) -> None:
    """Compose has no owner and no mode for files that it mounts."""
    (compose,) = documents("compose.yaml")
    user = next(line for line in (DEPLOY / "Containerfile").read_text("utf-8").splitlines() if line.startswith("USER"))
    copying = compose["services"]["secrets"]
    words = [*copying["entrypoint"], *copying["command"]]
    assert f"--owner={user.split()[1]}" in words
    for name in ("cluster.key", "token"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "copied").mkdir()
    # As ourselves, in this folder.
    here = [word.replace("/given", str(tmp_path)).replace("/copied", str(tmp_path / "copied")) for word in words]
    done = subprocess.run([word for word in here if not word.startswith(("--owner", "--group"))], check=False)
    assert done.returncode == 0
    assert [each.stat().st_mode & 0o777 for each in (tmp_path / "copied").iterdir()] == [0o400, 0o400]
    for each in compose["services"].values():
        if "build" in each:
            assert "secrets:/run/workbench:ro" in each["volumes"]
            assert each["depends_on"]["secrets"] == {"condition": "service_completed_successfully"}


def test_compose_tells_haproxy_where_the_instances_are() -> None:
    (compose,) = documents("compose.yaml")
    instances = {
        f"INSTANCE_{name.upper()}": f"{name}:8420" for name, each in compose["services"].items() if "build" in each
    }
    assert compose["services"]["haproxy"]["environment"] == instances
    written = (DEPLOY / "haproxy.cfg").read_text("utf-8")
    assert all(f"${{{name}-" in written for name in instances)


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
