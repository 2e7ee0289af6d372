"""Where our files live: the same places that platformdirs names, or one folder for all of them."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from kimi_tui import places


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
    assert places.config_dir() == platformdirs.user_config_path("kimi-tui", appauthor=False)
    assert places.data_dir() == platformdirs.user_data_path("kimi-tui", appauthor=False)


def test_one_folder_for_all(tmp_path: Path) -> None:
    environ = {"KIMI_TUI_HOME": str(tmp_path)}
    for place in (places.config_file, places.data_dir, places.log_file):
        assert place(environ).is_relative_to(tmp_path)


def test_paths_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert places.short(Path("/home/me/app")) == "~/app"
    assert places.short(Path("/home/me")) == "~"
    assert places.short(Path("/home/meme")) == "/home/meme"
