"""The locations of our files: the same places that platformdirs names, or one folder for all of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import platformdirs
import pytest

import kimi_tui
from kimi_tui import app_paths
from kimi_tui.logging_setup import start_logging
from kimi_tui.session.prompt_history import append_history


@pytest.mark.parametrize("variable", ["", "/x/y", "  "])
def test_the_places_are_those_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("KIMI_TUI_HOME", raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        if variable:
            monkeypatch.setenv(name, variable)
        else:
            monkeypatch.delenv(name, raising=False)
    assert app_paths.config_dir() == platformdirs.user_config_path("kimi-tui", appauthor=False)
    assert app_paths.data_dir() == platformdirs.user_data_path("kimi-tui", appauthor=False)


def test_one_folder_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIMI_TUI_HOME", str(tmp_path))
    for place in (app_paths.config_file, app_paths.data_dir, app_paths.log_file):
        assert place().is_relative_to(tmp_path)


def test_paths_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert app_paths.short(Path("/home/me/app")) == "~/app"
    assert app_paths.short(Path("/home/me")) == "~"
    assert app_paths.short(Path("/home/meme")) == "/home/meme"


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove the home folder, as for a user of a container who is in no list; return the temporary folder."""
    for name in ("HOME", "KIMI_TUI_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "KIMI_SHARE_DIR"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_uid: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_without_a_home_there_is_a_place_of_the_users_own(
    homeless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = homeless / f"kimi-tui-{os.getuid()}"
    assert app_paths.data_dir() == app_paths.config_dir() == place
    assert app_paths.kimi_cli_share_dir() == place / ".kimi"
    assert app_paths.short(Path("/x/y")) == "/x/y"
    assert str(place) in app_paths.no_home_notice()
    assert "KIMI_TUI_HOME" in app_paths.no_home_notice()
    assert app_paths.expanded("~/x") == Path("~/x")
    monkeypatch.setenv("KIMI_TUI_HOME", "/k")
    assert (app_paths.data_dir(), app_paths.config_dir()) == (Path("/k"), Path("/k"))
    assert app_paths.no_home_notice() == ""


@pytest.mark.parametrize("squatter", ["open to all", "a link"])
def test_a_place_that_somebody_else_has_made_is_not_used(homeless: Path, squatter: str) -> None:
    place = homeless / f"kimi-tui-{os.getuid()}"
    if squatter == "a link":
        (homeless / "other").mkdir(mode=0o700)
        place.symlink_to("other")
    else:
        place.mkdir()
        place.chmod(0o777)
    assert not app_paths.config_file().exists()
    assert app_paths.config_dir() != place
    with pytest.raises(OSError, match="not a folder that belongs to this user alone"):
        app_paths.make_private(place / "sessions")


@pytest.mark.parametrize("home", ["/proc/nowhere", "/"])
def test_a_home_that_takes_nothing_is_none(
    homeless: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    assert app_paths.home_dir() is None
    assert app_paths.data_dir() == homeless / f"kimi-tui-{os.getuid()}"


def test_all_folders_that_are_made_are_for_their_owner_only(tmp_path: Path) -> None:
    app_paths.make_private(tmp_path / "kt" / "logs" / "x")
    for folder in ("kt", "kt/logs", "kt/logs/x"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_the_log_and_the_history_make_their_folders_private(tmp_path: Path) -> None:
    start_logging(tmp_path / "a" / "logs" / "x.log")
    append_history(tmp_path / "b" / "history" / "x.jsonl", "hello")
    for folder in ("a", "a/logs", "b", "b/history"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_a_place_of_the_home_folder_is_named_once_and_moved_by_absolute_paths_alone() -> None:
    environ = {"HOME": "/home/u", "XDG_CONFIG_HOME": "/home/u/.config/", "XDG_DATA_HOME": "data"}
    names = (".config/git/config", ".local/share/x", ".configs")
    assert app_paths.home_places(environ, *names) == [f"/home/u/{name}" for name in names]
    environ["XDG_DATA_HOME"] = "/data"
    assert app_paths.home_places(environ, "", ".local/share", ".local/share/x") == [
        *("/home/u", "/home/u/.local/share", "/data"),
        *("/home/u/.local/share/x", "/data/x"),
    ]


def test_the_reason_of_an_error_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    missing = tmp_path / "a\x1b[2J\nb"
    with pytest.raises(OSError, match="No such file") as found:
        missing.read_bytes()
    assert app_paths.reason_of(found.value) == "No such file or directory (~/a b)"
    with pytest.raises(OSError, match="No such file") as found:
        os.stat(os.fsencode(tmp_path / "c"))
    assert app_paths.reason_of(found.value) == "No such file or directory (~/c)"
    # A write has no name, and an entry of an open folder has only its own.
    full = OSError(28, "No space left on device")
    assert app_paths.reason_of(full) == "No space left on device"
    assert app_paths.reason_of(full, tmp_path) == "No space left on device (~)"
    assert app_paths.reason_of(OSError(13, "Permission denied", "c"), tmp_path / "c") == (
        "Permission denied (~/c)"
    )
    assert app_paths.reason_of(ValueError("it is damaged"), tmp_path) == "it is damaged"
    # A sentence that names the file names it once; another file is named all the same.
    missing = tmp_path / "c"
    with pytest.raises(OSError, match="No such file") as found:
        missing.read_bytes()
    bare = "No such file or directory"
    assert app_paths.reason_of(found.value, named_in_text=missing) == bare
    assert app_paths.reason_of(found.value, named_in_text="~/c") == bare
    assert app_paths.reason_of(found.value, named_in_text=tmp_path) == f"{bare} (~/c)"
    # Some errors have no words of the system.
    assert app_paths.reason_of(OSError("read: short")) == "read: short"
    assert app_paths.bare_reason(OSError()) == "OSError"


def test_reasons_of_errors_are_said_in_one_way() -> None:
    package = Path(kimi_tui.__file__).parent
    own_way = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"error\.strerror or|\{error\.strerror\}[^\\]", path.read_text("utf-8"))
    ]
    assert own_way == ["app_paths.py"]
