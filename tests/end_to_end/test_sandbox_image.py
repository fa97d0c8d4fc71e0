"""Servers in an image, behind the real workbench and an engine that runs them on this machine (`fake_engine`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import run
from tests.end_to_end.harness import Workbench, open_toolbox, unavailable
from tests.support.client import Json
from tests.support.processes import alive, descendants, eventually
from tests.support.workbench import scripted_entry

FAKE = Path(__file__).with_name("fake_engine.py")
IMAGE = "registry.example.com/server:1"
STUBBORN = ("--ignore-eof", "--ignore-term")
SECRET = "s3cr3t\nof several lines"


class Engine:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        folder.mkdir()
        program = folder / name
        text = FAKE.read_text()
        program.write_text(f"#!{shutil.which('python3')}\n{text}")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin", "DOCKER_HOST": "unix:///nowhere"}

    def calls(self, action: str) -> list[tuple[list[str], dict[str, str]]]:
        path = self.folder / "calls"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [(words, env) for words, env in found if words[0] == action]

    def containers(self) -> dict[str, int]:
        places = (self.folder / "containers").iterdir() if (self.folder / "containers").exists() else ()
        return {place.name: json.loads(place.read_text())[0] for place in places}


@pytest.fixture(params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return Engine(tmp_path / "engine", request.param)


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    return Workbench(tmp_path)


def entry(engine: Engine, *flags: object, sandbox: Json | None = None, **settings: Any) -> Json:
    described = {"image": IMAGE, "backend": engine.name, **(sandbox or {})}
    # The image has no environment of its own here.
    return scripted_entry(*flags, sandbox=described, **settings)


def values(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


async def test_a_server_runs_in_an_image_with_the_limits_of_its_profile(workbench: Workbench, engine: Engine) -> None:
    work = workbench.folder / "work"
    sandbox: Json = {"profile": "sealed", "read": ["/etc/hostname"], "write": [str(work)]}
    box = {"s": entry(engine, sandbox=sandbox, env={"TOKEN": SECRET, "PATH": "/somewhere"}, cwd=str(work))}
    async with workbench.serving({"box": box}, env=engine.environment()) as client:
        assert not (await client.use_tool("box", "s", "echo", {"text": "hi"})).get("isError")
        (status,) = [each for each in json.loads(run("status", "--json").stdout) if each["pid"] == client.pid]
        (server,) = status["servers"]
        assert (server["sandbox"]["image"], server["sandbox"]["backend"]) == (IMAGE, engine.name)
        assert server["sandbox"]["missing"] == []
        assert f"sandbox: sealed from the image {IMAGE}" in run("status", "--long").stdout
    ((words, environment),) = engine.calls("run")
    image = words.index(IMAGE)
    assert {"--rm", "--interactive", "--init", "--read-only"} <= set(words[:image])
    assert [values(words, name) for name in ("--cap-drop", "--network", "--pids-limit", "--memory", "--pull")] == [
        ["ALL"],
        ["none"],
        ["65"],
        [str(1 << 30)],
        ["never"],
    ]
    assert values(words, "--security-opt") == ["no-new-privileges"] and values(words, "--log-driver") == ["none"]
    assert f"data={1 << 30}:{1 << 30}" in values(words, "--ulimit")
    mounts = values(words, "--mount")
    assert f"type=bind,source={work},target={work}" in mounts
    assert "type=bind,source=/etc/hostname,target=/etc/hostname,readonly" in mounts
    (private,) = [each for each in mounts if "/homes/" in each]
    assert not private.endswith("readonly")
    # Nothing of this machine's system, and none of the secrets where everybody can read them.
    assert not any(each.startswith(("type=bind,source=/usr", "type=bind,source=/lib")) for each in mounts)
    assert "s3cr3t" not in " ".join(words)
    assert environment["TOKEN"] == SECRET and environment["PATH"] != "/somewhere", "its own program is found by ours"
    assert environment["DOCKER_HOST"] == "unix:///nowhere"
    assert engine.containers() == {}


async def test_image_without_a_command_runs_its_default(workbench: Workbench, engine: Engine) -> None:
    box = {"s": {"args": ["--flag"], "sandbox": {"image": IMAGE, "backend": engine.name}}}
    async with workbench.serving({"box": box}, env=engine.environment()) as client:
        # It is `cat`, which is no server.
        assert "s" in unavailable(await open_toolbox(client, "box"))
    words, _ = engine.calls("run")[0]
    assert words[words.index(IMAGE) :] == [IMAGE, "--flag"] and "--entrypoint" not in words
    assert "--workdir" not in words and "--network" not in words and "--pull" not in words


async def test_a_server_that_does_not_end_is_removed_with_its_container(workbench: Workbench, engine: Engine) -> None:
    async with workbench.serving({"box": {"s": entry(engine, *STUBBORN)}}, env=engine.environment()) as client:
        await client.use_tool("box", "s", "echo", {"text": "hi"})
        ((name, pid),) = engine.containers().items()
    # What removes it may take longer than the workbench waits for it.
    await eventually(lambda: any(name in words for words, _ in engine.calls("rm")), what="the removal of the container")
    await eventually(lambda: not alive(pid), what="the end of the container")


async def test_nothing_is_left_of_a_container_when_the_workbench_is_killed(
    workbench: Workbench, engine: Engine
) -> None:
    serving = workbench.serving({"box": {"s": entry(engine, *STUBBORN)}}, env=engine.environment(), expect_exit=False)
    async with serving as client:
        await client.use_tool("box", "s", "echo", {"text": "hi"})
        (pid,) = engine.containers().values()
        started = descendants(client.pid)
        client.process.kill()
        await eventually(lambda: not alive(pid) and not engine.containers(), what="the end of the container")
        await eventually(lambda: not any(map(alive, started)), what="the end of everything that was started")


async def test_leftovers_of_a_workbench_are_removed_by_the_next(workbench: Workbench, engine: Engine) -> None:
    box = {"box": {"s": entry(engine, *STUBBORN)}}
    async with workbench.serving(box, env=engine.environment(), expect_exit=False) as client:
        await client.use_tool("box", "s", "echo", {"text": "hi"})
        ((left, pid),) = engine.containers().items()
        others = descendants(client.pid)
        os.kill(client.pid, signal.SIGSTOP)
        # All at once, as when a service manager kills a group: nobody is left to clean up.
        for each in (*(others - {pid}), client.pid):
            os.kill(each, signal.SIGKILL)
        await eventually(lambda: not any(map(alive, others - {pid})), what="their end")
        assert alive(pid)
    async with workbench.serving(box, env=engine.environment()) as client:
        await client.use_tool("box", "s", "echo", {"text": "hi"})
        # One comes after the other.
        await eventually(
            lambda: not alive(pid) and left not in engine.containers(), what="the end of the container that was left"
        )
        assert len(engine.containers()) == 1


async def test_container_engine_without_daemon_stops_the_server_with_a_hint(
    workbench: Workbench, engine: Engine
) -> None:
    (engine.folder / "no-daemon").touch()
    box = {"s": entry(engine, sandbox={"bestEffort": True})}
    async with workbench.serving({"box": box}, env=engine.environment()) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
    text = json.dumps(found)
    assert f"{engine.name}: Cannot connect to the Docker daemon" in text and "install Podman" in text
    assert engine.calls("run") == []


async def test_a_limit_that_the_engine_cannot_enforce_stops_the_server_unless_best_effort(
    workbench: Workbench, engine: Engine
) -> None:
    (engine.folder / "no-limits").touch()
    box = {
        "strict": entry(engine, sandbox={"processes": 5}),
        "lenient": entry(engine, sandbox={"processes": 5, "bestEffort": True}),
        "hosts": entry(engine, sandbox={"network": ["example.org"]}),
    }
    async with workbench.serving({"box": box}, env=engine.environment()) as client:
        found = unavailable(await open_toolbox(client, "box"))
    assert found.keys() == {"strict", "hosts"}
    assert "cannot limit the processes of a container" in found["strict"]["reason"]
    assert "cannot limit the network of a container to hosts" in found["hosts"]["reason"]
    ((words, _),) = engine.calls("run")
    assert "--pids-limit" not in words


async def test_output_of_the_engine_is_in_the_error(workbench: Workbench, engine: Engine) -> None:
    box = {"s": entry(engine, sandbox={"image": "missing"})}
    async with workbench.serving({"box": box}, env=engine.environment()) as client:
        (found,) = unavailable(await open_toolbox(client, "box")).values()
    assert "missing: image not known" in json.dumps(found)
