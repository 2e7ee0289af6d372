"""How servers that call themselves compatible differ, as data: one frozen value per dialect.

Nothing here acts; `sending`, `requests` and `openai_compat` read these values. A dialect is chosen by name, by host, or by
what a local server says of itself (`probing`), and rules for model families apply on any host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from kimi_tui.llm.errors import LLMError

ReasoningBack = Literal[
    "as_came", "never", "reasoning_content", "reasoning", "reasoning_details", "think_tag"
]
ThinkingControl = Literal[
    "none", "type", "type_kept", "enable_thinking", "effort_object", "effort_none_with_tools"
]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one family of servers wants, takes and refuses. The defaults are the smallest request."""

    name: str
    hosts: tuple[str, ...] = ()
    """Host names or, with a leading dot or dash, their ends; a trailing dot or dash makes it a beginning."""
    reasoning: ReasoningBack = "as_came"
    """The field in which reasoning goes back to its own model."""
    reasoning_missing: str | None = None
    """What stands in that field where there is no reasoning of this model; None: the field is left out."""
    reasoning_missing_everywhere: bool = False
    """The stand-in goes into every assistant message and not only into those with tool calls."""
    thinking: ThinkingControl = "none"
    stream_options: bool = True
    output_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    cache_key: bool = False
    schema: Literal["plain", "moonshot"] = "plain"
    short_ids: bool = False
    """Tool call ids are exactly nine letters or digits."""
    bridge: bool = False
    """No user message may follow a tool result: a short assistant message goes between."""
    images: bool = True
    extra_content: bool = False
    """Calls carry `extra_content` that has to come back in its place."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of every request."""


GENERIC = Dialect("generic")

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "moonshot",
            hosts=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
            reasoning="reasoning_content",
            output_limit="max_completion_tokens",
            cache_key=True,
            schema="moonshot",
        ),
        Dialect(
            "openai",
            hosts=("api.openai.com",),
            reasoning="never",
            output_limit="max_completion_tokens",
            cache_key=True,
        ),
        Dialect(
            "azure",
            hosts=(".openai.azure.com", ".ai.azure.com"),
            reasoning="never",
            output_limit="max_completion_tokens",
        ),
        Dialect(
            "deepseek",
            hosts=("api.deepseek.com",),
            reasoning="reasoning_content",
            reasoning_missing="",
            reasoning_missing_everywhere=True,
            thinking="type",
            images=False,
        ),
        Dialect(
            "openrouter",
            hosts=("openrouter.ai",),
            reasoning="reasoning_details",
            thinking="effort_object",
        ),
        Dialect(
            "mistral",
            hosts=(".mistral.ai",),
            reasoning="never",
            stream_options=False,
            short_ids=True,
            bridge=True,
        ),
        Dialect(
            "gemini",
            hosts=("generativelanguage.googleapis.com", "-aiplatform.googleapis.com"),
            reasoning="never",
            extra_content=True,
        ),
        Dialect("groq", hosts=("api.groq.com",), reasoning="never"),
        Dialect(
            "glm",
            hosts=("api.z.ai", "open.bigmodel.cn"),
            reasoning="reasoning_content",
            thinking="type_kept",
            stream_options=False,
        ),
        Dialect(
            "qwen",
            hosts=("dashscope.", "dashscope-", ".dashscope.aliyuncs.com", ".maas.aliyuncs.com"),
            reasoning="reasoning_content",
            thinking="enable_thinking",
        ),
        Dialect(
            "minimax",
            hosts=("api.minimax.io", "api.minimaxi.com", "api.minimax.chat", "api.minimax."),
            reasoning="reasoning_details",
            extra={"reasoning_split": True},
        ),
        Dialect("ollama", reasoning="reasoning"),
        Dialect("vllm", reasoning="reasoning"),
        Dialect("llamacpp", reasoning="reasoning_content"),
        Dialect("lmstudio", reasoning="reasoning_content"),
        Dialect("sglang", reasoning="reasoning_content"),
        GENERIC,
    )
}


@dataclass(frozen=True, slots=True)
class ModelRule:
    """A change for models whose name matches, on the named dialects (none named: on any)."""

    model_rx: re.Pattern[str]
    changes: Mapping[str, Any]
    dialects: frozenset[str] = frozenset()


def _rule(pattern: str, *dialects: str, **changes: Any) -> ModelRule:
    return ModelRule(re.compile(pattern, re.IGNORECASE), changes, frozenset(dialects))


MODEL_RULES: tuple[ModelRule, ...] = (
    # Kimi models that think refuse an assistant message with calls that lacks its reasoning; `""` counts as lacking.
    _rule(r"(^|/)(kimi-(k|for)|k\d)", "moonshot", reasoning_missing=" "),
    _rule(r"(^|/)kimi-k2\.[56]($|-)", "moonshot", thinking="type"),
    _rule(r"(^|/)(devstral|ministral|mistral|magistral|codestral|pixtral)", bridge=True),
    # OpenAI's newer models take function tools here only without reasoning.
    _rule(
        r"(^|/)gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)",
        "openai",
        "azure",
        thinking="effort_none_with_tools",
    ),
    _rule(r"(^|/)deepseek-(reasoner|r1)", "deepseek", reasoning="never", reasoning_missing=None),
    _rule(r"(^|/)moonshot-v1", "moonshot", reasoning="never", reasoning_missing=None),
    _rule(r"(^|/)glm-4($|[^.\d])", "glm", thinking="none"),
)

ALWAYS_THINKING = re.compile(
    r"(^|/)(kimi-k3|k3|kimi-k2\.7|kimi-for-coding|kimi-k2-thinking|minimax-m2)", re.IGNORECASE
)


def host_of(base_url: str) -> str:
    """The host of a base URL in lower case, or an empty string."""
    try:
        return (urlsplit(base_url).hostname or "").lower()
    except ValueError:
        return ""


def dialect_of_host(host: str) -> Dialect:
    """The dialect spoken at a host, else the generic one."""
    for dialect in DIALECTS.values():
        for known in dialect.hosts:
            if known[-1] in ".-":
                matches = host.startswith(known)
            elif known[0] in ".-":
                matches = host.endswith(known)
            else:
                matches = host == known
            if matches:
                return dialect
    return GENERIC


def dialect_named(name: str) -> Dialect:
    """The dialect of this name.

    Raises:
        LLMError: there is none; the text names those there are.
    """
    try:
        return DIALECTS[name.strip().lower()]
    except KeyError:
        raise LLMError(
            f"There is no dialect {name!r}.", advice=f"Known are: {', '.join(DIALECTS)}."
        ) from None


def for_model(dialect: Dialect, model: str) -> Dialect:
    """The dialect with the rules of this model's family applied."""
    for rule in MODEL_RULES:
        if (not rule.dialects or dialect.name in rule.dialects) and rule.model_rx.search(model):
            dialect = replace(dialect, **rule.changes)
    return dialect


def choose(base_url: str, model: str, override: str | None = None) -> Dialect:
    """The dialect for a server and a model; `override` (config, environment) wins over the host.

    Raises:
        LLMError: `override` names no dialect.
    """
    chosen = dialect_named(override) if override else dialect_of_host(host_of(base_url))
    return for_model(chosen, model)


def family(model: str) -> str:
    """The family a model belongs to: `kimi-k2.6` and `moonshotai/kimi-k2.7-code` are both `kimi-k2`."""
    name = model.rsplit("/", 1)[-1].lower()
    found = re.match(r"\D*\d*", name)
    return found.group(0) if found and found.group(0) else name
