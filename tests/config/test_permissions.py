"""The permissions for a project are the person's own, belong to one folder, and no repository can give them."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from kimi_tui.config.permissions import ProjectPermissions, shown_rule


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "own" / "permissions.json"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def given(file: Path, work: Path, *rules: str) -> ProjectPermissions:
    permissions = ProjectPermissions(file, work)
    for rule in rules:
        permissions.add(rule)
    return permissions


def test_they_are_stored_for_the_owner_alone_and_revoked(file: Path, work: Path) -> None:
    permissions = given(file, work, "git log", "npm test", "git log")
    assert permissions.rules == ("git log", "npm test")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ProjectPermissions(file, work).rules == ("git log", "npm test")
    permissions.remove("git log")
    assert ProjectPermissions(file, work).rules == ("npm test",)
    permissions.remove("npm test")
    assert json.loads(file.read_bytes()) == {"folders": []}


def test_another_folder_has_none_of_them(file: Path, work: Path, tmp_path: Path) -> None:
    given(file, work, "git log")
    (work / "below").mkdir()
    (tmp_path / "work2").mkdir()
    for other in (work / "below", tmp_path / "work2", tmp_path, tmp_path / "WORK"):
        assert ProjectPermissions(file, other).rules == ()


def test_they_stay_behind_where_the_folder_is_moved_or_replaced(
    file: Path, work: Path, tmp_path: Path
) -> None:
    given(file, work, "git log")
    work.rename(tmp_path / "moved")
    assert ProjectPermissions(file, tmp_path / "moved").rules == ()
    # A folder in its place is another one, also behind a link.
    work.mkdir()
    assert ProjectPermissions(file, work).rules == ()
    work.rmdir()
    (tmp_path / "hostile").mkdir()
    work.symlink_to(tmp_path / "hostile")
    assert ProjectPermissions(file, work).rules == ()
    # A link to the very folder is that folder.
    work.unlink()
    (tmp_path / "moved").rename(work)
    (tmp_path / "link").symlink_to(work)
    assert ProjectPermissions(file, tmp_path / "link").rules == ("git log",)
    # A yes in the folder that took the place replaces what its former folder had.
    work.rename(tmp_path / "moved")
    work.mkdir()
    given(file, work, "ls")
    assert [one["rules"] for one in json.loads(file.read_bytes())["folders"]] == [["ls"]]


def test_a_file_inside_the_work_folder_counts_for_nothing(work: Path, tmp_path: Path) -> None:
    given(tmp_path / "permissions.json", work, "git log")
    brought = work / "app" / "permissions.json"
    brought.parent.mkdir()
    brought.write_bytes((tmp_path / "permissions.json").read_bytes())
    os.chmod(brought, 0o600)
    (tmp_path / "app").symlink_to(brought.parent)
    for file in (brought, tmp_path / "app" / "permissions.json"):
        permissions = ProjectPermissions(file, work)
        assert not permissions.is_usable
        assert permissions.rules == ()
        with pytest.raises(ValueError, match="inside this folder"):
            permissions.add("ls")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"folders": 1}',
        '{"folders": [1, null, {}, {"path": 1}]}',
        "[" * 200_000,
        '{"folders": [{"path": "PATH", "inode": true, "file_system": 0, "rules": ["ls"]}]}',
    ],
)
def test_a_damaged_file_gives_nothing(file: Path, work: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text.replace("PATH", str(work)))
    os.chmod(file, 0o600)
    permissions = ProjectPermissions(file, work)
    assert permissions.rules == ()
    if text in ("", "{", "[]", '{"folders": 1}'):
        assert "are ignored" in permissions.trouble
        # The damaged file is not thrown away.
        with pytest.raises(ValueError):
            permissions.add("ls")
        assert file.read_text() == text


def test_a_file_of_others_a_link_or_a_pipe_gives_nothing(
    file: Path, work: Path, tmp_path: Path
) -> None:
    permissions = given(file, work, "ls")
    os.chmod(file, 0o620)
    assert permissions.rules == ()
    assert "other users can change it" in permissions.trouble
    os.chmod(file, 0o600)
    file.rename(tmp_path / "elsewhere.json")
    file.symlink_to(tmp_path / "elsewhere.json")
    assert permissions.rules == ()
    file.unlink()
    os.mkfifo(file)
    assert permissions.rules == ()


def test_rules_that_a_person_could_not_read_are_not_taken(file: Path, work: Path) -> None:
    permissions = given(file, work, "ls")
    for rule in ("ls\nrm", "a\x1b[2J", "x" * 2_000, "a\u202eb"):
        with pytest.raises(ValueError):
            permissions.add(rule)
    entries = json.loads(file.read_bytes())
    entries["folders"][0]["rules"] = ["ls\nrm", 5, None, "ls", "x" * 2_000]
    file.write_text(json.dumps(entries))
    assert permissions.rules == ("ls",)


def test_several_at_once_lose_none(file: Path, work: Path) -> None:
    rules = [f"tool:t{n}#1" for n in range(8)]
    threads = [threading.Thread(target=given, args=(file, work, rule)) for rule in rules]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(ProjectPermissions(file, work).rules) == set(rules)


def test_how_they_read() -> None:
    assert shown_rule("git log") == "git log"
    assert shown_rule("tool:mcp__git__status#0a1b") == "tool mcp__git__status"
    assert shown_rule("host:example.com") == "host example.com"
    assert shown_rule("hooks:#0a1b") == "the hooks of this folder"
