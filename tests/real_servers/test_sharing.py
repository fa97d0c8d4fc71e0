"""Clients of the official SDK share published servers, while front ends and the workbench are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.sharing import Setup, shared

pytestmark = [pytest.mark.network, pytest.mark.node, pytest.mark.timeout(400)]


@pytest.mark.requirement("sharing.equal-servers", "sharing.ask")
async def test_twelve_servers_are_twelve_processes_for_clients_of_both_eras(
    tmp_path: Path, sockets_folder: Path, node_servers: Path, python_servers: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    setup = Setup(folder, sockets_folder, node_servers / "node_modules" / ".bin", python_servers)
    found = await shared(setup, clients=4, seconds=5.0, kill_pause=1.0)
    assert found["wrong"] == []
    assert found["serverProcesses"] == 12 == len(setup.servers.toolbox)
    assert found["right"] >= 4 * 12
