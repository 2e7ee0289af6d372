from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import quote

import pytest
from support.cases import each

from kimi_tui.llm.completion import is_retryable
from kimi_tui.llm.errors import (
    APIStatusError,
    ContextOverflowError,
    LLMError,
    LLMNotSupported,
    ResponseContext,
    error_of_response,
    error_of_stream_event,
    error_of_wrong_content,
    redact,
    retry_after,
)

KEY = "sk-abcdefghijklmnopqrstuvwxyz"
NOW = 1_790_000_000.0
ISO = datetime.fromtimestamp(NOW + 30, UTC)


def failed(status: int, body: Any, *, host: str = "api.example.org", **headers: str) -> LLMError:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of_response(raw, ResponseContext(host, "the-model", status, sent, (KEY,), NOW))


SENTENCE = "It is so, and not otherwise."


@each(
    "body",
    [
        {"error": {"message": SENTENCE, "type": "x", "code": None}},
        {"error": SENTENCE},
        {"message": SENTENCE},
        {"object": "error", "message": SENTENCE, "type": "x", "code": "1"},
        {"detail": SENTENCE},
        {"detail": [{"type": "extra_forbidden", "msg": SENTENCE, "loc": ["body", "x"]}]},
        [{"error": {"code": 400, "message": SENTENCE, "status": "INVALID_ARGUMENT"}}],
        {"code": 20015, "message": SENTENCE, "data": None},
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps({"error": {"message": SENTENCE}}),
                    "provider_name": "p",
                },
            }
        },
        {"error": {"message": "Provider returned error", "metadata": {"raw": SENTENCE}}},
        {"errors": [{"message": SENTENCE}]},
        json.dumps(SENTENCE),
        SENTENCE,
    ],
)
def test_the_providers_own_sentence_is_dug_out_of_any_body(body: Any) -> None:
    assert SENTENCE in failed(400, body).message


@each("body", ["", "null", "[]", "{}", "17", '{"error": {}}', "{not json", "\x00\xff"])
def test_a_body_that_says_nothing_leaves_status_and_host(body: str) -> None:
    error = failed(500, body)
    assert "api.example.org 500" in error.message
    assert is_retryable(error)


def test_a_web_page_is_named_by_its_title() -> None:
    error = failed(
        502, "<!DOCTYPE html><html><head><title>502 Bad\n Gateway</title></head>…" + "x" * 9_000
    )
    assert "“502 Bad Gateway”" in error.message
    assert len(error.message) < 200


def test_the_request_id_is_shown_and_the_key_never() -> None:
    body = {
        "error": {
            "message": f"Incorrect API key provided: {KEY}. And sk-proj-1234567890abcdefgh too."
        }
    }
    error = failed(401, body, x_trace_id="trace-7")
    assert "trace-7" in error.message
    assert KEY not in error.message + error.advice
    assert "1234567890abcdefgh" not in error.message
    assert redact("a short one", ("a",)) == "a short one"
    assert "local.password" not in redact("you sent local.password!", ("local.password",))


@each(
    "key",
    ["sk-" + "aB3x" * 12, "local-password-of-32-characters..", "local/password+of/32=characters.."],
)
@each("status", [200, 302, 400, 401, 500])
def test_a_key_is_nowhere_in_an_error_wherever_a_server_repeats_it(status: int, key: str) -> None:
    headers = {"x-request-id": key, "location": f"https://a/?key={key}", "retry-after": key}
    context = ResponseContext(
        host="host", model="m", status=status, headers=headers, secrets=(key,), now=1.0
    )
    page = f"<html><title>{key}</title>{key}".encode()
    bodies = [
        {"error": {"message": key, "code": key, "type": key}},
        {"error": {"message": "x" * 570 + f" {key}"}},
        {"detail": [{"msg": f"you sent {key[:-4]}"}]},
        {"error": {"metadata": {"raw": json.dumps({"message": key})}, "message": "no"}},
        {"error": {"message": f"no route /v1?key={quote(key, safe='')}"}},
        {"error": {"message": f"no route /v1?key={quote(key, safe='')[:20]}"}},
    ]
    found = [error_of_response(json.dumps(body).encode(), context) for body in bodies]
    found += [error_of_stream_event(body, context) for body in bodies]
    found += [error_of_response(text, context) for text in (page, key.encode(), f'"{key}'.encode())]
    found += [error_of_wrong_content(kind, page, context) for kind in ("text/html", key)]
    for error in found:
        told = repr((error.args, vars(error)))
        assert key[3:17] not in told
        assert key[-14:-4] not in told
        assert quote(key[6:14], safe="") not in told


