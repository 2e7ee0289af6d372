"""What looks like a key in a text, and what only has its letters."""

from __future__ import annotations

import time

import pytest

from kimi_tui.tools.key_text import (
    LEFT_OUT,
    find_keys,
    is_key,
    key_lines,
    without_keys,
    words_of_keys,
)

A = "aB3dE5fG7h" * 12
KEYS = [
    *(f"sk-{A[:24]}", f"sk-proj-{A[:40]}", f"sk-ant-api03-{A[:60]}", "AKIAIOSFODNN7EXAMPLE", f"ghp_{A[:36]}"),
    *(f"github_pat_{A[:60]}", f"glpat-{A[:20]}", f"xoxb-{A[:30]}", f"AIza{A[:35]}", f"ya29.{A[:40]}", f"npm_{A[:36]}"),
    *(f"pypi-AgEI{A[:70]}", f"hf_{A[:34]}", f"sk_live_{A[:24]}", f"dop_v1_{'0a' * 32}", f"SG.{A[:22]}.{A[:43]}"),
    *(f"eyJ{A[:20]}.eyJ{A[:40]}.{A[:43]}", f"AGE-SECRET-KEY-1{'QP' * 29}"),
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A}\n{A}\n-----END OPENSSH PRIVATE KEY-----",
]  # fmt: skip
NAMED = [
    *(f"API_KEY={A[:32]}", f'"secret": "{A[:40]}"', f"password: {A[:20]}", f"aws_secret_access_key = {A[:40]}"),
    *("postgres://me:hunter22@db/x", f"export GITHUB_TOKEN='{A[:30]}'"),
]  # fmt: skip
NO_KEYS = [
    *("token = get_token(settings)", "key=value", "task-force-one-two-three-four", "password: str = Field(default='')"),
    *("https://example.org:8080/a@b", "secret = load_secret_from_environment_variable", "sk-short", "ghp_short"),
    *("-----BEGIN CERTIFICATE-----", "max_tokens: 1000000000000000000000000", "self.api_key = self.settings.api_key"),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_found_whole(key: str) -> None:
    for before in (0, 16_380, 40_000):
        text = "x " * (before // 2) + f"\nvalue {key}\nrest"
        (found,) = find_keys(text)
        assert text[slice(*found)] == key
    assert without_keys(text, [found]).endswith(f"\nvalue {LEFT_OUT}\nrest")
    (line,) = key_lines(text, [found])
    assert line == f"line 2: {key[:4]}… ({len(key)} characters)"


def test_what_is_called_a_key_is_one_and_other_text_is_not() -> None:
    assert [text for text in NAMED if len(find_keys(text)) != 1] == []
    assert [text for text in NO_KEYS if find_keys(text)] == []


def test_it_takes_a_time_that_grows_with_the_text_alone() -> None:
    for piece in (
        "a",
        "key=",
        "eyJ",
        "-eyJaaaa",
        "sk-a",
        "://a:",
        "token: A",
        "keykey_",
        "-----BEGIN PRIVATE KEY-----\n",
    ):
        began = time.process_time()
        assert len(find_keys(piece * (200_000 // len(piece)))) <= 1000
        assert time.process_time() - began < 0.25


WORDS = [
    *("https://host/v1", "localhost", "127.0.0.1:8080", "gpu-rack12-east2-node-04", "sk-learn.org/v1", "sk-learn-extension"),
    *("https://gateway.example/v1/0123456789abcdef0123456789abcdef/openai", "claude-sonnet-4-5-20250929", "", "two words"),
    *("DeepSeekCoderV2Instruct", "Qwen3-Coder-30B-A3B-Instruct-2507-FP8-Q4_K_M-GGUF", "qwen3-coder-480b-a35b-instruct"),
    "x1" * 10_000,
]  # fmt: skip
ONE_WORD = [
    *(key for key in KEYS if " " not in key),
    *("9f8e7d6c5b4a39281706f5e4d3c2b1a0", f"{'0a1b' * 8}.{A[:16]}", "sk-test-1234567", f"gsk_{A[:40]}"),
    "Zx81-kq_0Lm2Nv-93ac_TgYh7-Bw5Rd_Ue4Jf6-Po8Ms1Kd_Xc2",
]  # fmt: skip


def test_a_word_that_is_typed_or_pasted_is_a_key_or_a_name() -> None:
    assert [word for word in ONE_WORD if not is_key(f" {word}\n")] == []
    assert [word for word in WORDS if is_key(word)] == []
    assert words_of_keys(f"for {ONE_WORD[0]} here") == [(4, 4 + len(ONE_WORD[0]))]


def test_whether_a_word_is_a_key_takes_a_bounded_time() -> None:
    for piece in ("a", "a1", "sk-a", "eyJ", "a ", "9f8e7d6c5b4a39281706 "):
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        is_key(text)
        words_of_keys(text)
        assert time.process_time() - began < 0.05
