"""What a hostile server can do in an image, in each profile, tried by a real process in a real container.

As root, whose files are all files: what keeps a server from them is the container alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.engine.config.sandbox_settings import SandboxConfig
from tests.engine.sandbox.attack_runner import PYTHON, attack_in
from tests.engine.sandbox.attacked_image import IMAGE, AttackedImage
from tests.engine.sandbox.test_thread_backend_attacks import MEANT, RESOURCES
from tests.support.ordinary_user import folder_of_ordinary_user, in_own_process

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("podman") is None, reason="needs Podman"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give Podman the control groups that it knows"),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"needs {PYTHON}"),
]
# Its own: whoever listens there is in the container too.
OWN_NETWORK = {"listen"}
# It has none: a container is removed as a whole.
TAG = {"take off the tag of its workbench"}


@pytest.fixture(scope="module")
def image() -> Iterator[AttackedImage]:
    with folder_of_ordinary_user("/var/tmp") as folder:
        found = AttackedImage(folder)
        found.import_it()
        trouble = in_own_process(lambda: found.trouble("--network", "none"), found.prepare)
        if trouble is not None:
            pytest.skip(f"Podman cannot run a container here: {trouble}")
        yield found


def succeeding(image: AttackedImage, **settings: object) -> set[str]:
    sandbox = SandboxConfig(image=IMAGE, backend="podman", **settings)  # type: ignore[arg-type]
    with folder_of_ordinary_user("/var/tmp") as folder:
        found: dict[str, bool] = in_own_process(lambda: attack_in(Path(folder), sandbox), image.prepare)
    return {name for name, has_succeeded in found.items() if has_succeeded}


def test_contained_server_reaches_only_its_grants(image: AttackedImage) -> None:
    assert succeeding(image, profile="contained", network="none") == MEANT | TAG | OWN_NETWORK | RESOURCES


def test_contained_server_with_network_does_not_reach_loopback(image: AttackedImage) -> None:
    trouble = in_own_process(lambda: image.trouble(), image.prepare)
    if trouble is not None:
        pytest.skip(f"Podman has no network for containers here: {trouble}")
    assert succeeding(image, profile="contained") == MEANT | TAG | OWN_NETWORK | RESOURCES


def test_sealed_cannot_use_up_the_machine_either(image: AttackedImage) -> None:
    assert succeeding(image, profile="sealed") == MEANT | TAG | OWN_NETWORK


def test_limits_are_those_that_were_set(image: AttackedImage) -> None:
    found = succeeding(image, profile="contained", network="none", processes=50, memory=256 << 20)
    assert found == MEANT | TAG | OWN_NETWORK
