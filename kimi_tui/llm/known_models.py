"""Windows (in tokens) and image input of models by name, for servers that do not say. Data and its look-ups."""

from __future__ import annotations

import re

DEFAULT_WINDOW = 128_000
LEAST_WINDOW = 1_024
"""Tokens. What is named as smaller is no window of a model that anybody works with, but something else."""

_K = 1_024

# The first pattern that matches the model's last path segment counts; sizes are in tokens.
_KNOWN_WINDOWS: tuple[tuple[str, int], ...] = (
    (r"kimi-k3", 1_024 * _K),
    (r"k3($|-)", 1_024 * _K),
    (r"kimi-(k2\.|for-coding)", 256 * _K),
    (r"kimi-k2", 256 * _K),
    (r"moonshot-v1-8k", 8 * _K),
    (r"moonshot-v1-32k", 32 * _K),
    (r"moonshot-v1", 128 * _K),
    (r"gpt-5\.[4-9]", 1_050_000),
    (r"gpt-5", 400_000),
    (r"gpt-4\.1", 1_047_576),
    (r"gpt-4o|chatgpt-4o", 128_000),
    (r"gpt-4-turbo", 128_000),
    (r"gpt-4-32k", 32_768),
    (r"gpt-4", 8_192),
    (r"gpt-3\.5", 16_385),
    (r"gpt-oss", 131_072),
    (r"o[134]($|-)", 200_000),
    (r"deepseek-v4", 1_024 * _K),
    (r"deepseek", 128 * _K),
    (r"gemini-(1\.5|[2-9])", 1_024 * _K),
    (r"glm-4\.[67]|glm-[5-9]", 200_000),
    (r"glm-4", 128_000),
    (r"qwen3-coder-plus|qwen-plus|qwen3\.\d-plus|qwen-flash", 1_000_000),
    (r"qwen3-max", 256 * _K),
    (r"qwen3-coder", 256 * _K),
    (r"qwen", 128 * _K),
    (r"minimax-m[12]", 200_000),
    (r"(devstral|mistral-(large|medium))", 128 * _K),
    (r"codestral", 256 * _K),
    (r"mistral|ministral|magistral", 128 * _K),
    (r"claude", 200_000),
    (r"grok-4", 256 * _K),
)

_USUAL = (8, 16, 32, 64, 128, 200, 256, 400, 512, 1_024, 2_048)
"""Thousands of tokens that windows usually have."""

_COMPILED = tuple((re.compile(pattern), size) for pattern, size in _KNOWN_WINDOWS)


def known_window(model: str) -> int | None:
    """The window of a model by its name, or None."""
    name = model.rsplit("/", 1)[-1].lower()
    for pattern, size in _COMPILED:
        if pattern.match(name):
            return size
    return None


def larger_window(read: int, *candidates: int | None) -> int:
    """The window of a model that took `read` tokens: the first candidate that is no smaller, else a usual size."""
    for size in (*candidates, DEFAULT_WINDOW, *(one * 1_000 for one in _USUAL)):
        if size is not None and size >= read:
            return size
    return round(read * 1.25)


_SEEING = re.compile(
    r"gpt-(4o|4\.1|4-turbo|5)|chatgpt-4o|o[134]($|-2)|gemini-|claude-|kimi-(k2\.[56]|k3)|k3($|-)|"
    r"moonshot-v1-.*vision|pixtral|qwen.*-vl|grok-4|llama-4|glm-.*v($|-)"
)


def known_to_see(model: str) -> bool:
    """Whether a model of this name takes images."""
    return bool(_SEEING.match(model.rsplit("/", 1)[-1].lower()))
