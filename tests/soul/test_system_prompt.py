"""The system prompt names the place and holds the project's notes, whatever they are."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from kimi_tui.prompts.load import prompt
from kimi_tui.soul.system_prompt import MAX_AGENTS_BYTES, build_system_prompt

TODAY = date(2026, 3, 2)


def test_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "a\nb").write_text("")
    text = build_system_prompt(tmp_path, {"SHELL": "/bin/zsh"}, TODAY)
    assert str(tmp_path) in text
    assert "/bin/zsh" in text
    assert "2026-03-02" in text
    assert "src/\n" in text
    assert "a?b" in text
    assert "SendDMail" in text
    assert "Project notes" not in text
    assert "${" not in text


def test_notes_are_taken_as_they_are_and_cut_at_32_kib(tmp_path: Path) -> None:
    notes = tmp_path / "AGENTS.md"
    notes.write_text("Use ${WORK_DIR} and $HOME.\n")
    assert "Use ${WORK_DIR} and $HOME." in build_system_prompt(tmp_path, {}, TODAY)
    notes.write_bytes(b"\xff\xfe" + b"n" * (MAX_AGENTS_BYTES + 10))
    text = build_system_prompt(tmp_path, {}, TODAY)
    assert text.count("n" * 1_000) == (MAX_AGENTS_BYTES - 2) // 1_000
    assert "cut here" in text


def test_odd_folders(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").mkdir()
    for number in range(100):
        (tmp_path / f"{number:03}").write_text("")
    text = build_system_prompt(tmp_path, {}, TODAY)
    assert "and 21 more" in text
    assert "cannot be listed" in build_system_prompt(tmp_path / "gone", {}, TODAY)


def test_every_prompt_can_be_filled_in() -> None:
    places = dict.fromkeys(
        [
            "WORK_DIR",
            "OS",
            "SHELL",
            "DATE",
            "LISTING",
            "AGENTS_MD",
            "PATH",
            "TEXT",
            "INSTRUCTIONS",
            "CHECKPOINT",
            "FACTS",
            "TOKENS",
            "SOURCE",
            "NAMES",
            "WHY",
        ],
        "$x",
    )
    names = [path.stem for path in Path(prompt.__code__.co_filename).parent.glob("*.md")]
    assert len(names) >= 7
    for name in names:
        assert prompt(name, **places)
