from __future__ import annotations

import pytest

from mcp_workbench.cli.result_output import MAX_IMAGE_BYTES, protocol_of, shown


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({}, None),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM_PROGRAM": "WezTerm"}, "iterm2"),
        # It may or may not, by a setting that the environment does not tell.
        ({"TERM_PROGRAM": "vscode"}, None),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, None),
        ({"TERM": "dumb", "TERM_PROGRAM": "iTerm.app"}, None),
    ],
)
def test_only_terminals_that_are_known_to_show_images_get_them(environ: dict[str, str], protocol: str | None) -> None:
    assert protocol_of(environ) == protocol


def test_an_image_is_written_as_the_terminal_wants_it() -> None:
    assert shown(b"image", "image/png", {"TERM_PROGRAM": "iTerm.app"}) == (
        b"\x1b]1337;File=inline=1;size=5:aW1hZ2U=\x07\n"
    )
    written = shown(b"x" * 5000, "image/png", {"TERM": "xterm-kitty"})
    assert written is not None
    assert written.startswith(b"\x1b_Ga=T,f=100,m=1;") and b"\x1b\\\x1b_Gm=0;" in written


def test_unsupported_content_is_left_to_other_programs() -> None:
    kitty = {"TERM": "xterm-kitty"}
    assert shown(b"image", "image/jpeg", kitty) is None
    assert shown(b"audio", "audio/wav", {"TERM_PROGRAM": "iTerm.app"}) is None
    assert shown(b"x" * (MAX_IMAGE_BYTES + 1), "image/png", kitty) is None
    assert shown(b"image", "image/png", {}) is None
