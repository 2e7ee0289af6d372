"""The choice of server and key: the rules that keep keys where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each

from kimi_tui.config.file import parse_config
from kimi_tui.config.model_choice import (
    KIMI_CODE_MODEL,
    KIMI_CODE_URL,
    MOONSHOT_CHINA_URL,
    MOONSHOT_MODEL,
    MOONSHOT_URL,
    OPENAI_URL,
    ModelChoice,
    NeedsChoice,
    Overrides,
    choose_model,
)
from kimi_tui.config.settings import Config, ConfigError, ModelConfig, ProviderConfig

NOTHING_SAID = Overrides()
STORED = parse_config(
    b"""
default_model = "kimi"
[models.kimi]
provider = "moonshot"
model = "kimi-k3"
max_context_size = 10_000
[models.small]
provider = "moonshot"
model = "moonshot-v1-8k"
[models.gpt]
provider = "openai"
model = "gpt-x"
[providers.moonshot]
type = "kimi"
base_url = "https://api.moonshot.ai/v1"
api_key = "stored-kimi"
[providers.openai]
type = "openai_legacy"
base_url = "https://api.openai.com/v1"
api_key = "stored-openai"
[providers.router]
type = "openai_legacy"
base_url = "https://openrouter.ai/api/v1"
api_key = "stored-router"
""",
    Path("config.toml"),
)
ROUTER = parse_config(
    b"""
