"""Texts that look like a key, and texts that only have its letters."""

from __future__ import annotations

import time

import pytest
from support.cases import each

from kimi_tui.tools.credentials import (
    LEFT_OUT,
    find_keys,
    is_key,
    key_lines,
    redact_keys,
    words_of_keys,
)

A = "aB3dE5fG7h" * 12
KEYS = [
    *(f"sk-{A[:24]}", f"sk-proj-{A[:40]}", f"sk-ant-api03-{A[:60]}", "AKIAIOSFODNN7EXAMPLE", f"ghp_{A[:36]}"),
    *(f"github_pat_{A[:60]}", f"glpat-{A[:20]}", f"xoxb-{A[:30]}", f"AIza{A[:35]}", f"ya29.{A[:40]}", f"npm_{A[:36]}"),
    *(f"pypi-AgEI{A[:70]}", f"hf_{A[:34]}", f"sk_live_{A[:24]}", f"dop_v1_{'0a' * 32}", f"SG.{A[:22]}.{A[:43]}"),
    *(f"eyJ{A[:20]}.eyJ{A[:40]}.{A[:43]}", f"AGE-SECRET-KEY-1{'QP' * 29}"),
    *(f"gsk_{A[:52]}", f"xai-{A[:80]}", f"pplx-{A[:48]}", f"nvapi-{A[:64]}", f"tvly-{A[:32]}", f"r8_{A[:37]}", f"sk_{'0a' * 24}"),
    *(f"lsv2_pt_{'0a' * 16}_{'0a' * 5}", f"{'0a' * 16}.{A[:16]}", f"glrt-{A[:20]}", f"xapp-1-{A[:40]}", f"MTIz{A[:22]}.GabcdE.{A[:38]}"),
    *(f"1234567890:AA{A[:33]}", f"sk_test_{A[:24]}", f"whsec_{A[:32]}", f"sq0csp-{A[:43]}", f"SK{'0a' * 16}", f"key-{'0a' * 16}"),
    *(f"{'0a' * 16}-us12", f"rubygems_{'0a' * 24}", f"cio{A[:32]}", f"dckr_pat_{A[:27]}", f"HRKU-{A[:60]}", f"hvs.{A[:90]}", f"hvb.{A[:90]}"),
    *(f"{A[:14]}.atlasv1.{A[:67]}", f"dapi{'0a' * 16}", f"abc8Q~{A[:34]}", f"GOCSPX-{A[:28]}", f"1//0{A[:60]}", f"ABSK{A[:110]}"),
    *(f"shpat_{'0a' * 16}", f"lin_api_{A[:40]}", f"ntn_{A[:46]}", f"secret_{A[:43]}", f"figd_{A[:40]}", f"pat{A[:14]}.{'0a' * 32}"),
    *(f"sntrys_{A[:60]}", f"glsa_{A[:32]}_{'0a' * 4}", f"glc_eyJ{A[:40]}", f"NRAK-{A[:27].upper()}", f"pul-{'0a' * 20}"),
    *(f"PMAK-{'0a' * 12}-{'0a' * 17}", f"pscale_tkn_{A[:43]}", f"sbp_{'0a' * 20}", f"tskey-auth-{A[:40]}", f"fm2_{A[:60]}"),
    *(f"dp.pt.{A[:43]}", f"ops_eyJ{A[:60]}", f"ATATT3{A[:60]}", f"ATBB{A[:32]}", f"v1.0-{'0a' * 12}-{'0a' * 73}", f"CCIPAT_{A[:22]}_{'0a' * 20}"),
    *(f"bkua_{'0a' * 20}", f"phx_{A[:43]}", f"sk.eyJ{A[:40]}.{A[:22]}", f"aio_{A[:28]}", f"EAACEdEose0cBA{A[:30]}"),
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{A}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A}\n{A}\n-----END OPENSSH PRIVATE KEY-----",
]  # fmt: skip
NAMED = [
    *(f"API_KEY={A[:32]}", f'"secret": "{A[:40]}"', f"password: {A[:20]}", f"aws_secret_access_key = {A[:40]}"),
    *(f"Authorization: Bearer {A[:40]}", f"authorization: Basic {A[:24]}==", f"client-key-data: {A[:100]}", f'{{"auth": "{A[:30]}"}}'),
    *("machine h login me password hunter2", "DB_PASSWORD=hunter2hunter", f"hooks.slack.com/services/T0/B0/{A[:24]}", f"?sv=1&sig={A[:43]}%3D"),
    *(f"https://discord.com/api/webhooks/{'1' * 18}/{A[:68]}", f"PuTTY-User-Key-File-3: x\nPrivate-Lines: 1\n{A[:64]}\n"),
    *(f"<apiKey>{A[:24]}</apiKey>", f'<add key="ApiKey" value="{A[:24]}"/>', f"'api_key' => '{A[:24]}'", f'setApiKey("{A[:24]}")'),
    *("postgres://me:hunter22@db/x", f"export GITHUB_TOKEN='{A[:30]}'"),
]  # fmt: skip
NO_KEYS = [
    *("token = get_token(settings)", "key=value", "task-force-one-two-three-four", "password: str = Field(default='')"),
    *("https://example.org:8080/a@b", "secret = load_secret_from_environment_variable", "sk-short", "ghp_short"),
    *("Basic Latin Extended Additional 12", "Bearer tokens are described in RFC6750", "ops_per_second = 12345", "MAX_TOKENS=10000000"),
    *("PASSWORD=$DB_PASSWORD1", "TOKEN=<your token 1>", "integrity sha512-abcdEFGH1234abcdEFGH1234==", f"commit {'0a' * 20}"),
    *(f"main.{'0a' * 16}.js", "SECRET=/run/secrets/db1", "API_KEY={{ vault.key1 }}", "key-value-store-1", "login with your password please"),
    *("-----BEGIN CERTIFICATE-----", "max_tokens: 1000000000000000000000000", "self.api_key = self.settings.api_key"),
]  # fmt: skip


@pytest.mark.exhaustive
@each("key", KEYS)
def test_keys_are_found_whole(key: str) -> None:
    for before in (0, 16_380, 40_000):
        text = "x " * (before // 2) + f"\nvalue {key}\nrest"
        (found,) = find_keys(text)
        assert text[slice(*found)] == key
    assert redact_keys(text, [found]).endswith(f"\nvalue {LEFT_OUT}\nrest")
    (line,) = key_lines(text, [found])
    assert line == f"line 2: {key[:4]}… ({len(key)} characters)"


def test_what_is_called_a_key_is_one_and_other_text_is_not() -> None:
    assert [text for text in NAMED if len(find_keys(text)) != 1] == []
    assert [text for text in NO_KEYS if find_keys(text)] == []


@pytest.mark.exhaustive
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
        "0a",
        "Bearer ",
        "gsk_sk_r8_hvs.dapi1//0ntn_",
        "A_KEY=",
        "KEY",
        "login a password",
        "Ma-",
        "machine a ",
        '"auth": "',
    ):
        began = time.process_time()
        assert len(find_keys(piece * (100_000 // len(piece)))) <= 1000
        # A tenth of it is enough; what is quadratic takes more than ten times as much.
        assert time.process_time() - began < 1.0, piece


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