def test_a_sentence_is_cut_to_size() -> None:
    assert len(failed(400, {"message": "word " * 10_000}).message) < 700


@each("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    assert is_retryable(failed(status, {"message": "Later."}))


@each("status", [301, 307, 400, 401, 402, 403, 404, 413, 422])
def test_what_will_not_pass_is_not(status: int) -> None:
    error = failed(status, {"message": "No."})
    assert not is_retryable(error)
    assert error.advice or status == 422


@each(
    "status, body",
    [
        (
            429,
            {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota"}},
        ),
        (429, {"error": {"message": "x", "type": "exceeded_current_quota_error"}}),
        (429, {"error": {"message": "Your account has insufficient balance, please recharge"}}),
        (429, {"error": {"code": "1113", "message": "Your account is in arrears"}}),
        (
            400,
            {
                "error": {
                    "message": "The request was considered high risk",
                    "type": "content_filter",
                }
            },
        ),
        (500, {"error": {"message": "Jinja Exception: Conversation roles must alternate user"}}),
        (500, {"error": {"message": "Failed to parse tool call arguments as JSON"}}),
        (413, {"error": {"message": "Request too large on tokens per minute (TPM): Limit 6000"}}),
    ],
)
def test_limits_that_waiting_does_not_lift(status: int, body: Any) -> None:
    error = failed(status, body)
    assert not is_retryable(error)
    assert not isinstance(error, ContextOverflowError)


@each(
    "status, error, advice",
    [
        (400, {"message": "Your credit balance is too low to access the API."}, "Add credit"),
        (400, {"code": "Arrearage", "message": "Make sure you are in good standing"}, "Add credit"),
        (403, {"message": "Your team doesn't have any credits yet."}, "Add credit"),
        (402, {"message": "Insufficient Balance"}, "Add credit"),
        (429, {"code": "1113", "message": "您的账户已欠费"}, "Add credit"),
        (
            429,
            {"code": "1308", "message": "已达到 5 小时 的使用上限"},
            "The quota of your plan is used up",
        ),
        *(
            (
                403,
                {
                    "message": "You've reached your usage limit for this billing cycle.",
                    "type": kind,
                },
                "The quota of your plan is used up",
            )
            for kind in ("access_terminated_error", "permission_error")
        ),
    ],
)
def test_what_is_used_up_is_said_to_be_so_whatever_its_status(
    status: int, error: dict[str, str], advice: str
) -> None:
    made = failed(status, {"error": error})
    assert not is_retryable(made)
    assert made.advice.startswith(advice)


def test_a_named_wait_is_better_than_the_word_quota() -> None:
    body = [
        {
            "error": {
                "code": 429,
                "message": "You exceeded your current quota, please check your plan",
                "details": [{"@type": "RetryInfo", "retryDelay": "21s"}],
            }
        }
    ]
    error = failed(429, body)
    assert isinstance(error, APIStatusError)
    assert error.retryable
    assert error.retry_after_s == 21


def test_a_refused_moonshot_key_names_the_other_two_endpoints() -> None:
    error = failed(
        401,
        {"error": {"message": "Invalid Authentication", "type": "invalid_authentication_error"}},
        host="api.moonshot.cn",
    )
    assert "api.moonshot.ai" in error.advice
    assert "api.kimi.com" in error.advice
    assert "api.moonshot.cn" not in error.advice
    plan = failed(
        403,
        {
            "error": {
                "message": "Kimi For Coding is currently only available for Coding Agents",
                "type": "access_terminated_error",
            }
        },
        host="api.kimi.com",
    )
    assert "platform.moonshot.ai" in plan.advice
    gemini = failed(
        400,
        [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}],
    )
    assert "API key" in gemini.advice


@each("status", [401, 403])
@each("model", ["the-model", ""])
def test_a_refused_request_without_a_key_is_not_said_to_have_one(status: int, model: str) -> None:
    raw = b'{"error": {"message": "no"}}'
    for host in ("api.example.org", "api.moonshot.cn"):
        context = ResponseContext(host, model, status, is_keyless=True)
        advice = error_of_response(raw, context).advice
        assert "none was sent" in advice or "No API key was sent" in advice
        assert "his key" not in advice
        assert ("/model" in advice) is bool(model)
        context = ResponseContext(host, model, status, secrets=(KEY,))
        assert "was sent" not in error_of_response(raw, context).advice


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "X does not support tools"),
        (404, "No endpoints found that support tool use."),
        (
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_a_model_without_tools_is_named_as_such(status: int, text: str) -> None:
    assert isinstance(failed(status, {"error": {"message": text}}), LLMNotSupported)


@each(
    "status, body, window",
    [
        (
            400,
            {
                "error": {
                    "message": "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)"
                }
            },
            262_144,
        ),
        (400, {"error": {"message": "Input token length too long"}}, None),
        (
            400,
            {
                "error": {
                    "code": "context_length_exceeded",
                    "message": "This model's maximum context length is 128,000 tokens. However, your messages resulted in 130000 tokens.",
                }
            },
            128_000,
        ),
        (400, {"error": {"message": "Your input exceeds the context window of this model."}}, None),
        (
            400,
            {
                "object": "error",
                "message": "You passed 9000 input tokens and requested 0 output tokens. However, the model's context length is only 8192 tokens. Your prompt contains at least 9000 input tokens",
            },
            8_192,
        ),
        (
            400,
            {
                "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
            },
            8_192,
        ),
        (
            400,
            {
                "code": 20015,
                "message": "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
                "data": None,
            },
            32_768,
        ),
        (
            400,
            {
                "object": "error",
                "message": "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
            },
            131_072,
        ),
        (
            400,
            [
                {
                    "error": {
                        "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."
                    }
                }
            ],
            1_048_576,
        ),
        (
            413,
            {"error": {"message": "Please reduce the length of the messages or completion."}},
            None,
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "type": "exceed_context_size_error",
                    "message": "the request exceeds the available context size",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 4096,
                }
            },
            4_096,
        ),
        (500, {"error": "Cannot truncate prompt with n_keep (9000) >= n_ctx (4096)"}, 4_096),
        (
            400,
            "The number of tokens to keep from the initial prompt is greater than the context length",
            None,
        ),
        (400, {"error": {"message": "invalid params, context window exceeds limit (2013)"}}, None),
        (
            400,
            {
                "error": {
                    "message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 204800]"
                }
            },
            204_800,
        ),
        (
            400,
            {"error": {"message": "prompt too long; exceeded max context length by 5 tokens"}},
            None,
        ),
        (
            400,
            {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}},
            200_000,
        ),
        (
            400,
            {
                "error": {
                    "message": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."
                }
            },
            131_072,
        ),
        (422, {"detail": "Input is too long for requested model."}, None),
    ],
)
def test_overflows_are_known_in_every_tongue_and_teach_the_window(
    status: int, body: Any, window: int | None
) -> None:
    error = failed(status, body)
    assert isinstance(error, ContextOverflowError)
    assert error.window == window
    assert not is_retryable(error)


