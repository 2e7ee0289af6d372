"""Header and footer: what they say in their width, and the branch that the header names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from support.cases import each

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.projection.session_state import SessionState
from kimi_tui.tui.compare.screen import HINTS as COMPARE_HINTS
from kimi_tui.tui.frame_rows import HeaderText, fit_heading, fit_hints, model_name
from kimi_tui.tui.glyphs import UNICODE
from kimi_tui.tui.main.hints import hints

HEADING = HeaderText("Fix quoted fields", "~/work/importer", "main", "kimi-k2 thinking", "ask")


def test_the_header_loses_branch_then_model_then_folder() -> None:
    parts = ["branch", "model", "folder"]
    left: list[list[str]] = []
    for width in range(120, 20, -1):
        fitted = fit_heading(HEADING, width, "…")
        shown = [part for part in parts if getattr(fitted, part)]
        if not left or left[-1] != shown:
            left.append(shown)
        assert fitted.mode == "ask"
    assert left == [["branch", "model", "folder"], ["model", "folder"], ["folder"], []]


def test_a_long_folder_loses_its_middle_before_the_title_loses_anything() -> None:
    heading = HeaderText(
        "Fix the quoted fields", "~/work/clients/some-company/importer", mode="ask"
    )
    whole = fit_heading(heading, 76, "…")
    assert (whole.title, whole.folder) == (heading.title, heading.folder)
    shorter = fit_heading(heading, 56, "…")
    assert (shorter.title, shorter.folder) == (heading.title, "~/…/importer")
    shortest = fit_heading(heading, 39, "…")
    assert (shortest.title, shortest.folder) == ("Fix the quoted fiel…", "…/importer")
    assert fit_heading(heading, 29, "…") == ("Fix the quoted fields", "", "", "", "ask", "")


def test_what_has_no_sandbox_is_said_where_all_is_allowed() -> None:
    modes = {
        mode: fit_heading(HEADING._replace(mode=mode, sandbox=False), 120, "…").mode
        for mode in MODE_TITLES
    }
    assert modes == {**MODE_TITLES, "all": "allow all, no sandbox"}
    assert fit_heading(HEADING._replace(mode="all"), 120, "…").mode == "allow all"


@given(st.text(max_size=80), st.text(max_size=40), st.integers(30, 150))
def test_the_header_never_overflows(title: str, folder: str, width: int) -> None:
    fitted = fit_heading(HeaderText(title, folder, "main", "m", "all"), width, "…")
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


@each(
    "model, name",
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


@given(st.integers(0, 120))
def test_the_footer_shows_whole_pairs_only(width: int) -> None:
    pairs = hints("prompt", SessionState(running=True), {}, UNICODE, 0.0)
    shown = fit_hints(pairs, width)
    assert [pair for pair in shown if pair[0] != "Esc"] == [
        pair for pair in pairs if pair[0] != "Esc"
    ][: sum(pair[0] != "Esc" for pair in shown)]
    assert cell_len("   ".join(f"{key} {meaning}" for key, meaning in shown)) <= width


@pytest.mark.parametrize("width", [9, 20, 56, 76, 116])
def test_the_footer_names_the_way_out_before_anything_else(width: int) -> None:
    pairs = hints("timeline", SessionState(), {}, UNICODE, 0.0)
    assert ("Esc", "close") in fit_hints(pairs, width)
    assert fit_hints((("Enter", "send"),), 3) == ()


def test_the_footer_of_a_comparison_has_all_its_keys_in_eighty_cells() -> None:
    assert fit_hints(COMPARE_HINTS, 76) == COMPARE_HINTS
    assert fit_hints(COMPARE_HINTS, 56)[-1] == ("Esc", "back")
