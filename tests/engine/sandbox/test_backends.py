"""Which backend enforces a sandbox, and what is said where none can."""

from __future__ import annotations

import pytest

from mcp_workbench.engine.sandbox.backends import choose
from mcp_workbench.engine.sandbox.sandbox import Capabilities, Sandbox
from mcp_workbench.errors import DownstreamError

ALL = Capabilities(landlock_abi=7, has_filters=True)
# A kernel without Landlock, where `bwrap` works.
OLD = Capabilities(has_filters=True, why_no_bwrap=lambda: None)
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
        (CONTAINED._replace(unix_sockets=("/s",)), OLD, "cannot keep it from abstract Unix sockets"),
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


@pytest.mark.parametrize(
    ("sandbox", "machine", "backend"),
    [
        (CONTAINED, ALL._replace(why_no_bwrap=lambda: None), "landlock"),
        (CONTAINED, OLD, "bwrap"),
        (Sandbox("guard"), OLD, "bwrap"),
        (CONTAINED._replace(unix_sockets=("/s",)), ALL._replace(why_no_bwrap=lambda: None), "bwrap"),
        (CONTAINED._replace(network=("a.com",)), OLD, "bwrap"),
        (CONTAINED._replace(backend="bwrap"), ALL._replace(why_no_bwrap=lambda: None), "bwrap"),
    ],
)
def test_the_cheapest_backend_that_enforces_all_of_it_is_used(
    sandbox: Sandbox, machine: Capabilities, backend: str
) -> None:
    chosen = choose(sandbox, machine, "linux")
    assert (chosen.backend.name, chosen.missing) == (backend, ())


def test_choosing_landlock_does_not_try_bwrap() -> None:
    def tried() -> str | None:
        raise AssertionError

    sandbox = Sandbox("guard", is_asked=False, is_best_effort=True)
    assert choose(sandbox, Capabilities(why_no_bwrap=tried), "linux").backend.name == "landlock"
    assert choose(CONTAINED, ALL._replace(why_no_bwrap=tried), "linux").backend.name == "landlock"


@pytest.mark.parametrize(
    ("trouble", "hint"),
    [
        ("bwrap is not installed", "apt install bubblewrap"),
        ("bwrap: setting up uid map: Permission denied", "apparmor_parser -r"),
        ("bwrap: No permissions to create new namespace", "apparmor_parser -r"),
    ],
)
def test_reason_bwrap_is_unavailable_comes_with_a_remedy(trouble: str, hint: str) -> None:
    hosts = CONTAINED._replace(network=("a.com",))
    machine = ALL._replace(why_no_bwrap=lambda: trouble)
    with pytest.raises(DownstreamError) as caught:
        choose(hosts, machine, "linux")
    assert trouble in caught.value.message and hint in (caught.value.hint or "")
    # It would be no use at all, so what is enforced is what Landlock can.
    for sandbox in (hosts, hosts._replace(backend="bwrap")):
        chosen = choose(sandbox._replace(is_best_effort=True), machine, "linux")
        assert chosen.backend.name == "landlock" and len(chosen.missing) == 1


def test_a_backend_that_was_asked_for_and_cannot_be_used_is_missing() -> None:
    sandbox = CONTAINED._replace(backend="bwrap")
    with pytest.raises(DownstreamError, match="cannot use `bwrap`; bwrap is not installed"):
        choose(sandbox, ALL, "linux")
    assert choose(sandbox._replace(is_best_effort=True), ALL, "linux").missing == ("cannot use `bwrap`",)