@each(
    "sentence, window",
    [
        # This is Anthropic's message, also through other providers.
        (
            "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000, decrease input length or `max_tokens` and try again",
            200_000,
        ),
        (
            json.dumps(
                {
                    "error": {
                        "message": "input length and `max_tokens` exceed context limit: 196,758 + 8,192 > 200,000"
                    }
                }
            ),
            200_000,
        ),
        ("prompt is too long: 215000 tokens > 200000 maximum", 200_000),
        # SGLang
        (
            "Requested token count exceeds the model's maximum context length of 202752 tokens. You requested a total of 210000 tokens: 200000 tokens from the input messages and 10000 tokens for the completion.",
            202_752,
        ),
        (
            "Input length (140000 tokens) exceeds the maximum allowed length (131072 tokens). The input (140000 tokens) is longer than the model's context length (131072 tokens).",
            131_072,
        ),
        # GitHub Copilot and Models
        ("prompt token count of 150000 exceeds the limit of 128000", 128_000),
        ("Request body too large for gpt-4o model. Max size: 8000 tokens.", 8_000),
        # Text Generation Inference, Together
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 9000 `inputs` tokens and 20 `max_new_tokens`",
            8_192,
        ),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 5000", 4_096),
        # Fireworks, Cerebras
        ("The prompt is too long: 267657, model maximum context length: 262143", 262_143),
        (
            "Please reduce the length of the messages or completion. Current length is 140000 while limit is 131072",
            131_072,
        ),
        # vLLM
        (
            "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            8_192,
        ),
        ("max_tokens must be at least 1, got -900.", None),
        (
            "This model's maximum context length is 32768 tokens. However, you requested 40960 tokens (32769 in the messages, 8191 in the completion).",
            32_768,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 input tokens (2000 > 4096 - 2104).",
            4_096,
        ),
        # TensorRT-LLM
        ("Prompt length (9000) exceeds maximum input length (8192). Set log level to info", 8_192),
        (
            "The sum of prompt length (9000.0), query length (0) and max_tokens (100) should not exceed max_num_tokens (8192)",
            8_192,
        ),
        # Cohere, Vertex, Ollama, Volcengine, and plain words
        (
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
            4_081,
        ),
        (
            "too many tokens: size limit exceeded by 3 tokens. Try using shorter or fewer inputs. The limit for this model is 128000 tokens.",
            128_000,
        ),
        ("The input token count is 1200000 but model only supports up to 1048576.", 1_048_576),
        ("the input length exceeds the context length", None),
        ("Total tokens of image and text exceed max message tokens", None),
        ("Prompt exceeds context window of 65536 tokens", 65_536),
    ],
)
@each("shape", ["error", "message"])
def test_the_overflows_of_more_servers(sentence: str, window: int | None, shape: str) -> None:
    error = failed(400, {shape: {"message": sentence}} if shape == "error" else {shape: sentence})
    assert isinstance(error, ContextOverflowError)
    assert error.window == window