[models.r]
provider = "router"
model = "some/model"
[providers.router]
type = "openai_legacy"
base_url = "https://openrouter.ai/api/v1"
api_key = "stored-router"
""",
    Path("config.toml"),
)


def chosen(
    config: Config = STORED, overrides: Overrides = NOTHING_SAID, **environ: str
) -> ModelChoice | NeedsChoice:
    """Return the choice in an environment."""
    return choose_model(config, overrides, environ)


def used(
    config: Config = STORED, overrides: Overrides = NOTHING_SAID, **environ: str
) -> tuple[str, str, str]:
    """Base URL, key and model of a choice that can be used."""
    choice = chosen(config, overrides, **environ)
    assert isinstance(choice, ModelChoice)
    return choice.base_url, choice.api_key, choice.model


def test_the_file_alone() -> None:
    assert used() == (MOONSHOT_URL, "stored-kimi", "kimi-k3")
    choice = chosen()
    assert isinstance(choice, ModelChoice)
    assert choice.window == 10_000


def test_nothing_at_all_needs_a_choice() -> None:
    assert chosen(Config()) == NeedsChoice()


@pytest.mark.parametrize("name", ["small", "moonshot-v1-8k"])
def test_a_model_by_its_name_here_or_at_the_server(name: str) -> None:
    assert used(STORED, Overrides(model=name)) == (MOONSHOT_URL, "stored-kimi", "moonshot-v1-8k")


def test_a_model_of_another_provider_brings_its_own_key() -> None:
    assert used(STORED, Overrides(model="gpt")) == (OPENAI_URL, "stored-openai", "gpt-x")


def test_a_model_that_only_the_server_knows() -> None:
    assert used(STORED, Overrides(model="kimi-next"))[2] == "kimi-next"


def test_the_environment_alone() -> None:
    assert used(Config(), KIMI_API_KEY="k") == (MOONSHOT_URL, "k", MOONSHOT_MODEL)
    assert used(Config(), KIMI_API_KEY="k", KIMI_BASE_URL=KIMI_CODE_URL)[2] == KIMI_CODE_MODEL
    assert used(Config(), OPENAI_API_KEY="o", KIMI_MODEL_NAME="gpt-x") == (OPENAI_URL, "o", "gpt-x")
    assert used(
        Config(),
        OPENAI_API_KEY="o",
        OPENAI_BASE_URL="https://host/v1",
        KIMI_MODEL_NAME="m",
        KIMI_MODEL_MAX_CONTEXT_SIZE="9000",
    ) == ("https://host/v1", "o", "m")


def test_the_families_are_never_mixed() -> None:
    both = {"KIMI_API_KEY": "k", "OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "https://host/v1"}
    assert used(Config(), NOTHING_SAID, **both)[:2] == (MOONSHOT_URL, "k")
    # A base URL without its own key never gets the other family's.
    assert chosen(Config(), OPENAI_API_KEY="o", KIMI_BASE_URL="https://host/v1") == NeedsChoice(
        "https://host/v1"
    )


@pytest.mark.parametrize(
    ("family", "url", "name"),
    [
        ("KIMI", "http://127.0.0.1:8080/v1", "127.0.0.1"),
        ("OPENAI", "https://llm.example/v1", "llm.example"),
    ],
)
def test_a_server_of_the_environment_bears_its_own_name(family: str, url: str, name: str) -> None:
    """It stands in the list of models, and in "... has no model x"."""
    environ = {f"{family}_BASE_URL": url, f"{family}_API_KEY": "k", "KIMI_MODEL_NAME": "m"}
    choice = choose_model(Config(), NOTHING_SAID, environ)
    assert isinstance(choice, ModelChoice)
    assert choice.provider == name


def test_openai_of_the_shell_does_not_hijack_what_is_configured() -> None:
    assert used(OPENAI_API_KEY="o")[:2] == (MOONSHOT_URL, "stored-kimi")
    assert used(OPENAI_API_KEY="o", OPENAI_BASE_URL="https://host/v1")[1] == "stored-kimi"
    assert used(ROUTER, OPENAI_API_KEY="o")[1] == "stored-router"
    assert used(STORED, Overrides(model="gpt"), OPENAI_API_KEY="o")[1] == "o"


def test_kimi_of_the_environment_overrides_the_file() -> None:
    assert used(KIMI_API_KEY="k") == (MOONSHOT_URL, "k", "kimi-k3")
    assert used(KIMI_API_KEY="k", KIMI_MODEL_NAME="kimi-next")[2] == "kimi-next"
    assert used(ROUTER, KIMI_API_KEY="k")[:2] == (MOONSHOT_URL, "k")


def test_a_stored_key_never_follows_to_another_origin() -> None:
    assert chosen(STORED, KIMI_BASE_URL="https://host/v1") == NeedsChoice("https://host/v1")
    assert chosen(STORED, Overrides(base_url="https://host/v1")) == NeedsChoice("https://host/v1")
    assert chosen(STORED, Overrides(base_url="http://api.moonshot.ai/v1")) == NeedsChoice(
        "http://api.moonshot.ai/v1"
    )
    assert chosen(STORED, Overrides(base_url="https://api.moonshot.ai.evil.com/v1")) == NeedsChoice(
        "https://api.moonshot.ai.evil.com/v1"
    )


def test_base_url_takes_the_key_that_belongs_there() -> None:
    base = Overrides(base_url="https://openrouter.ai/api/v1/", model="x")
    assert used(STORED, base) == ("https://openrouter.ai/api/v1", "stored-router", "x")
    assert used(Config(), Overrides(base_url=MOONSHOT_CHINA_URL), KIMI_API_KEY="k")[1] == "k"
    assert chosen(Config(), Overrides(base_url="https://host/v1"), KIMI_API_KEY="k") == NeedsChoice(
        "https://host/v1"
    )


def test_a_server_of_this_machine_needs_no_key() -> None:
    base = Overrides(base_url="http://127.0.0.1:8080/v1")
    assert used(STORED, base) == ("http://127.0.0.1:8080/v1", "", "")
    assert used(Config(), base, KIMI_API_KEY="k")[1] == "k"


@pytest.mark.parametrize(
    "url", ["http://llm.example.com/v1", "http://192.168.1.20:11434/v1", "http://nas.local:8000/v1"]
)
def test_a_server_to_which_no_key_may_be_sent_needs_none(url: str) -> None:
    base = Overrides(base_url=url, model="m")
    assert used(Config(), base, KIMI_API_KEY="k", OPENAI_API_KEY="o") == (url, "", "m")
    assert used(Config(), KIMI_BASE_URL=url, KIMI_MODEL_NAME="m") == (url, "", "m")
    stored = ProviderConfig("near", base_url=url, type="openai_legacy")
    models = {"m": ModelConfig("m", "near", "m")}
    config = Config(default_model="m", models=models, providers={"near": stored})
    assert used(config) == (url, "", "m")
    # A key that is meant for it stays, so that its request is refused with the reason.
    assert used(Config(), KIMI_BASE_URL=url, KIMI_API_KEY="k", KIMI_MODEL_NAME="m")[1] == "k"


def test_the_unencrypted_address_of_a_known_provider_is_a_slip() -> None:
    for url in ("http://api.moonshot.ai/v1", "http://api.openai.com:8080/v1"):
        assert chosen(Config(), Overrides(base_url=url)) == NeedsChoice(url)


def test_a_host_that_begins_like_an_address_of_this_machine_gets_no_key() -> None:
    url = "https://127.example.com/v1"
    asked = chosen(Config(), Overrides(base_url=url), KIMI_API_KEY="k")
    assert asked == NeedsChoice(url)


def test_window_dialect_and_thinking() -> None:
    choice = chosen(KIMI_MODEL_MAX_CONTEXT_SIZE="4000", KIMI_DIALECT="generic")
    assert isinstance(choice, ModelChoice)
    assert (choice.window, choice.dialect, choice.thinking) == (4_000, "generic", "")
    for given, meant in ((True, "on"), (False, "off")):
        choice = chosen(STORED, Overrides(thinking=given))
        assert isinstance(choice, ModelChoice)
        assert choice.thinking == meant


@each(
    "overrides, environ",
    [
        (Overrides(base_url="host/v1"), {}),
        (Overrides(base_url="file:///etc/passwd"), {}),
        (Overrides(base_url="http://"), {}),
        (Overrides(base_url="http://a b/v1"), {}),
        (Overrides(base_url="http://a:99999999/v1"), {}),
        (Overrides(), {"KIMI_BASE_URL": "nonsense"}),
        (Overrides(), {"KIMI_MODEL_MAX_CONTEXT_SIZE": "a lot"}),
        (Overrides(), {"KIMI_MODEL_MAX_CONTEXT_SIZE": "0"}),
        (Overrides(), {"KIMI_MODEL_MAX_CONTEXT_SIZE": "1023"}),
        (Overrides(), {"KIMI_MODEL_MAX_CONTEXT_SIZE": "9" * 5_000}),
    ],
)
def test_values_that_cannot_be_used_are_one_line(
    overrides: Overrides, environ: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_model(STORED, overrides, environ)
    assert "\n" not in str(caught.value)


def test_no_key_is_shown_when_a_choice_is_printed() -> None:
    assert "stored-kimi" not in repr(chosen())


@pytest.mark.parametrize("typed", ["/v1/chat/completions", "/v1/", " /v1/models ", "/v1"])
def test_a_base_url_is_put_right_wherever_it_is_given(typed: str) -> None:
    meant = "http://127.0.0.1:8080/v1"
    written = "http://127.0.0.1:8080" + typed.strip() + " "
    for overrides, environ, source in (
        (Overrides(base_url=written), {}, "--base-url"),
        (NOTHING_SAID, {"KIMI_BASE_URL": written}, "KIMI_BASE_URL"),
        (NOTHING_SAID, {"OPENAI_BASE_URL": written}, "OPENAI_BASE_URL"),
    ):
        choice = choose_model(Config(), overrides, environ)
        assert isinstance(choice, ModelChoice)
        assert choice.base_url == meant
        is_user_words = "chat" in typed or "models" in typed
        assert [source in remark and meant in remark for remark in choice.remarks] == [
            True
        ] * is_user_words
