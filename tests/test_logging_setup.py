"""The log: readable by its owner alone, never with a key in it, never in the way."""

from __future__ import annotations

import logging
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import each

from kimi_tui import logging_setup
from kimi_tui.logging_setup import LIMIT_BYTES, log_crash, redacted, start_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    logging_setup._known.clear()  # pyright: ignore[reportPrivateUsage]
    for handler in [h for h in root.handlers if h not in before]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)
    logging.captureWarnings(False)


@each(
    "text",
    [
        "key sk-abcdEFGH1234567890 refused",
        "Authorization: Bearer topsecretvalue",
        "Authorization: Basic bWU6MTIzNDU2Nzg5MA==",
        "{'api_key': 'topsecretvalue'}",
        'api-key = "topsecretvalue"',
        "password=topsecretvalue",
        "my own topsecretvalue here",
        "by http://me:1234567890@proxy.example:8080, refused",
        "'https://1234567890@example.org/v1'",
    ],
)
def test_keys_are_taken_out(text: str) -> None:
    cleaned = redacted(text, ("topsecretvalue",))
    assert "topsecretvalue" not in cleaned
    assert "1234567890" not in cleaned
    assert "bWU6" not in cleaned
    assert "[key]" in cleaned


def test_a_key_that_begins_as_another_leaves_nothing_of_that() -> None:
    assert redacted("a topsecretvalue b", ("topsecret", "topsecretvalue")) == "a [key] b"


@pytest.mark.parametrize("code", ["%2F%2B%3D", "%2f%2b%3d"])
def test_a_key_in_an_address_is_taken_out(code: str) -> None:
    assert (
        redacted(f"GET /v1?k=local{code}word failed", ("local/+=word",)) == "GET /v1?k=[key] failed"
    )


def test_other_words_stay() -> None:
    text = "reading tokenizer.py: the token count is 12; http://a.example:80/b@c"
    assert redacted(text) == text


def test_a_crash_is_written_with_its_traceback_and_without_the_key(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "log"
    try:
        raise RuntimeError("refused: topsecretvalue")
    except RuntimeError as error:
        log_crash(path, error, ("topsecretvalue",))
    text = path.read_text()
    assert "Traceback" in text
    assert "refused: [key]" in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_no_configuration_holds_is_in_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "kimi-tui.log"
    start_logging(path, ("correct horse battery",))
    # `log_crash` gets only the place where the key is stored.
    log_crash(path, RuntimeError("x-auth=correct horse battery"), ("keyring:mine",))
    assert "horse" not in path.read_text()


def test_what_we_note_ourselves_is_kept_and_others_chatter_is_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    start_logging(path)
    logging.getLogger("kimi_tui.soul.token_meter").info("tokens: estimated 5")
    logging.getLogger("httpx2").info("HTTP Request: POST")
    logging.getLogger("httpx2").warning("odd")
    text = path.read_text()
    assert "tokens: estimated 5" in text
    assert "HTTP Request" not in text
    assert "odd" in text


def test_a_long_log_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "kimi-tui.log"
    path.write_bytes(b"x" * (LIMIT_BYTES + 1))
    start_logging(path)
    logging.getLogger("kimi_tui").warning("new")
    assert path.stat().st_size < 200
    assert (tmp_path / "kimi-tui.old.log").exists()


def test_a_full_disk_is_no_crash_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs/x.log"
    start_logging(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        logging.getLogger("kimi_tui").info("lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == ""
    assert capfd.readouterr() == ("", "")
    logging.getLogger("kimi_tui").info("kept")
    assert path.read_text().count("kept") == 1


def test_a_place_that_cannot_be_written_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    start_logging(tmp_path / "file" / "log")
    logging.getLogger("kimi_tui").warning("nowhere")
