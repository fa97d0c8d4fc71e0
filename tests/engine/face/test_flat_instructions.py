"""The instructions of the face flat: every server is named, and all of it fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.engine.face.flat import Introduced, flat_instructions

MOST = 2_048
HEAD = "Tools of several servers in one list. Servers:"


def many(count: int, length: int) -> list[Introduced]:
    return [Introduced(f"server{number}", None, f"{number} " + "word " * (length // 5)) for number in range(count)]


@pytest.mark.requirement("flat.instructions")
@given(
    st.lists(
        st.builds(
            Introduced,
            st.text(min_size=1, max_size=80),
            st.none() | st.text(max_size=400),
            st.none() | st.text(max_size=4_000) | st.integers(0, 2_000).map("long ".__mul__),
        ),
        max_size=40,
    )
)
def test_they_are_never_longer_than_clients_read(servers: list[Introduced]) -> None:
    text = flat_instructions(HEAD, servers)
    assert len(text.encode()) <= MOST
    assert text.startswith(HEAD)


@pytest.mark.requirement("flat.instructions")
def test_every_server_is_named_before_one_of_them_says_anything() -> None:
    servers = many(20, 5_000)
    names, _, said = flat_instructions(HEAD, servers).partition("\n\n")
    assert names.splitlines()[1:] == [f"- server{number}" for number in range(20)]
    assert said.startswith("From server0:\n0 word")


@pytest.mark.requirement("flat.instructions")
def test_text_that_fits_is_unchanged() -> None:
    servers = [Introduced("one", None, "First.\n\n- a list\n"), Introduced("two"), Introduced("three", "is\ndead", "x")]
    assert flat_instructions(HEAD, servers) == (
        f"{HEAD}\n- one\n- two\n- three (not available: is dead)\n\nFrom one:\nFirst.\n\n- a list\n\n\nFrom three:\nx"
    )


@pytest.mark.requirement("flat.instructions")
def test_a_short_text_leaves_its_share_to_long_ones() -> None:
    servers = [*many(1, 50_000), Introduced("short", None, "Short."), *many(1, 50_000)]
    text = flat_instructions(HEAD, servers)
    assert "From short:\nShort." in text
    assert MOST - 10 < len(text.encode()) <= MOST


@pytest.mark.requirement("flat.instructions")
def test_more_servers_than_can_be_named_are_counted() -> None:
    text = flat_instructions(HEAD, many(1_000, 100))
    assert text.startswith(f"{HEAD} server0, server1") and text.endswith(" more")
    assert len(text.encode()) <= MOST


def test_toolbox_descriptions_are_shown_while_there_is_room() -> None:
    servers = [Introduced("desk/notes", about="Notes and the clock."), Introduced("desk/clock")]
    assert flat_instructions("Servers:", servers) == "Servers:\n- desk/notes: Notes and the clock.\n- desk/clock"
    many = [Introduced(f"box{number}/server", about="About it. " * 20) for number in range(60)]
    text = flat_instructions("Servers:", many)
    assert len(text.encode()) <= 2048 and "box59/server" in text and "About" not in text
