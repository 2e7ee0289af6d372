"""The dialog that asks for a text: when Enter answers, its keys, and what a draft and a fault of it do to what was written."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.still_screen import still_screen

from kimi_tui.tui.dialogs import text_dialog
from kimi_tui.tui.dialogs.text_dialog import (
    Drafting,
    TextDialog,
    TextQuestion,
    can_send,
    dialog_keys,
    text_with_draft,
)
from kimi_tui.tui.terminal_input import PaintWatch

QUESTION = TextQuestion("D-Mail", "What?", "It goes back.")


async def draft() -> str:
    raise RuntimeError("no draft")


async def stop() -> None:
    return None


def test_an_empty_text_is_an_answer_only_where_it_may_be() -> None:
    assert not can_send(QUESTION, "  \n")
    assert can_send(QUESTION, "x")
    assert can_send(QUESTION._replace(may_be_empty=True), "")


def test_a_draft_never_replaces_what_was_written() -> None:
    assert text_with_draft("", "draft\n") == "draft"
    assert text_with_draft(" mine ", "draft") == "mine\n\ndraft"
    assert text_with_draft("mine", "") == "mine"


def test_while_the_model_drafts_only_that_can_be_stopped() -> None:
    keys = dialog_keys(QUESTION, can_draft=True, drafting=True)
    assert keys == (("Esc", "stop the draft"),)


@pytest.mark.exhaustive
async def test_in_a_narrow_terminal_the_draft_and_the_way_out_are_named(tmp_path: Path) -> None:
    async with still_screen(tmp_path, size=(60, 20)) as one:
        one.app.push_screen(TextDialog(QUESTION, Drafting(draft, stop)))
        shown = await one.sees("Ctrl+L ask for a draft")
        assert "Enter send" in shown
        assert "Esc cancel" in shown


@pytest.mark.exhaustive
async def test_a_fault_while_the_model_drafts_is_told_and_one_can_write_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with still_screen(tmp_path) as one:
        answers: list[str | None] = []
        page = TextDialog(QUESTION, Drafting(draft, stop))
        one.app.push_screen(page, answers.append)
        await one.until(lambda: page.area.has_focus)
        await one.pilot.press(*"mine", "ctrl+l")
        await one.sees("kimi-tui had an internal error")
        assert "no draft" in caplog.text
        await one.pilot.press("s", "enter")
        await one.until(lambda: answers == ["mines"])


@pytest.mark.exhaustive
async def test_an_enter_that_nobody_meant_for_it_compacts_nothing(tmp_path: Path) -> None:
    question = QUESTION._replace(kind="compaction", may_be_empty=True, low=True)
    async with still_screen(tmp_path) as one:
        answers: list[str | None] = []
        text_dialog.PaintWatch = PaintWatch
        TextDialog.QUIET_S = 600.0
        page = TextDialog(question)
        one.app.push_screen(page, answers.append)
        await one.until(lambda: page.area.has_focus)
        # This imitates a second Enter after the one that opened the dialog.
        await one.pilot.press("enter")
        await one.sees("The key was pressed too early; press it again.")
        assert answers == []
        # This imitates keys that were typed while the program was stopped.
        TextDialog.QUIET_S = 0.2
        await asyncio.sleep(0.3)
        page.ignore_early_keys()
        await one.pilot.press("enter")
        assert answers == []
        await asyncio.sleep(0.3)
        await one.pilot.press("enter")
        await one.until(lambda: answers == [""])
