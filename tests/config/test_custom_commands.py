"""Commands of Markdown files: where they are found, what their names and places become, and what is passed over."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from kimi_tui.config import custom_commands as command_files
from kimi_tui.config.custom_commands import (
    MAX_BYTES,
    custom_commands,
    note_shown,
    were_shown,
)


def write(path: Path, text: str) -> None:
    """A file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_found_in_all_places_the_users_first(tmp_path: Path) -> None:
    work, config, home = tmp_path / "work", tmp_path / "config", tmp_path / "home"
    head = "---\ndescription: 'Say \x1b[2Jit'\nargument-hint: FILE\n---\n"
    write(config / "commands" / "Review_It.md", head + "Review $1, then $ARGUMENTS. $2$3")
    write(home / ".claude" / "commands" / "ship.md", "# Ship it\n\nPlease.")
    write(home / ".claude" / "skills" / "pdf" / "SKILL.md", "---\nname: pdf\n---\nRead PDFs.")
    several = "---\ndescription: >-\n  Paints\n  in gold\nlicense: MIT\n---\nPaint."
    write(home / ".config" / "agents" / "skills" / "paint" / "SKILL.md", several)
    write(home / ".kimi" / "skills" / "draw.md", "---\ndescription: Draws\n  lines.\n---\nDraw.")
    write(work / ".kimi-tui" / "commands" / "review-it.md", "Something else")
    write(work / ".claude" / "commands" / "check.md", "Check.")
    write(work / ".kimi" / "skills" / "deploy" / "SKILL.md", "Deploy.")
    found = {one.name: one for one in custom_commands(work, config, home)}
    assert {name: one.origin for name, one in found.items()} == {
        "review-it": "user",
        "ship": "user",
        "pdf": "user",
        "draw": "user",
        "paint": "user",
        "check": "folder",
        "deploy": "folder",
    }
    review = found["review-it"]
    assert (review.help, review.argument) == ("Say it", "FILE")
    assert review.with_arguments("'a b' c") == "Review a b, then 'a b' c. c"
    assert review.with_arguments("it's") == "Review it's, then it's. "
    many = review._replace(text="$ARGUMENTS " * 6_000)
    assert len(many.with_arguments("a")) == 12_000
    assert many.with_arguments("a" * 1_000) == f"{many.text}\n\n{'a' * 1_000}"
    assert found["ship"].help == "Ship it"
    assert found["ship"].with_arguments("now") == "# Ship it\n\nPlease.\n\nnow"
    assert found["ship"].with_arguments("") == "# Ship it\n\nPlease."
    assert str(home / ".claude" / "skills" / "pdf") in found["pdf"].text
    assert (found["paint"].help, found["draw"].help) == ("Paints in gold", "Draws lines.")
    assert found["draw"].text == "Draw."