@each(
    "sentence",
    [
        "Too many tokens, please wait before trying again.",
        "max_tokens must be at least 1, got 0.",
        "max_tokens is too large: 999999. This model supports at most 16384 completion tokens.",
        "`max_new_tokens` must be strictly positive",
        "temperature must be <= 2",
        "Invalid 'tools': array too long. Expected an array with maximum length 128",
        "The context parameter is unknown.",
        "name exceeds the limit of 64 characters",
        "Request body too large for this server. Max size: 4 MB",
    ],
)
def test_what_is_about_something_else_is_no_overflow(sentence: str) -> None:
    assert not isinstance(failed(400, {"error": {"message": sentence}}), ContextOverflowError)


def test_a_rate_limit_is_no_overflow_whatever_it_says() -> None:
    for status, text in [
        (
            413,
            "Request too large, tokens per minute (TPM) limit, reduce the length of the messages",
        ),
        (429, "maximum context length is 5"),
        (400, "rate limit: prompt is too long"),
    ]:
        assert not isinstance(failed(status, {"error": {"message": text}}), ContextOverflowError)


# -- waits --


@each(
    "headers, body, expected",
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"retry-after": "3"}, "", 3.0),
        ({"retry-after": formatdate(NOW + 30, usegmt=True)}, "", 30.0),
        ({"retry-after": "soon"}, "", None),
        ({"x-ratelimit-reset-tokens": "7.66s"}, "", 7.66),
        (
            {
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-reset-tokens": "120ms",
            },
            "",
            0.12,
        ),
        ({"x-ratelimit-reset": str(int((NOW + 5) * 1000))}, "", 5.0),
        ({"x-ratelimit-reset": str(int(NOW + 6))}, "", 6.0),
        ({}, "Please try again in 1.2s.", 1.2),
        ({}, "try again in 2m59.56s", 179.56),
        ({}, "Please retry after 20 seconds", 20.0),
        ({}, '"retryDelay": "37s"', 37.0),
        ({}, "no word of it", None),
        # A moment, units, two headers, dates.
        ({"retry-after": str(int(NOW + 30))}, "", 30.0),
        ({"retry-after": str(int((NOW + 30) * 1000))}, "", 30.0),
        ({"retry-after": str(NOW + 30.5)}, "", 30.5),
        ({"retry-after": "30s"}, "", 30.0),
        ({"retry-after": "30 seconds"}, "", 30.0),
        ({"retry-after": "1500ms"}, "", 1.5),
        ({"retry-after": "2m"}, "", 120.0),
        ({"retry-after": "1h30m"}, "", 5_400.0),
        ({"retry-after": "20, 40"}, "", 40.0),
        ({"retry-after": "40,20"}, "", 40.0),
        ({"retry-after": f"{formatdate(NOW + 30, usegmt=True)}, 20"}, "", 30.0),
        (
            {
                "retry-after": f"{formatdate(NOW + 30, usegmt=True)}, {formatdate(NOW + 40, usegmt=True)}"
            },
            "",
            40.0,
        ),
        ({"retry-after": ISO.isoformat()}, "", 30.0),
        ({"retry-after": ISO.strftime("%Y-%m-%dT%H:%M:%SZ")}, "", 30.0),
        ({"retry-after": ISO.strftime("%Y-%m-%d %H:%M:%S")}, "", 30.0),
        ({"retry-after": str(int(NOW - 30))}, "", 0.0),
        ({"retry-after": "20 monkeys"}, "", None),
        ({"retry-after": ", ,"}, "", None),
        ({}, "Try again in 5 minutes.", 300.0),
        ({}, "Please retry in 1 hour", 3_600.0),
        ({}, "Rate limited: retry in 1 hour and 5 minutes.", 3_900.0),
        ({}, "Please wait 30 sec, then go on", 30.0),
        ({}, "available again in 2 days", 172_800.0),
        ({}, "try again in 1 hour, 2 minutes, 3 seconds", 3_723.0),
        ({}, "Please retry in 37.123456789s.", 37.12),
        ({}, "try again in 5 months", None),
        # Only what is used up holds back.
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": ISO.isoformat(),
            },
            "",
            30.0,
        ),
        (
            {
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2099-01-01T00:00:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": ISO.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "",
            30.0,
        ),
        (
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": ISO.isoformat()},
            "",
            30.0,
        ),
        (
            {
                "x-ratelimit-remaining-requests-day": "0",
                "x-ratelimit-reset-requests-day": "33011.382867",
            },
            "",
            33_011.38,
        ),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "nan"}, "", None),
    ],
)
def test_waits_are_read_in_every_form(
    headers: dict[str, str], body: str, expected: float | None
) -> None:
    found = retry_after(headers, body, NOW)
    assert found == (None if expected is None else pytest.approx(expected, abs=0.01))


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry_after": str(int(NOW + 30))}, 30.0),
        (
            {
                "anthropic_ratelimit_tokens_remaining": "0",
                "anthropic_ratelimit_tokens_reset": ISO.isoformat(),
            },
            30.0,
        ),
    ],
)
def test_a_limit_with_a_wait_is_waited_for(headers: dict[str, str], wait_s: float) -> None:
    error = failed(429, {"error": {"message": "slow down"}}, **headers)
    assert isinstance(error, APIStatusError)
    assert error.retry_after_s == pytest.approx(wait_s, abs=0.01)
    assert is_retryable(error)


def test_a_login_at_a_proxy_that_nobody_set() -> None:
    assert "HTTPS_PROXY" in failed(407, "").advice
