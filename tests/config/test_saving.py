"""Saving a choice: what else stands in the file stays, the key is for its owner alone, nothing wrong is written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kimi_tui.config.choosing import Choice, Overrides, choose
from kimi_tui.config.model import ConfigError
from kimi_tui.config.reading import read_config
from kimi_tui.config.saving import save_choice

CHOICE = Choice(
    provider="moonshot",
    base_url="https://api.moonshot.ai/v1",
    model="kimi-k3",
    api_key='sk-"odd"\\key',
    window=262_144,
    capabilities=("image_in", "thinking"),
)


def test_what_was_chosen_is_what_is_used_next_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    saved = save_choice(path, CHOICE)
    assert saved.notices == ()
    assert read_config(path) == saved
    assert choose(saved, Overrides(), {}) == CHOICE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["config.toml"]


def test_a_file_that_others_could_read_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("")
    path.chmod(0o644)
    save_choice(path, CHOICE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_comments_and_other_tables_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '# mine\ntheme = "light"  # bright\n\n[keys]\ncompact = "ctrl+k"\n\n'
        '[providers.other]\nbase_url = "http://localhost/v1"  # here\n'
    )
    config = save_choice(path, CHOICE)
    text = path.read_text()
    for kept in ("# mine", "# bright", "# here", '[keys]\ncompact = "ctrl+k"'):
        assert kept in text
    assert config.theme == "light"
    assert set(config.providers) == {"other", "moonshot"}


def test_another_server_of_the_same_name_gets_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    save_choice(path, CHOICE)
    other = CHOICE._replace(base_url="https://api.moonshot.cn/v1", api_key="sk-two")
    config = save_choice(path, other)
    assert config.providers["moonshot"].api_key == CHOICE.api_key
    assert config.providers["moonshot-2"].api_key == "sk-two"
    found = choose(config, Overrides(), {})
    assert isinstance(found, Choice)
    assert (found.base_url, found.api_key) == (other.base_url, "sk-two")


def test_the_same_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    save_choice(path, CHOICE)
    before = path.read_bytes()
    save_choice(path, CHOICE)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "providers = 3\n",
        "providers = { moonshot = 3 }\n",
        "models.kimi-k3.provider = 'x'\nmodels.kimi-k3 = 4\n",
        "not toml [",
    ],
)
def test_what_cannot_be_edited_safely_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        save_choice(path, CHOICE)
    assert path.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text('theme = "light"\n')
    link = tmp_path / "config.toml"
    link.symlink_to(real)
    save_choice(link, CHOICE)
    assert link.is_symlink()
    assert read_config(real).default_model == "kimi-k3"


def test_a_disk_that_refuses_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('theme = "light"\n')

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kimi_tui.config.saving.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_choice(path, CHOICE)
    assert path.read_text() == 'theme = "light"\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_a_text_that_would_say_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('theme = "light"\n')
    monkeypatch.setattr("kimi_tui.config.saving._edited", lambda *_: 'default_model = "kimi-k3"\n')
    with pytest.raises(ConfigError, match="not changed"):
        save_choice(path, CHOICE)
    assert path.read_text() == 'theme = "light"\n'
