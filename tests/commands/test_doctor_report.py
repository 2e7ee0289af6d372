"""`kimi-tui doctor --report`: all that a report of a fault needs, and nothing that must stay on the machine."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chat_server import ChatServerThread, status
from support.commands import Place

from kimi_tui.commands.doctor_report import LEFT_OUT, Redaction
from kimi_tui.logging_setup import log_fault, start_logging

SECRETS = {
    "login": "margarethe",
    "password": "correct-horse",
    "query": "battery-staple",
    "fragment": "fragment-of-it",
    "path": "tenant-4711-path",
    "api_key": "plain words as a key",
    "header": "hunter2-hunter2",
    "type": "typed-in-the-wrong-place",
    "unknown": "under-an-unknown-key",
    "extra": "deep-in-extra-options",
    "default": "sk-proj-abcdefghijklmnop1234",
    "model": "gsk_" + "a1B2" * 11,
    "list": "sk-live-in-a-list-of-folders-77",
    "wrong": "a-theme-that-is-none-" + "x" * 40,
    "environment": "from-the-environment",
    "proxy": "pass-of-the-proxy",
    "host": "gpu01.corp.example.com",
    "other host": "llm-box",
    "proxy host": "squid.corp.example.com",
}
CONFIG = f"""
default_model = "{SECRETS["default"]}"
theme = "{SECRETS["wrong"]}"
titles = false
api_key = "{SECRETS["unknown"]}"
[sandbox]
writable = ["{SECRETS["list"]}", "~/cache"]
[loop_control]
max_steps_per_turn = 7
[models.one]
provider = "a"
model = "{SECRETS["model"]}"
[models."{SECRETS["default"]}"]
provider = "a"
model = "kimi-k3"
[providers.a]
base_url = "https://{SECRETS["login"]}:{SECRETS["password"]}@{SECRETS["host"]}/{SECRETS["path"]}/v1?k={SECRETS["query"]}#{SECRETS["fragment"]}"
api_key = "{SECRETS["api_key"]}"
[providers.a.headers]
X-Login = "{SECRETS["header"]}"
[providers.a.extra_body]
deep = [{{ token = "{SECRETS["extra"]}" }}]
[providers.b]
type = "{SECRETS["type"]}"
base_url = "http://{SECRETS["other host"]}:8080/v1/chat/completions?k={SECRETS["query"]}"
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KIMI_API_KEY", "KIMI_BASE_URL", "KIMI_MODEL_NAME", "KIMI_DIALECT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(place: Place) -> Path:
    (place.folder / "data").mkdir(exist_ok=True)
    return place.folder / "data" / "config.toml"


def leaked(text: str) -> Iterator[str]:
    """Yield the names of the secrets of which a recognisable part stands in a text."""
    for name, secret in SECRETS.items():
        if secret in text or secret[:12] in text or secret[-12:] in text:
            yield name


