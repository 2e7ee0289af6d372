"""The table of all settings: nothing is missing in it, and the page in docs/ is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kimi_tui.config.file import parse_config, read_config, save_setting
from kimi_tui.config.reference import page, parsed, settings, value_of
from kimi_tui.config.settings import TABLES, Config, ConfigError, declared

DOCS = Path(__file__).parents[2] / "docs"


def test_every_field_of_the_configuration_is_declared_as_a_setting() -> None:
    of_their_own = {
        "search",
        "checks",
        "external_agents",
        "models",
        "providers",
        "keys",
        "source",
        "notices",
    }
    assert declared(Config).keys() | TABLES.keys() | of_their_own == {*Config._fields}
    # The rules of D-Mails are a list of tables, which has a section of its own.
    fields = {name: [*table._fields] for name, table in TABLES.items()}
    fields["dmail"].remove("rules")
    assert {name: [*declared(table)] for name, table in TABLES.items()} == fields
    listed = [one for one in settings() if one.check.kind != "key"]
    assert all(one.meaning for one in listed)
    assert {"theme", "loop_control.patience"} < {one.key for one in listed}


def test_the_page_in_docs_is_made_of_it() -> None:
    made = "python -m kimi_tui.config.reference > docs/configuration.md"
    assert (DOCS / "configuration.md").read_text() == page(), f"make it anew: {made}"


def test_its_example_can_be_read() -> None:
    toml = page().partition("```toml\n")[2].partition("```")[0]
    config = parse_config(toml.encode(), Path("config.toml"))
    assert config.notices == ()
    assert config.default_model == "kimi-k3"
    assert config.models["kimi-k3"].prices is not None


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\ntheme = 'light'  # bright\n")
    texts = {"number": "0.5", "flag": "on", "list": "a, b,\n c", "key": "ctrl+g"}
    for setting in settings():
        if setting.key == "default_model" or setting.key.startswith("keys.") != (
            setting.key == "keys.chat.fold"
        ):
            continue
        text = (
            setting.check.choices[-1]
            if setting.check.choices
            else texts.get(setting.check.kind, "high")
        )
        if setting.check.kind == "number" and setting.default != 0.85:
            text = "7"
        config = save_setting(path, setting.key, parsed(setting, text))
        assert config.notices == ()
        assert config == read_config(path)
        written = value_of(config, setting)
        wanted = parsed(setting, text)
        assert written in (wanted, ("a", "b", "c"), (text,)), setting.key
        again = save_setting(path, setting.key, None)
        assert value_of(again, setting) == setting.default
    assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("loop_control.max_steps_per_turn", 0, "must be a whole number from 1"),
        ("keys.send", "tab", "is tab, which already belongs to complete"),
        ("keys.chat.copy", "k", "is k, which already belongs to chat.above"),
        ("keys.compact", "f8", "keys.timeline is f8, which already belongs to compact"),
        ("default_model", "nobody", "names"),
        ("mode", "all", "must be one of"),
    ],
)
def test_what_the_file_cannot_hold_is_not_written(
    tmp_path: Path, key: str, value: object, why: str
) -> None:
    path = tmp_path / "config.toml"
    text = "theme = 'light'\n[keys]\ncompact = 'f7'\ntimeline = 'f8'\n"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        save_setting(path, key, value)
    assert path.read_text() == text


def test_ours_begins_as_a_copy_of_kimi_clis(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.toml", tmp_path / "ours" / "config.toml"
    theirs.write_text(
        '[providers.one]\nbase_url = "http://127.0.0.1:9/v1"\ntype = "kimi"\n'
        '[models.one]\nprovider = "one"\nmodel = "m"\n'
    )
    config = save_setting(ours, "theme", "nord", base=theirs)
    assert (config.theme, [*config.models]) == ("nord", ["one"])
    assert ours.stat().st_mode & 0o777 == 0o600
    # Once our own file exists, it is the one that counts.
    theirs.write_text("")
    assert [*save_setting(ours, "glyphs", "ascii", base=theirs).models] == ["one"]


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_written_means_the_default(text: str) -> None:
    assert [parsed(one, text) for one in settings()] == [None] * len(tuple(settings()))
    assert all(value_of(Config(), one) == one.default for one in settings())
