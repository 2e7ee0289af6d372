"""What the frame of the main screen shows, without a screen: state, header, footer, commands, notices, branch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.binding import Binding

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.tui.approval.model import choices
from kimi_tui.tui.commands.table import COMMANDS
from kimi_tui.tui.compare.screen import HINTS as COMPARE_HINTS
from kimi_tui.tui.glyphs import ASCII, UNICODE
from kimi_tui.tui.keyboard import key_name, key_of
from kimi_tui.tui.main.footer import fit as fit_footer
from kimi_tui.tui.main.footer import hints
from kimi_tui.tui.main.header import Heading, branch_of, model_name
from kimi_tui.tui.main.header import fit as fit_header
from kimi_tui.tui.main.help import PLACES, sections
from kimi_tui.tui.main.notices import Shown, with_notice, without
from kimi_tui.tui.main.state import MainState, reduce, settled
from kimi_tui.tui.prompt.area import PromptArea
from kimi_tui.tui.transcript.transcript import Transcript
from kimi_tui.wire.events import (
    ApprovalRequest,
    ApprovalResolved,
    CompactionBegin,
    CompactionEnd,
    ContextReverted,
    Event,
    EventRecord,
    LineChanged,
    SteerQueued,
    SteerTaken,
    StepBegin,
    StepRetry,
    TextPart,
    TurnBegin,
    TurnEnd,
)

BEGIN = MainState()


def after(*events: Event, state: MainState = BEGIN) -> MainState:
    """The state after some events, a second apart."""
    for number, event in enumerate(events, 1):
        state = reduce(state, EventRecord(number, 1000.0 + number, event))
    return state


REVERT = ContextReverted("rewind", 1, "u", 2, 1, 1, 0, 10, 5)

# --- the state


def test_a_turn_from_its_begin_to_its_end() -> None:
    state = after(TurnBegin("Fix  the\nparser"), StepBegin(1), StepBegin(2))
    assert (state.title, state.running, state.turn_at, state.step) == (
        "Fix the parser",
        True,
        1001.0,
        2,
    )
    assert not after(TurnEnd("done"), state=state).running


def test_the_title_is_the_first_thing_said() -> None:
    assert after(TurnBegin("one"), TurnBegin("two")).title == "one"
    assert cell_len(after(TurnBegin("x" * 500)).title) <= 60
    assert after(TurnBegin("\x1b[2Jhi"), state=MainState()).title == "hi"


@pytest.mark.parametrize(
    ("events", "can"),
    [
        ([TurnBegin("a"), TurnEnd("done")], False),
        ([TurnBegin("a"), TurnEnd("error", "x")], True),
        ([TurnBegin("a"), TurnEnd("interrupted")], True),
        ([TurnBegin("a"), TurnEnd("error"), TurnBegin("", resumed=True)], False),
        ([TurnBegin("a"), TurnEnd("done"), REVERT], True),
        ([TurnBegin("a"), TurnEnd("done"), REVERT, LineChanged("undo", 2, 1, "")], False),
        ([TurnBegin("a"), TurnEnd("done"), LineChanged("jump", 2, 1, "", is_open=True)], True),
        ([TurnBegin("a"), TurnEnd("error"), LineChanged("undo", 2, 1, "", is_open=True)], True),
    ],
)
def test_when_enter_goes_on(events: list[Event], can: bool) -> None:
    assert after(*events).can_resume is can


def test_a_rewind_to_a_message_leaves_nothing_to_go_on_from() -> None:
    import dataclasses

    assert not after(dataclasses.replace(REVERT, prompt="again")).can_resume


def test_a_retry_counts_down_until_something_comes() -> None:
    state = after(TurnBegin("a"), StepRetry(1, 2, 3, 4.0, "overloaded", 529))
    assert state.retry_until == 1006.0
    assert after(TextPart("x"), state=state).retry_until == 0.0


def test_approvals_and_steers_come_and_go() -> None:
    asked = ApprovalRequest("r", "k", "Shell", "Run?", "ls")
    state = after(asked, SteerQueued("s", "more"))
    assert state.approvals == (asked,)
    assert [queued.text for queued in state.queued] == ["more"]
    state = after(ApprovalResolved("r", "once"), SteerTaken("s", "more"), state=state)
    assert (state.approvals, state.queued) == ((), ())
    assert after(TurnEnd("interrupted"), state=after(asked)).approvals == ()


def test_compacting() -> None:
    state = after(CompactionBegin(10, False))
    assert state.compacting
    assert not after(CompactionEnd(10, 2), state=state).compacting


def test_a_history_that_breaks_off_is_over() -> None:
    asked = ApprovalRequest("r", "k", "Shell", "Run?", "ls")
    state = settled(after(TurnBegin("a"), SteerQueued("s", "b"), asked), running=False)
    assert (state.running, state.can_resume, state.ready) == (False, True, True)
    assert (state.queued, state.approvals) == ((), ())


# --- header and footer

HEADING = Heading("Fix quoted fields", "~/work/importer", "main", "kimi-k2 thinking", "ask")


def test_the_header_loses_branch_then_model_then_folder() -> None:
    parts = ["branch", "model", "folder"]
    left: list[list[str]] = []
    for width in range(120, 20, -1):
        fitted = fit_header(HEADING, width)
        shown = [part for part in parts if getattr(fitted, part)]
        if not left or left[-1] != shown:
            left.append(shown)
        assert fitted.mode == "asks first"
    assert left == [["branch", "model", "folder"], ["model", "folder"], ["folder"], []]


def test_a_long_folder_loses_its_middle_before_the_title_loses_anything() -> None:
    heading = Heading("Fix the quoted fields", "~/work/clients/some-company/importer", mode="ask")
    whole = fit_header(heading, 76)
    assert (whole.title, whole.folder) == (heading.title, heading.folder)
    shorter = fit_header(heading, 56)
    assert (shorter.title, shorter.folder) == (heading.title, "~/…/importer")
    shortest = fit_header(heading, 46)
    assert (shortest.title, shortest.folder) == ("Fix the quoted fiel…", "…/importer")
    assert fit_header(heading, 36) == ("Fix the quoted fields", "", "", "", "asks first", "")


@given(st.text(max_size=80), st.text(max_size=40), st.integers(30, 150))
def test_the_header_never_overflows(title: str, folder: str, width: int) -> None:
    fitted = fit_header(Heading(title, folder, "main", "m", "all"), width)
    cells = cell_len(fitted.title) + sum(
        gap + cell_len(part)
        for gap, part in (
            (3, fitted.folder),
            (2, fitted.branch),
            (3, fitted.model),
            (3, fitted.mode),
        )
        if part
    )
    assert cells <= width or not fitted.folder


@given(st.integers(0, 120))
def test_the_footer_shows_whole_pairs_only(width: int) -> None:
    pairs = hints("prompt", MainState(running=True), {}, UNICODE, 0.0)
    shown = fit_footer(pairs, width)
    assert [pair for pair in shown if pair[0] != "Esc"] == [
        pair for pair in pairs if pair[0] != "Esc"
    ][: sum(pair[0] != "Esc" for pair in shown)]
    assert cell_len("   ".join(f"{key} {meaning}" for key, meaning in shown)) <= width


@pytest.mark.parametrize("width", [9, 20, 56, 76, 116])
def test_the_footer_names_the_way_out_before_anything_else(width: int) -> None:
    pairs = hints("timeline", MainState(), {}, UNICODE, 0.0)
    assert ("Esc", "close") in fit_footer(pairs, width)
    assert fit_footer((("Enter", "send"),), 3) == ()


def test_the_footer_of_a_comparison_has_all_its_keys_in_eighty_cells() -> None:
    assert fit_footer(COMPARE_HINTS, 76) == COMPARE_HINTS
    assert fit_footer(COMPARE_HINTS, 56)[-1] == ("Esc", "back")


def test_at_sixty_cells_the_timeline_can_be_filtered() -> None:
    shown = fit_footer(hints("timeline", MainState(), {}, UNICODE, 0.0), 56)
    assert [key for key, _ in shown] == ["↑↓", "Enter", "/", "Esc"]


def test_the_footer_follows_what_happens() -> None:
    def said(state: MainState, place: str = "prompt") -> str:
        pairs = hints(place, state, {}, UNICODE, 1000.0)  # type: ignore[arg-type]
        return "   ".join(f"{key} {meaning}" for key, meaning in pairs)

    assert said(MainState(running=True)) == (
        "Enter steer   Esc stop   Ctrl+T timeline   Ctrl+O compact   Ctrl+P commands   F1 help"
    )
    assert "compact" not in said(MainState())
    assert "go on" in said(MainState(can_resume=True))
    assert "try now" in said(MainState(running=True, retry_until=1002.0))
    assert said(MainState(), "timeline").startswith("↑↓ move   Enter preview   / filter")
    assert cell_len(said(MainState(), "timeline")) <= 116
    # While a filter is typed, letters and brackets are what it looks for.
    assert said(MainState(), "filter") == "Enter go there   Esc all steps   Ctrl+U clear"
    assert "fold" not in said(MainState(), "found")


def test_changed_keys_are_the_ones_that_are_shown() -> None:
    assert key_of("compact", {"compact": "ctrl+k"}) == "Ctrl+K"
    pairs = hints("prompt", MainState(running=True), {"compact": ""}, UNICODE, 0.0)
    assert "compact" not in [meaning for _, meaning in pairs]


# --- the help


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_help_names_every_command(glyphs: object) -> None:
    words = str(sections(COMMANDS, {}, glyphs))  # type: ignore[arg-type]
    assert all(f"/{command.name}" in words for command in COMMANDS)


def helped(keys: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """What the help says of each key, by area."""
    return {title: dict(pairs) for title, pairs in sections(COMMANDS, keys, UNICODE)}


def test_the_help_lists_every_key_of_every_place() -> None:
    areas = {area: title for title, area, _ in PLACES} | {"summary": "D-Mails and summaries"}
    said = helped({})
    listed = " ".join(said["Prompt"]) + " ".join(said["Approvals"])
    for name, keys in DEFAULT_KEYS.items():
        area, dot, _ = name.partition(".")
        first = key_name(keys)
        if dot:
            rows = said[areas[area]]
            assert any(first in row.split(", ") for row in rows), name
            assert all(rows.values()), name
        elif name in COMMANDS:
            assert said["Commands"][COMMANDS[name].usage].endswith(f"  {first}"), name
        else:
            assert first in listed, name
    for bindings in (PromptArea.BINDINGS, Transcript.BINDINGS):
        assert all(isinstance(one, Binding) and one.description for one in bindings)
    assert "Alt+D" in listed
    assert "Ctrl+Y" in listed
    questions = [choices(request()) for request in (asks, asks_a_dmail)]
    keys_of_answers = {choice.key for answers in questions for choice in answers}
    assert keys_of_answers <= set(", ".join(said["Approvals"]).split(", "))


def asks() -> ApprovalRequest:
    """A question with every answer."""
    return ApprovalRequest("1", "k", "WriteFile", "?", "x", session_offer="Yes, always")


def asks_a_dmail() -> ApprovalRequest:
    """The one of a letter."""
    return ApprovalRequest("1", "k", "SendDMail", "?", "x", kind="dmail")


def test_names_of_the_help_are_those_of_actions() -> None:
    names = {name for _, _, rows in PLACES for names, _ in rows for name in names}
    assert names <= DEFAULT_KEYS.keys()


def test_help_and_footer_follow_the_configuration() -> None:
    keys = {"send": "ctrl+s", "escape": "f9", "chat.fold": "x", "timeline.undo": "z"}
    idle = dict(hints("prompt", MainState(), keys, UNICODE, 0.0))
    assert (idle["Ctrl+S"], idle["Enter"]) == ("send", "new line")
    running = dict(hints("prompt", MainState(running=True), keys, UNICODE, 0.0))
    assert (running["Ctrl+S"], running["F9"]) == ("steer", "stop")
    assert dict(hints("chat", MainState(), keys, UNICODE, 0.0))["x"] == "unfold"
    assert dict(hints("timeline", MainState(), keys, UNICODE, 0.0))["z"] == "undo"
    said = helped(keys)
    assert said["Prompt"]["Ctrl+S"].startswith("send")
    assert not said["Prompt"].get("Enter", "").startswith("send")
    assert "x" in said["Chat"]
    assert "z, U" in said["Timeline"]
    # Where it does something else, it breaks no line.
    taken = dict(hints("prompt", MainState(), {"send": "f4", "help": "enter"}, UNICODE, 0.0))
    assert taken["Shift+Enter"] == "new line"
    assert dict(hints("prompt", MainState(), {}, UNICODE, 0.0))["Enter"] == "send"


# --- notices


def test_a_passing_notice_gives_way_and_a_lasting_one_stays() -> None:
    lasting = Shown("error", "The disk is full", topic="disk")
    passing = Shown("info", "Copied", until=16.0)
    board = with_notice(with_notice((), lasting, 10.0), passing, 10.0)
    assert board == (lasting, passing)
    again = Shown("info", "Forked", until=17.0)
    assert with_notice(board, again, 11.0) == (lasting, again)
    assert without(board, "", 20.0) == (lasting,)
    assert without(board, "disk", 11.0) == (passing,)
    assert (
        with_notice(board, lasting._replace(text="Still full"), 11.0)[0].text != "The disk is full"
    )


# --- the branch


def test_the_branch_is_read_from_head_alone(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (tmp_path / "deep").mkdir()
    assert branch_of(tmp_path / "deep") == "feature/x"
    (git / "HEAD").write_text("a" * 40 + "\n")
    assert branch_of(tmp_path) == "aaaaaaa"
    (git / "HEAD").write_text("nonsense \x1b[2J")
    assert branch_of(tmp_path) == ""


def test_worktrees_and_odd_places_have_a_branch_or_none(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "HEAD").write_text("ref: refs/heads/wt\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {real}\n")
    assert branch_of(tree) == "wt"
    (tree / ".git").write_text("gitdir: /dev/zero\n")
    assert branch_of(tree) == ""
    assert branch_of(Path("/")) == ""


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("kimi-k3", "kimi-k3"),
        ("moonshotai/kimi-k3", "moonshotai/kimi-k3"),
        ("/srv/models/qwen/qwen3-8b-q4.gguf", "qwen3-8b-q4.gguf"),
        ("./qwen3.gguf", "qwen3.gguf"),
        ("C:\\models\\qwen3.gguf", "qwen3.gguf"),
        ("accounts/fireworks/models/kimi-k3", "kimi-k3"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_model_that_is_a_path_is_named_by_its_last_part(model: str, name: str) -> None:
    assert model_name(model) == name
