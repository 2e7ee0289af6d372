"""config.toml: what is right is used, what is wrong is named, and saving keeps whatever else stands there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import each

from kimi_tui.config.file import parse_config, read_config, save_choice, save_setting
from kimi_tui.config.model_choice import ModelChoice, Overrides, choose_model
from kimi_tui.config.settings import (
    THEMES,
    Config,
    ConfigError,
    LoopControl,
    ModelPrices,
    SandboxConfig,
    SearchConfig,
)

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
compaction = "mine.short:Short"
patience = 90

[dmail]
enabled = false
nudge_tokens = 50

[sandbox]
enabled = true
writable = ["~/cache"]
readable = ["~/.config/gh"]
network = true

[keys]
compact = "Ctrl+G"
"""


def parse(text: str) -> Config:
    """Return the text as a file."""
    return parse_config(text.encode(), PATH)


def test_headers_of_a_provider_cost_only_themselves_and_are_kept_by_a_choice(
    tmp_path: Path,
) -> None:
    many = "\n".join(f'H{n} = "v"' for n in range(25))
    config = parse(
        f"""
[providers.p]
base_url = "https://h/v1"
headers = {{ X-Org = " mine ", x-org = "twice", Authorization = "a", Content-Length = "9", "a b" = "c", Y = 1, Z = "a\\nb" }}
[providers.many]
base_url = "https://i/v1"
[providers.many.headers]
{many}
[providers.long]
base_url = "https://j/v1"
headers = {{ A = "{"x" * 5000}" }}
[providers.odd]
base_url = "https://k/v1"
headers = "X-Org: 1"
"""
    )
    assert config.providers["p"].headers == {"X-Org": "mine"}
    said = [notice.removeprefix("config.toml: providers.") for notice in config.notices]
    rest = "; the rest of the file is used."
    assert said == [
        f"p.headers.x-org is given twice{rest}",
        f"p.headers.Authorization is set by kimi-tui and cannot be changed{rest}",
        f"p.headers.Content-Length is set by kimi-tui and cannot be changed{rest}",
        f"p.headers.a b is not a valid header name{rest}",
        f"p.headers.Y must be one line of ASCII text{rest}",
        f"p.headers.Z must be one line of ASCII text{rest}",
        f"many.headers has more than 20 headers or 4,096 characters{rest}",
        f"long.headers has more than 20 headers or 4,096 characters{rest}",
        f"odd.headers must be a table{rest}",
    ]
    assert len(config.providers["many"].headers) == 20
    path = tmp_path / "config.toml"
    path.write_text('[providers.p]\nbase_url = "https://h/v1"\nheaders = { X-Org = "a-secret" }\n')
    after = save_choice(path, ModelChoice("p", "https://h/v1", "m", "sk-1"))
    choice = choose_model(after, Overrides(), {})
    assert isinstance(choice, ModelChoice)
    assert choice.headers == {"X-Org": "a-secret"}
    assert "a-secret" in choice.secrets
    assert "a-secret" not in repr((after, choice))
    elsewhere = choose_model(after, Overrides(base_url="http://127.0.0.1:1/v1"), {})
    assert isinstance(elsewhere, ModelChoice)
    assert not elsewhere.headers


def test_everything_that_can_stand_in_the_file() -> None:
    config = parse(WHOLE)
    assert config.notices == ()
    assert config.sandbox == SandboxConfig(True, ("~/cache",), ("~/.config/gh",), True)
    # To allow all is not for a file to say.
    assert "mode must be one of" in parse('mode = "all"').notices[0]
    assert config.default_model == "k"
    assert config.default_thinking == "on"
    assert (config.theme, config.glyphs, config.reduced_motion) == ("light", "ascii", True)
    model = config.models["k"]
    assert (model.model, model.max_context_size) == ("kimi-k3", 262_144)
    assert model.capabilities == ("thinking", "image_in")
    provider = config.providers["moonshot"]
    assert provider.base_url == "https://api.moonshot.ai/v1"
    assert (provider.api_key, provider.dialect) == ("sk-one", "moonshot")
    assert config.loop_control == LoopControl(7, 3, 1000, 0.5, "mine.short:Short", 90.0)
    assert (config.dmail.enabled, config.dmail.nudge_tokens) == (False, 50)
    assert config.keys == {"compact": "ctrl+g"}


def test_no_key_is_shown_when_values_are_printed() -> None:
    assert "sk-one" not in repr(parse(WHOLE))


PRICED = "[providers.p]\nbase_url='http://localhost/v1'\n[models.m]\nprovider='p'\nmodel='x'\n"


