"""What the state server holds: bound to its place, its time and its cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_workbench.cluster.seal import SEAL_FORMAT, Expired, OtherVersion, Seal, SealRefused, new_key, read_key
from mcp_workbench.errors import ConfigError

KEY = os.urandom(32)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


def place(seal: Seal, principal: str, name: str) -> tuple[str, str, str]:
    return "session", principal, seal.hidden("session", principal, name)


def test_value_is_read_by_another_instance_with_the_same_key(clock: Clock) -> None:
    one, other = Seal(KEY, "prod", clock), Seal(KEY, "prod", clock)
    sealed = one.close("session", "ann", "id", b"value", 60)
    assert b"value" not in sealed and b"ann" not in sealed
    opened = other.open(*place(other, "ann", "id"), sealed)
    assert (opened.name, opened.value) == ("id", b"value")


@pytest.mark.parametrize(("principal", "name"), [("ben", "id"), ("ann", "other")])
def test_value_moved_to_another_user_or_name_is_refused(clock: Clock, principal: str, name: str) -> None:
    seal = Seal(KEY, "prod", clock)
    sealed = seal.close("session", "ann", "id", b"value", 60)
    with pytest.raises(SealRefused, match="for this place"):
        seal.open(*place(seal, principal, name), sealed)


def test_value_of_another_cluster_or_key_is_refused(clock: Clock) -> None:
    seal = Seal(KEY, "prod", clock)
    for other in (Seal(KEY, "test", clock), Seal(os.urandom(32), "prod", clock)):
        with pytest.raises(SealRefused, match="this cluster's key"):
            seal.open(*place(seal, "ann", "id"), other.close("session", "ann", "id", b"value", 60))


def test_changed_value_is_refused(clock: Clock) -> None:
    seal = Seal(KEY, "prod", clock)
    sealed = seal.close("session", "ann", "id", b"value", 60)
    for at in range(1, len(sealed)):
        changed = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        with pytest.raises(SealRefused):
            seal.open(*place(seal, "ann", "id"), changed)
    with pytest.raises(SealRefused):
        seal.open(*place(seal, "ann", "id"), sealed[:10])


def test_older_value_is_refused_once_a_newer_one_was_seen(clock: Clock) -> None:
    writer, reader = Seal(KEY, "prod", clock), Seal(KEY, "prod", clock)
    first = writer.close("session", "ann", "id", b"first", 60)
    second = writer.close("session", "ann", "id", b"second", 60)
    assert reader.open(*place(reader, "ann", "id"), second).value == b"second"
    for seal in (reader, writer):
        with pytest.raises(SealRefused, match="older"):
            seal.open(*place(seal, "ann", "id"), first)
    assert reader.open(*place(reader, "ann", "id"), second).value == b"second"


def test_instance_with_a_slow_clock_writes_newer_values_than_it_read() -> None:
    ahead, behind = Seal(KEY, "prod", Clock(1000.0)), Seal(KEY, "prod", Clock(990.0))
    behind.open(*place(behind, "ann", "id"), ahead.close("session", "ann", "id", b"first", 60))
    second = behind.close("session", "ann", "id", b"second", 60)
    assert ahead.open(*place(ahead, "ann", "id"), second).value == b"second"


def test_value_replayed_after_its_time_is_refused(clock: Clock) -> None:
    seal = Seal(KEY, "prod", clock)
    sealed = seal.close("session", "ann", "id", b"value", 60)
    clock.now += 61
    with pytest.raises(Expired):
        seal.open(*place(seal, "ann", "id"), sealed)


def test_value_of_another_version_is_distinguished(clock: Clock) -> None:
    seal = Seal(KEY, "prod", clock)
    sealed = seal.close("session", "ann", "id", b"value", 60)
    with pytest.raises(OtherVersion):
        seal.open(*place(seal, "ann", "id"), bytes((SEAL_FORMAT + 1,)) + sealed[1:])


def test_notice_is_sealed_and_no_value_passes_for_one(clock: Clock) -> None:
    seal = Seal(KEY, "prod", clock)
    sealed = seal.close_notice(b"told")
    assert b"told" not in sealed
    assert seal.open_notice(sealed) == b"told"
    with pytest.raises(SealRefused):
        seal.open_notice(seal.close("session", "ann", "id", b"value", 60))


def test_key_is_read_from_a_private_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    path.write_text(new_key() + "\n")
    path.chmod(0o600)
    assert len(read_key(str(path))) == 32
    path.chmod(0o604)
    with pytest.raises(ConfigError, match="every user"):
        read_key(str(path))


@pytest.mark.parametrize("content", ["", "not base64!", "c2hvcnQ="])
def test_file_without_a_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cluster.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold the key"):
        read_key(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key(str(tmp_path / "missing"))
