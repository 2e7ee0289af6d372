"""Reading config.toml: what is right is used, what is wrong is named, what is not TOML is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui.config.model import Config, ConfigError, LoopControl, ModelPrices
from kimi_tui.config.reading import parse_config, read_config

PATH = Path("config.toml")
WHOLE = """
default_model = "k"
default_thinking = true
theme = "light"
glyphs = "ascii"
reduced_motion = true
telemetry = true

[models.k]
provider = "moonshot"
model = "kimi-k3"
max_context_size = 262144
capabilities = ["thinking", "image_in"]

[providers.moonshot]
type = "kimi"
base_url = "https://api.moonshot.ai/v1/"
api_key = "sk-one"
dialect = "moonshot"

[loop_control]
max_steps_per_turn = 7
reserved_context_size = 1000
compaction_trigger_ratio = 0.5

[dmail]
enabled = false
nudge_tokens = 50

[keys]
compact = "Ctrl+R"
"""


def parse(text: str) -> Config:
    """The text as a file."""
    return parse_config(text.encode(), PATH)


def test_everything_that_can_stand_in_the_file() -> None:
    config = parse(WHOLE)
    assert config.notices == ()
    assert config.default_model == "k"
    assert config.thinking
    assert (config.theme, config.glyphs, config.reduced_motion) == ("light", "ascii", True)
    model = config.models["k"]
    assert (model.model, model.max_context_size) == ("kimi-k3", 262_144)
    assert model.capabilities == ("thinking", "image_in")
    provider = config.providers["moonshot"]
    assert provider.base_url == "https://api.moonshot.ai/v1"
    assert (provider.api_key, provider.dialect) == ("sk-one", "moonshot")
    assert config.loop == LoopControl(7, 3, 1000, 0.5)
    assert (config.dmail.enabled, config.dmail.nudge_tokens) == (False, 50)
    assert config.keys == {"compact": "ctrl+r"}


def test_no_key_is_shown_when_values_are_printed() -> None:
    assert "sk-one" not in repr(parse(WHOLE))


PRICED = "[providers.p]\nbase_url='http://localhost/v1'\n[models.m]\nprovider='p'\nmodel='x'\n"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("colour = 1", "colour"),
        ('theme = "pink"', "theme"),
        ("reduced_motion = 1", "reduced_motion"),
        ('[loop_control]\nmax_steps_per_turn = "many"', "loop_control.max_steps_per_turn"),
        ("[loop_control]\nmax_steps_per_turn = true", "loop_control.max_steps_per_turn"),
        ("[loop_control]\ncompaction_trigger_ratio = 7.5", "loop_control.compaction_trigger_ratio"),
        ("[loop_control]\nmax_stepz = 1", "loop_control.max_stepz"),
        ('[providers.x]\nbase_url = "ftp://x"', "providers.x.base_url"),
        ("[providers.x]\napi_key = 'a'", "providers.x.base_url"),
        ("[models.m]\nprovider = 'none'\nmodel = 'm'", "models.m.provider"),
        ("models = 3", "models"),
        ("[models]\nm = 3", "models.m"),
        ("[keys]\ncompact = 3", "keys.compact"),
        (PRICED + "max_context_size = 3999", "models.m.max_context_size"),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_is_used(line: str, named: str) -> None:
    config = parse('glyphs = "ascii"\n' + line)
    assert config.glyphs == "ascii"
    assert len([notice for notice in config.notices if named in notice]) == 1


def test_prices_of_a_model() -> None:
    config = parse(
        PRICED + 'prices = { input = 0.6, cached_input = 0, output = 3, currency = "€" }'
    )
    assert config.notices == ()
    assert config.models["m"].prices == ModelPrices(0.6, 0.0, 3.0, "€")
    plain = parse(PRICED + "[models.m.prices]\ninput = 1\noutput = 3\n").models["m"].prices
    assert plain == ModelPrices(1.0, 1.0, 3.0, "$")
    assert parse(PRICED).models["m"].prices is None


@pytest.mark.parametrize(
    ("prices", "named", "kept"),
    [
        ("3", "models.m.prices must be a table", False),
        ("{ input = 1 }", "models.m.prices.output is missing", False),
        ("{ input = -1, output = 1 }", "models.m.prices.input must be a number", False),
        ("{ input = true, output = 1 }", "models.m.prices.input must be a number", False),
        ('{ input = 1, output = 1, cached_input = "x" }', "models.m.prices.cached_input", False),
        ("{ input = 1, output = 1, currency = 3 }", "models.m.prices.currency", True),
        ('{ input = 1, output = 1, currency = "\\u001b[2J" }', "models.m.prices.currency", True),
        ("{ input = 1, output = 1, outputs = 1 }", "models.m.prices.outputs is not known", True),
    ],
)
def test_wrong_prices_are_named_in_one_line(prices: str, named: str, kept: bool) -> None:
    config = parse(f"{PRICED}prices = {prices}")
    (notice,) = config.notices
    assert named in notice
    assert (config.models["m"].prices is not None) == kept


def test_a_default_model_that_is_not_there_is_named() -> None:
    config = parse('default_model = "gone"')
    assert config.default_model == ""
    assert any("gone" in notice for notice in config.notices)


def test_the_only_model_is_the_default() -> None:
    text = "[models.m]\nprovider='p'\nmodel='x'\n[providers.p]\nbase_url='http://localhost/v1'\n"
    assert parse(text).default_model == "m"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b'a = 1\nb = [unclosed\nc = "d"\n', "line 2"),
        (b"a = 1\na = 2\n", "line 2"),
        (b"= 1", "line 1"),
        (b"a = 1\nb = \xff\n", "line 2"),
        (b'a = "never ended', "line 1"),
    ],
)
def test_what_is_not_toml_is_one_line_with_file_and_line(text: bytes, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, Path("/home/me/config.toml"))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"/home/me/config.toml, {line}:")


def test_an_absent_file_is_the_default(tmp_path: Path) -> None:
    assert read_config(tmp_path / "config.toml") == Config()
    assert read_config(tmp_path / "file" / "config.toml") == Config()


def test_a_folder_in_its_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml"):
        read_config(tmp_path / "config.toml")


TOML_VALUES = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**40), 2**40),
        st.text(alphabet="ab-/: ", max_size=8),
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def written(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'


@given(
    st.dictionaries(
        st.sampled_from(
            ["theme", "glyphs", "default_model", "models", "keys", "loop_control", "dmail", "x"]
        ),
        TOML_VALUES,
    )
)
def test_no_value_of_any_type_is_more_than_a_notice(values: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {written(value)}" for key, value in values.items())
    config = parse(text)
    assert config.theme in ("dark", "light", "16")
    assert isinstance(config.loop, LoopControl)