@each(
    "line, named",
    [
        ("colour = 1", "colour"),
        ('theme = "pink"', "theme"),
        ("reduced_motion = 1", "reduced_motion"),
        ('[loop_control]\nmax_steps_per_turn = "many"', "loop_control.max_steps_per_turn"),
        ("[loop_control]\nmax_steps_per_turn = true", "loop_control.max_steps_per_turn"),
        ("[loop_control]\ncompaction_trigger_ratio = 7.5", "loop_control.compaction_trigger_ratio"),
        ("[loop_control]\ncompaction = 3", "loop_control.compaction"),
        ("[loop_control]\npatience = -1", "loop_control.patience"),
        ("[loop_control]\nmax_stepz = 1", "loop_control.max_stepz"),
        ('[providers.x]\nbase_url = "ftp://x"', "providers.x.base_url"),
        ("[providers.x]\napi_key = 'a'", "providers.x.base_url"),
        ("[models.m]\nprovider = 'none'\nmodel = 'm'", "models.m.provider"),
        ("hintz = false", "hintz is not a known key: did you mean `hints`?"),
        ("[dmail]\nnudge_token = 3", "dmail.nudge_token is not a known key: did you mean"),
        ("[keys]\ncompactt = 'f5'", "is not an action: did you mean `compact`?"),
        ("[providers.p]\ntype='weird'\nbase_url='http://x/v1'", "openai_legacy: 'weird'"),
        ("models = 3", "models"),
        ("[models]\nm = 3", "models.m"),
        ("[keys]\ncompact = 3", "keys.compact"),
        (PRICED + "max_context_size = 1023", "models.m.max_context_size"),
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


@each(
    "prices, named, kept",
    [
        ("3", "models.m.prices must be a table", False),
        ("{ input = 1 }", "models.m.prices.output is missing", False),
        ("{ input = -1, output = 1 }", "models.m.prices.input must be a number", False),
        ("{ input = true, output = 1 }", "models.m.prices.input must be a number", False),
        ('{ input = 1, output = 1, cached_input = "x" }', "models.m.prices.cached_input", False),
        ("{ input = 1, output = 1, currency = 3 }", "models.m.prices.currency", True),
        ('{ input = 1, output = 1, currency = "\\u001b[2J" }', "models.m.prices.currency", True),
        ("{ input = 1, output = 1, outputs = 1 }", "models.m.prices.outputs is not a known", True),
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
    """Return a value as TOML."""
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
    assert config.theme in THEMES
    assert isinstance(config.loop_control, LoopControl)


@pytest.mark.parametrize(
    ("written", "noticed"),
    [
        ("https://h.example/v1", False),
        ("https://h.example/v1/", False),
        ("  https://h.example/v1 ", False),
        ("https://h.example/v1/chat/completions", True),
        ("https://h.example/v1/models/", True),
        ("<https://h.example/v1>", True),
    ],
)
def test_a_base_url_is_put_right_and_that_is_said(written: str, noticed: bool) -> None:
    config = parse(f'[providers.p]\nbase_url = "{written}"')
    assert config.providers["p"].base_url == "https://h.example/v1"
    assert len([one for one in config.notices if "providers.p.base_url" in one]) == noticed


@pytest.mark.parametrize(
    ("written", "meant"),
    [("true", "on"), ("false", "off"), ('"High"', "high"), ("1", ""), ('"so much!"', "")],
)
def test_how_much_a_model_thinks_by_default(written: str, meant: str) -> None:
    config = parse(f"default_thinking = {written}")
    assert config.default_thinking == meant
    assert bool(config.notices) == (not meant)


CHOICE = ModelChoice(
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
    assert choose_model(saved, Overrides(), {}) == CHOICE
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
    found = choose_model(config, Overrides(), {})
    assert isinstance(found, ModelChoice)
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

    monkeypatch.setattr("kimi_tui.filesystem.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_choice(path, CHOICE)
    assert path.read_text() == 'theme = "light"\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_a_text_that_would_say_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text('theme = "light"\n')
    monkeypatch.setattr("kimi_tui.config.file._edited", lambda *_: 'default_model = "kimi-k3"\n')
    with pytest.raises(ConfigError, match="not saved"):
        save_choice(path, CHOICE)
    assert path.read_text() == 'theme = "light"\n'


def test_a_theme_is_set_before_the_tables_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# my words\n[loop_control]\nmax_steps_per_turn = 7  # few\n")
    save_setting(path, "theme", "light")
    save_setting(path, "theme", "16")
    config = read_config(path)
    assert (config.theme, config.loop_control.max_steps_per_turn) == ("16", 7)
    assert "# my words" in path.read_text()
    assert "# few" in path.read_text()


@pytest.mark.parametrize("content", [b"not = [toml", b"# caf\xe9\n"])
def test_a_file_that_is_no_toml_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        save_setting(path, "theme", "light")
    assert path.read_bytes() == content


def test_a_file_with_a_key_that_others_may_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for text, mode, is_said in (
        (WHOLE, 0o644, True),
        (WHOLE, 0o640, True),
        (WHOLE, 0o600, False),
        (WHOLE.replace("sk-one", "keyring:mine"), 0o644, False),
        (WHOLE.replace('api_key = "sk-one"', ""), 0o644, False),
    ):
        path.write_text(text)
        path.chmod(mode)
        said = [
            notice for notice in read_config(path).notices if "can be read by other users" in notice
        ]
        assert len(said) == is_said
        assert not said or said[0].endswith(f"chmod 600 {path}")


def test_what_is_done_about_keys_in_results() -> None:
    assert parse("").secrets.send == "mark"
    assert parse('[secrets]\nsend = "ask"').secrets.send == "ask"
    assert "secrets.send must be one of mark, ask" in parse('[secrets]\nsend = "no"').notices[0]


@pytest.mark.parametrize(
    "written",
    [
        'keys.compact = "ctrl+g"\ntheme = "dark"\nkeys.chat.copy = "c"\n',
        'keys = {compact = "ctrl+g", "chat.copy" = "c"} # mine\ntheme = "dark"\n',
        'theme = "dark"\n[keys]\nchat.copy = "c"\ncompact = "ctrl+g"\n',
        'theme = "dark"\n[keys]\ncompact = "ctrl+g"\n[keys.chat]\ncopy = "c"\n',
    ],
)
def test_keys_are_read_and_set_however_toml_lets_them_be_written(
    tmp_path: Path, written: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(written)
    path.chmod(0o600)
    found = read_config(path)
    assert (found.keys, found.notices) == ({"compact": "ctrl+g", "chat.copy": "c"}, ())
    changed = {"compact": "f9", "chat.copy": "x", "help": "f8", "chat.pin": "m,P"}
    for name, key in changed.items():
        save_setting(path, f"keys.{name}", key)
    found = read_config(path)
    assert (found.keys, found.theme, found.notices) == (changed, "dark", ())
    for name in changed:
        save_setting(path, f"keys.{name}", None)
    assert (read_config(path).keys, read_config(path).notices) == ({}, ())


def search_of(text: str) -> tuple[SearchConfig | None, tuple[str, ...]]:
    """Return the search service in a file, and the notices."""
    found = parse_config(text.encode(), Path("config.toml"))
    return found.search, found.notices


def test_a_search_service_and_hosts_without_a_question() -> None:
    text = '[web]\nallow = ["example.org"]\n[web.search]\nprovider = "brave"\napi_key = " hush "\nheaders = {X-Org = "also hush"}'
    found = parse_config(text.encode(), Path("config.toml"))
    assert (found.web.allow, found.notices) == (("example.org",), ())
    assert found.search == SearchConfig("brave", "", "hush", {"X-Org": "also hush"})
    assert "hush" not in repr(found)
    kimi = '[services.moonshot_search]\nbase_url = "https://api.kimi.com/coding/v1/search"\napi_key = "hush"\n[services.moonshot_fetch]\nbase_url = "https://x"\n'
    assert search_of(kimi) == (
        SearchConfig("kimi", "https://api.kimi.com/coding/v1/search", "hush"),
        (),
    )
    assert search_of(
        f'{kimi}[web.search]\nprovider = "searxng"\nbase_url = "http://localhost:8888"'
    )[0] == SearchConfig("searxng", "http://localhost:8888")


@each(
    "text, words",
    [
        ('[web.search]\napi_key = "k"', "web.search.provider is missing"),
        (
            '[web.search]\nprovider = "bing"\napi_key = "k"',
            "web.search.provider must be one of searxng",
        ),
        ('[web.search]\nprovider = "brave"', "web.search.api_key is missing, and brave needs it"),
        ('[web.search]\nprovider = "exa"\napi_key = 5', "web.search.api_key must be a string"),
        (
            '[web.search]\nprovider = "searxng"',
            "web.search.base_url is missing, and searxng needs it",
        ),
        (
            '[web.search]\nprovider = "exa"\napi_key = "k"\nkey = 1',
            "web.search.key is not a known key",
        ),
        ('[web]\nsearch = "brave"', "web.search must be a table"),
        ('[web]\nallow = "example.org"', "web.allow must be a list"),
        # The entries of kimi-cli without a key of their own need no notice.
        ('[services.moonshot_search]\nbase_url = "https://x"\napi_key = ""', ""),
        ("[services]\nmoonshot_search = 5", ""),
        ("services = 5", ""),
    ],
)
def test_search_services_that_cannot_be_used(text: str, words: str) -> None:
    found, notices = search_of(text)
    assert found is None or "not a known key" in words
    assert any(words in one for one in notices) if words else not notices


def test_external_agents_are_programs_with_their_words(tmp_path: Path) -> None:
    config = parse_config(
        b"""
[external_agents.codex]
command = ["codex-acp", "-c", "model=o3"]
env = ["OPENAI_API_KEY"]
[external_agents.line]
command = "codex acp"
[external_agents.none]
env = ["A"]
[external_agents.odd]
command = ["a"]
env = ["1A=x"]
[external_agents."../up"]
command = ["a"]
""",
        tmp_path / "config.toml",
    )
    agent = config.external_agents["codex"]
    assert (agent.command, agent.env) == (("codex-acp", "-c", "model=o3"), ("OPENAI_API_KEY",))
    # An agent that is known needs no command; whether this one is, is known where it is started.
    assert list(config.external_agents) == ["codex", "none", "odd"]
    assert config.external_agents["none"] == ("none", (), ("A",), True)
    said = [notice.partition(": ")[2].partition(";")[0] for notice in config.notices]
    assert [words[:52] for words in said] == [
        "external_agents.line.command must be a list of words",
        "external_agents.odd.env must be a list of names of v",
        "external_agents.../up must be a name of letters, dig",
    ]
