"""The window's title, progress and notifications: which sequences go to which terminal, and only when something changed."""

from __future__ import annotations

import pytest

from kimi_tui.config.settings import NotifyConfig
from kimi_tui.tui.attention import Attention, draws_progress, notification, way_of

PUSH, POP = "\x1b[22;2t", "\x1b[23;2t"


@pytest.mark.parametrize(
    ("environ", "way", "progress"),
    [
        ({"TERM": "xterm-256color"}, "bell", False),
        ({"TERM": "xterm-kitty"}, "osc99", False),
        ({"TERM_PROGRAM": "ghostty"}, "osc9", True),
        ({"TERM_PROGRAM": "iTerm.app"}, "osc9", False),
        ({"TERM": "foot"}, "osc777", False),
        ({"VTE_VERSION": "7600"}, "osc777", False),
        ({"VTE_VERSION": "8000"}, "osc777", True),
        ({"VTE_VERSION": "8000", "TMUX": "/tmp/t,1,0"}, "bell", False),
        ({"WT_SESSION": "x"}, "bell", True),
    ],
)
def test_what_terminals_take(environ: dict[str, str], way: str, progress: bool) -> None:
    assert way_of("auto", environ) == way
    assert way_of("off", environ) == "off"
    assert draws_progress(environ) is progress


def test_notifications_hold_nothing_that_a_terminal_obeys() -> None:
    words = "app: \x1b]52;c;eA==\x07 is; done\x9c\nnow"
    for way in ("osc9", "osc777", "osc99"):
        said = notification(way, words, {})
        assert said.count("\x1b") == 2
        assert "\x07" not in said
        assert "\x9c" not in said
        assert "\n" not in said
    assert notification("osc777", words, {}).count(";") == 3
    wrapped = notification("osc9", "done", {"TMUX": "x"})
    assert wrapped == "\x1bPtmux;\x1b\x1b]9;done\x1b\x1b\\\x1b\\"
    assert notification("bell", words, {}) == "\x07"
    assert notification("off", words, {}) == ""


def test_the_title_follows_and_is_given_back() -> None:
    out: list[str] = []
    one = Attention(out.append, NotifyConfig(), {"WT_SESSION": "1"})
    one.end()
    one.follow(folder="app", title="", working=False, asking=False)
    one.follow(folder="app", title="Fix\x07 it", working=True, asking=False)
    one.follow(folder="app", title="Fix\x07 it", working=True, asking=False)
    one.follow(folder="app", title="Fix it", working=True, asking=True)
    one.tell("asks", asking=True)
    one.tell("done", asking=False)
    one.end()
    one.end()
    titles = ["app", "* app: Fix it", "? app: Fix it", ""]
    said = "".join(out)
    assert [part.partition("\x1b\\")[0] for part in said.split("\x1b]2;")[1:]] == titles
    assert said.startswith(PUSH)
    assert said.endswith(POP)
    assert (said.count(PUSH), said.count(POP)) == (1, 1)
    assert said.count("\x1b]9;4;3;0") == said.count("\x1b]9;4;0;0") == 1
    assert said.count("\x07") == 1
