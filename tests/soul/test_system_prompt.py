"""The system prompt names the place and holds the project's notes, whatever they are."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
from support.odd_files import KINDS, put

from kimi_tui.prompts import prompt
from kimi_tui.soul.project_notes import MAX_BYTES
from kimi_tui.soul.system_prompt import adapted_prompt, build_system_prompt

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
    notes.write_bytes(b"\xff\xfd" + b"n" * (MAX_BYTES + 10))
    text = build_system_prompt(tmp_path, {}, TODAY)
    assert text.count("n" * 1_000) == (MAX_BYTES - 2) // 1_000
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
            "TOOLS",
            "DMAIL",
            "OS",
            "SHELL",
            "DATE",
            "LISTING",
            "REPOSITORY",
            "ID",
            "COMMAND",
            "HOW",
            "JOBS",
            "AGENTS_MD",
            "PATH",
            "TEXT",
            "INSTRUCTIONS",
            "OUTPUT",
            "USER",
            "AGENT",
            "CHECKPOINT",
            "FACTS",
            "TOKENS",
            "SOURCE",
            "NAMES",
            "WHY",
            "BEFORE",
            "NOW",
            "WORDS",
            "SUBJECTS",
            "FOLDERS",
            "MARK",
            "QUERY",
            "SKILLS",
            "WHAT",
            "CHANGES",
            "PATHS",
            "CHARACTERS",
            "SCHEMA",
            "ROLE",
            "KINDS",
            "FAULTS",
            "FUTURES",
            "HISTORY",
        ],
        "$x",
    )
    folder = Path(prompt.__code__.co_filename).parent
    names = [str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.md")]
    assert len(names) >= 7
    for name in names:
        assert prompt(name, **places)


def test_a_prompt_as_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("# Tools\nUse make.\n\n# Checkpoints and D-Mail\nNone.\n")
    both = build_system_prompt(tmp_path, {}, TODAY)
    plain = build_system_prompt(tmp_path, {}, TODAY, dmail=False)
    assert "D-Mail" not in plain.partition("# This session")[0]
    assert "checkpoint" not in plain.partition("# This session")[0].lower()
    # The prompt stays byte for byte the same if nothing has to change, and after a change back.
    assert adapted_prompt(both, tools=True, dmail=True) is both
    assert adapted_prompt(plain, tools=True, dmail=False) is plain
    assert adapted_prompt(both, tools=True, dmail=False) == plain
    assert adapted_prompt(plain, tools=True, dmail=True) == both
    none = adapted_prompt(both, tools=False, dmail=False)
    assert adapted_prompt(plain, tools=False, dmail=False) == none
    assert adapted_prompt(none, tools=True, dmail=True) == both
    head, _, rest = none.partition("# This session")
    assert "\n# No tools\n" in head
    assert "\n# Tools\n" not in head
    assert "through tools" not in head
    # The project's notes are the project's, whatever their headings are.
    assert rest == both.partition("# This session")[2]


def test_a_prompt_of_another_program_is_sent_as_it_is() -> None:
    theirs = "You are Kimi CLI.\n\n# Tools\n\nx\n\n# This session\n\ny"
    assert adapted_prompt(theirs, tools=False, dmail=False) == theirs


@pytest.mark.parametrize("how", ["link", "hard link", *KINDS])
def test_notes_that_are_not_a_file_of_the_folder_alone_are_not_quoted(
    tmp_path: Path, how: str
) -> None:
    work, key = tmp_path / "work", tmp_path / "id_rsa"
    work.mkdir()
    key.write_text("PRIVATE KEY")
    notes = work / "AGENTS.md"
    match how:
        case "link":
            notes.symlink_to("../id_rsa")
        case "hard link":
            os.link(key, notes)
        case _:
            put(notes, how)
    text = build_system_prompt(work, {}, TODAY)
    assert "PRIVATE KEY" not in text
    assert len(text) < 2 * MAX_BYTES
    is_told = "`AGENTS.md` is not quoted here" in text
    assert is_told == (how in ("link", "hard link", "zero", "dangling"))