def test_a_command_in_utf16_is_read_by_its_mark(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_bytes("\ufeffSay Grüße.\r\n".encode("utf-16-le"))
    (found,) = custom_commands(tmp_path / "work", tmp_path / "config", tmp_path / "home")
    assert found.text == "Say Grüße."


def test_what_is_odd_is_passed_over(tmp_path: Path) -> None:
    work, config = tmp_path / "work", tmp_path / "config"
    secret = tmp_path / "secret.md"
    secret.write_text("a key")
    folder = work / ".kimi-tui" / "commands"
    write(folder / "fine.md", "Fine.")
    write(folder / "2.md", "No word.")
    write(folder / "empty.md", "---\ndescription: x\n---\n")
    write(folder / "long.md", "x" * (MAX_BYTES + 1))
    write(folder / "no text.md", "A blank.")
    (folder / "link.md").symlink_to(secret)
    (folder / "hard.md").hardlink_to(secret)
    (folder / "folder.md").mkdir()
    (work / ".claude").symlink_to(tmp_path)
    write(tmp_path / "commands" / "outside.md", "Outside.")
    assert [one.name for one in custom_commands(work, config, None)] == ["fine"]
    assert custom_commands(tmp_path / "nowhere", config, None) == []


def test_a_skill_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("key")
    for name, target in (("plain", None), ("odd", tmp_path / "outside")):
        skill = tmp_path / "work/.claude/skills" / name / "SKILL.md"
        skill.parent.mkdir(parents=True)
        if target is None:
            skill.write_text("Do it.")
        else:
            skill.symlink_to(target)
    found = custom_commands(tmp_path / "work", tmp_path / "config", None)
    assert [one.name for one in found] == ["plain"]


@pytest.mark.parametrize("swapped", [".kimi-tui", ".kimi-tui/commands", ".kimi-tui/commands/git"])
def test_a_folder_that_becomes_a_link_after_it_was_listed_gives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    commands = tmp_path / "work/.kimi-tui/commands/git"
    commands.mkdir(parents=True)
    (commands / "commit.md").write_text("Commit.")
    outside = tmp_path / "outside"
    shutil.copytree(tmp_path / "work", outside)
    for file in outside.rglob("commit.md"):
        file.write_text("key")
    listed = command_files.os.scandir

    def scandir(place: Path) -> object:
        found = [*listed(place)]
        if Path(place).name == "git" and not (folder := tmp_path / "work" / swapped).is_symlink():
            folder.rename(tmp_path / "away")
            folder.symlink_to(outside / swapped)
        return contextlib.nullcontext(iter(found))

    monkeypatch.setattr(command_files.os, "scandir", scandir)
    assert custom_commands(tmp_path / "work", tmp_path / "config", None) == []
    assert (tmp_path / "work" / swapped).is_symlink()


@pytest.mark.exhaustive
def test_folders_are_in_the_names(tmp_path: Path) -> None:
    work, config, home = tmp_path / "work", tmp_path / "config", tmp_path / "home"
    write(config / "commands" / "Git_It" / "Commit.md", "Commit.")
    write(home / ".claude" / "commands" / "sc" / "build.md", "Build it.")
    claude = work / ".claude" / "commands"
    write(claude / "git.md", "Git.")
    write(claude / "git" / "commit.md", "Commit here.")
    write(claude / "a" / "b" / "c" / "deep.md", "Deep.")
    write(claude / "a" / "b" / "c" / "d" / "deeper.md", "Too deep.")
    write(
        work / ".claude" / "skills" / "paint" / "more" / "SKILL.md", "A folder of skills is none."
    )
    # Names that say something else than they are, or that a terminal would not show.
    for name in ("a:b", "..x", ".git", "x\x1b[2J", "\u202egit", "with blank", "x" * 41):
        write(claude / name / "x.md", "Odd.")
        write(claude / "git" / f"{name}.md", "Odd.")
    write(tmp_path / "elsewhere" / "x.md", "Outside.")
    (claude / "link").symlink_to(tmp_path / "elsewhere")
    (claude / "git" / "round").symlink_to(claude)
    (home / ".claude" / "commands" / "again").symlink_to(home / ".claude" / "commands")
    found = {one.name: one for one in custom_commands(work, config, home)}
    assert list(found) == [
        "git-it:commit",
        *("sc:build", "again:sc:build", "again:again:sc:build"),
        *("git", "git:commit", "a:b:c:deep"),
    ]
    assert (found["git:commit"].text, found["git:commit"].origin) == ("Commit here.", "folder")
    # Files at the top come before those in folders, of which only so many are read.
    for number in range(1_100):
        (claude / "many" / f"x{number}").mkdir(parents=True)
    write(claude / "many" / "x5" / "y.md", "Y.")
    write(claude / "zoo" / "last.md", "Last.")
    names = [one.name for one in custom_commands(work, config, None)]
    assert names[:3] == ["git-it:commit", "git", "git:commit"]
    assert "zoo:last" not in names


def test_what_was_shown_is_remembered_by_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path / ".kimi-tui" / "commands" / "go.md", "Go.")
    (one,) = custom_commands(tmp_path, tmp_path / "config", None)
    data = tmp_path / "data"
    assert were_shown(data) == []
    note_shown(data, one.digest)
    assert were_shown(data) == [one.digest]
    write(tmp_path / ".kimi-tui" / "commands" / "go.md", "Go away.")
    (other,) = custom_commands(tmp_path, tmp_path / "config", None)
    assert other.digest not in were_shown(data)
    (data / "shown_commands.json").write_text("[" * 100_000)
    assert were_shown(data) == []
    (data / "shown_commands.json").write_text("{not json")
    assert were_shown(data) == []
