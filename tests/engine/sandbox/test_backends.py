"""Which backend enforces a sandbox, and what is said where none can."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.sandbox import Capabilities, Sandbox
from mcp_workbench.errors import DownstreamError

ALL = Capabilities(landlock_abi=7, has_filters=True)
CONTAINED = Sandbox("contained", limits_files=True, read=("/usr",))


def refusal(sandbox: Sandbox, machine: Capabilities) -> str:
    with pytest.raises(DownstreamError) as caught:
        choose(sandbox, machine, "linux")
    assert caught.value.hint is not None and "bestEffort" in caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("sandbox", [Sandbox("off"), Sandbox("guard"), CONTAINED, CONTAINED._replace(network="none")])
def test_a_current_machine_enforces_every_profile(sandbox: Sandbox) -> None:
    assert choose(sandbox, ALL, "linux").missing == ()


@pytest.mark.parametrize(
    ("sandbox", "machine", "missing"),
    [
        (CONTAINED, Capabilities(0, True), "cannot limit its files"),
        (CONTAINED, Capabilities(7, False), "cannot keep it from Unix sockets"),
        (Sandbox("guard"), Capabilities(5, True), "cannot keep it from signalling your other programs"),
        (Sandbox("guard"), Capabilities(7, False), "cannot filter its system calls"),
        (CONTAINED._replace(network=("a.com",)), ALL, "cannot limit its network to hosts"),
        (CONTAINED._replace(unix_sockets=("/s",)), ALL, "cannot limit its Unix sockets"),
    ],
)
def test_an_unenforceable_confinement_stops_the_start_unless_best_effort(
    sandbox: Sandbox, machine: Capabilities, missing: str
) -> None:
    assert missing in refusal(sandbox, machine)
    assert any(missing in each for each in choose(sandbox._replace(is_best_effort=True), machine, "linux").missing)


def test_off_can_be_had_everywhere() -> None:
    for platform in ("linux", "darwin", "freebsd"):
        assert choose(Sandbox("off"), Capabilities(), platform).missing == ()


def test_a_backend_of_another_system_is_refused() -> None:
    with pytest.raises(DownstreamError, match="`seatbelt` does not exist here"):
        choose(Sandbox("guard", backend="seatbelt"), ALL, "linux")