def test_a_secret_in_every_place_where_a_person_may_put_one(
    place: Place, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(CONFIG)
    monkeypatch.setenv("MY_TOKEN", SECRETS["environment"])
    monkeypatch.setenv("TERM_PROGRAM", SECRETS["environment"])
    monkeypatch.setenv(
        "HTTPS_PROXY", f"{SECRETS['login']}:{SECRETS['proxy']}@{SECRETS['proxy host']}:3128"
    )
    ran = place.run("doctor", "--report", "--offline")
    assert ran.err == ""
    assert [*leaked(ran.out)] == [], ran.out
    assert str(place.folder) not in ran.out
    # The useful facts are still there.
    for line in (
        "- file: `~/data/config.toml`",
        "- titles: `off`",
        "- loop_control.max_steps_per_turn: `7`",
        "- provider 1: `https://[host]/[path] · type openai_legacy · API variant (dialect) generic · key in the file · headers 1`",
        f"- Python: `{platform.python_version()} (CPython)`",
        "- environment variables: `HTTPS_PROXY, KIMI_TUI_HOME`",
    ):
        assert line in ran.out.splitlines(), ran.out
    assert "theme" in ran.out, "what was wrong is named"
    assert "hosts" not in ran.out


@pytest.mark.exhaustive
def test_a_broken_file_is_told_and_nothing_of_it(place: Place, config: Path) -> None:
    for broken in (
        CONFIG + "[",
        CONFIG.replace("[sandbox]", "[[["),
        f"api_key = {SECRETS['api_key']}",
    ):
        config.write_text(broken)
        ran = place.run("doctor", "--report", "--offline")
        assert ran.code == 1
        assert "- **bad** configuration: `~/data/config.toml, line" in ran.out
        assert "the file cannot be read" in ran.out
        assert "Traceback" not in ran.out + ran.err
        assert [*leaked(ran.out)] == [], ran.out


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "KIMI_BASE_URL"])
@pytest.mark.parametrize("scheme", ["gopher://", "http://", "", "https:/"])
def test_a_variable_that_makes_no_address(
    place: Place, config: Path, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    config.write_text(CONFIG)
    login = f"{SECRETS['login']}:{SECRETS['proxy']} and/{SECRETS['environment']}"
    monkeypatch.setenv(name, f"{scheme}{login}@{SECRETS['proxy host']}:port/{SECRETS['query']}")
    ran = place.run("doctor", "--report", "--offline")
    assert [*leaked(ran.out + ran.err)] == [], ran.out
    assert name in ran.out


@pytest.mark.exhaustive
def test_the_other_variables_that_errors_quote(
    place: Place, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(CONFIG)
    for name in ("KIMI_MODEL_MAX_CONTEXT_SIZE", "KIMI_DIALECT"):
        with monkeypatch.context() as patch:
            patch.setenv(name, SECRETS["wrong"])
            ran = place.run("doctor", "--report", "--offline")
            assert [*leaked(ran.out + ran.err)] == [], ran.out


def test_a_server_that_says_the_key_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServerThread(models=("stand-in",)) as server:
        refusal = {"error": {"message": "who is plain-words-of-a-server"}}
        server.server.route("GET", "/v1/models", status(401, refusal))
        monkeypatch.setenv("KIMI_API_KEY", "sk-secret")
        monkeypatch.setenv("KIMI_BASE_URL", server.base_url)
        monkeypatch.setenv("KIMI_MODEL_NAME", "stand-in")
        said = place.run("doctor", "--report").out
    assert "- **bad** model: `APIStatusError 401; the text of the error is left out`" in said
    assert "plain-words" not in said


def test_the_log_gives_kinds_and_lines_and_no_words(place: Place) -> None:
    log = place.folder / "data" / "logs" / "kimi-tui.log"
    # An earlier test of this process may have begun a log elsewhere.
    start_logging(log)
    for text in ("words of a file", "other words"):
        try:
            Redaction(None, {"A_KEY": 3})  # type: ignore[dict-item]
        except TypeError as error:
            error.args = (f"{text}\nTraceback (most recent call last):\nwords.of.a.FileError: x",)
            log_fault(log, error)
    said = place.run("doctor", "--report", "--offline").out
    (line,) = [line for line in said.splitlines() if "TypeError" in line]
    assert ": `ERROR of kimi_tui: TypeError at kimi_tui/commands/doctor_report.py:" in line
    assert line.endswith(", 2 times`")
    assert "words" not in said.partition("### Last errors")[2]


def test_what_is_shown_and_what_is_not(
    place: Place, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    redaction = Redaction(None, {"GH_PAT_TOKEN": "abcdef", "OLLAMA_HOST": "http://nas.lan:1/x"})
    for text, shown in {
        "https://api.moonshot.ai/v1": "https://api.moonshot.ai/v1",
        "http://u:p@127.0.0.1:8080/v1?x=1": "http://127.0.0.1:8080/v1",
        "https://acme.openai.azure.com/v1": "https://[host]/v1",
        "nas.lan refuses": "[host] refuses",
        "/home/someone/a and /home/someone2/b": "~/a and /home/someone2/b",
        "kimi-k3, qwen2.5-coder-32b-instruct": "kimi-k3, qwen2.5-coder-32b-instruct",
        "x abcdef y": f"x {LEFT_OUT} y",
        "@someone `closes` #1\nnext": "@someone 'closes' #1 next",
    }.items():
        assert redaction.text(text) == shown


def test_json_and_report_are_not_mixed(place: Place) -> None:
    assert "not allowed with" in place.run("doctor", "--report", "--json").complaint
