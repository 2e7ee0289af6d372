"""Dialects: the differences of servers that call themselves compatible, as data, and rules for families of models.

`dialect_for` detects a dialect by name or host; `models.probe` by what a local server says of itself. Other differences show
only when a server refuses a request. They are learned: `LearnedQuirks`, kept for provider and model while the program runs,
make the next request smaller, or add a field that was missing. One request teaches at most `MAX_LEARNED_PER_REQUEST` quirks,
each field once. Only the beginning of a refusal is read: the rest may repeat the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kimi_tui import lenient_json
from kimi_tui.base_url import host_of
from kimi_tui.llm.errors import LLMError

ReasoningBack = Literal[
    "as_came", "never", "reasoning_content", "reasoning", "reasoning_details", "think_tag"
]
ThinkingForm = Literal[
    "unknown", "type", "type_kept", "enable_thinking", "effort", "effort_object", "template"
]

OFF = "off"
ON = "on"
UNSET = ""
"""The setting "none": nothing is sent about thinking, and the model uses its own default."""
DEFAULT = "default"
"""The word with which the user goes back to no setting."""
_NOT_KNOWN = "has no known setting for reasoning, so none is sent"


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model is asked to think before it answers, and the settings that a user may choose. By default neither is known,
    and nothing is sent.

    Attributes:
        form: the field of the request: `type` is `thinking: {type}` (`type_kept` also keeps earlier reasoning),
            `enable_thinking` a flag, `effort` is `reasoning_effort`, `effort_object` is `reasoning: {effort}`,
            `template` are arguments of the chat template.
        efforts: the names of the efforts, least first; empty if thinking can only be on or off.
        on: the effort that plain "on" means; empty if no effort is sent then.
        always: thinking cannot be turned off.
        not_with_tools: with tools the model answers only if the request turns thinking off.
    """

    form: ThinkingForm = "unknown"
    efforts: tuple[str, ...] = ()
    on: str = ""
    always: bool = False
    not_with_tools: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The settings as a user types them; empty if nothing can be set."""
        if self.always:
            return self.efforts
        return (ON, OFF, *self.efforts) if self.form != "unknown" else ()

    def checked(self, word: str, model: str) -> str:
        """Return the setting that a word of the user means.

        Args:
            word: `on`, `off`, `default` or an effort, in any case.
            model: the model's name, for the error.

        Raises:
            LLMError: the model does not have this setting; the text names those it has.
        """
        word = word.strip().lower()
        taken = self.choices
        if word == DEFAULT:
            return UNSET
        if word in taken or (word == ON and self.always):
            return word
        if word == OFF and self.always:
            more = f" Its settings are {_listed(taken)}." if taken else ""
            raise LLMError(f"{model} always reasons.{more}")
        if not taken:
            what = "always reasons, and this cannot be changed" if self.always else _NOT_KNOWN
            raise LLMError(f"{model} {what}.")
        raise LLMError(f"{model} does not support {word[:40]!r}. Use {_listed(taken)}.")

    def fields(self, setting: str, *, has_tools: bool) -> dict[str, Any]:
        """Return the request fields for this setting; a setting that the model does not have is ignored."""
        if self.not_with_tools and has_tools:
            return {"reasoning_effort": "none"}
        if setting == UNSET or (self.always and setting in (ON, OFF)):
            return {}
        is_on = setting != OFF
        effort = setting if setting in self.efforts else self.on if is_on else ""
        match self.form:
            case "type" | "type_kept":
                kind: dict[str, Any] = {"type": "enabled" if is_on else "disabled"}
                if is_on and self.form == "type_kept":
                    kind["clear_thinking"] = False
                return {"thinking": kind, **({"reasoning_effort": effort} if effort else {})}
            case "enable_thinking":
                return {"enable_thinking": is_on}
            case "effort":
                effort = effort if is_on else "none"
                return {"reasoning_effort": effort} if effort else {}
            case "effort_object":
                return {"reasoning": {"effort": effort if is_on else "none"}}
            case "template":
                arguments: dict[str, Any] = {} if self.always else {"enable_thinking": is_on}
                if effort:
                    arguments["reasoning_effort"] = effort
                return {"chat_template_kwargs": arguments} if arguments else {}
            case "unknown":
                return {}

    def in_use(self, setting: str, dropped: Set[str], *, has_tools: bool) -> tuple[bool, str]:
        """Return whether the model is asked to think, and the effort that the request names (empty for none).

        Args:
            setting: the setting.
            dropped: fields that the server refused, which are not sent any more.
            has_tools: the request names tools.
        """
        if self.not_with_tools and has_tools:
            return False, ""
        fields = self.fields(setting, has_tools=has_tools)
        sent = {name: value for name, value in fields.items() if name not in dropped}
        effort = setting if setting in self.efforts and _names_effort(sent, setting) else ""
        if self.always:
            return True, effort
        if setting == OFF:
            # A server that refuses the field decides by itself whether it thinks.
            return bool(fields) and not sent, ""
        return setting != UNSET and bool(sent), effort


def thinking_in_words(model: str, thinks: bool, effort: str, taken: tuple[str, ...]) -> str:
    """Describe the thinking setting, and the settings the model has, in one line for the user.

    Args:
        model: its name.
        thinks: it is asked to think, or always does.
        effort: the effort, if the request names one.
        taken: the settings that the model has.
    """
    how = f" ({effort})" if effort else ""
    if not taken:
        return (
            f"{model} reasons{how}, and this cannot be changed."
            if thinks
            else f"{model} {_NOT_KNOWN}."
        )
    always = " always" if thinks and ON not in taken else ""
    holds = f"{always} reasons{how}" if thinks else " does not reason"
    return f"{model}{holds}. /thinking can set {_listed(taken)}."


def _names_effort(sent: dict[str, Any], effort: str) -> bool:
    """Return whether one of the fields, or a field inside them, has this effort as its value."""
    return any(
        value == effort or effort in lenient_json.mapping(value).values() for value in sent.values()
    )


def _listed(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


_THREE_EFFORTS = ("low", "medium", "high")
_ALWAYS = Thinking(always=True)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The fields that one family of servers requires, accepts and refuses. The defaults give the smallest request."""

    name: str
    hosts: tuple[str, ...] = ()
    """Host names; a name with a leading dot or dash matches the end of a host, one with a trailing dot or dash its beginning."""
    path: str = ""
    """The path of the API at these hosts, for base URLs without one; empty if it differs from host to host."""
    reasoning: ReasoningBack = "as_came"
    """The field in which reasoning is sent back to the model that wrote it."""
    reasoning_missing: str | None = None
    """The value of the reasoning field if a message has no reasoning of this model; None leaves the field out."""
    reasoning_missing_everywhere: bool = False
    """`reasoning_missing` is sent in every assistant message and not only in those with tool calls."""
    thinking: Thinking = Thinking()
    stream_options: bool = True
    cache_key: bool = False
    schema: Literal["plain", "moonshot"] = "plain"
    short_ids: bool = False
    """Tool call ids must be exactly nine letters or digits."""
    bridge: bool = False
    """No user message may follow a tool result: a short assistant message is sent between them."""
    single_calls: bool = False
    """An assistant message may have one tool call only: the calls of a step are sent one after the other, each with its result."""
    images: bool = True
    extra_content: bool = False
    """Tool calls have a field `extra_content` that must be sent back with them."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of every request."""
    limits: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    """The field that limits the length of an answer, and the field to try if the server refuses the first."""
    one_at_a_time: bool = False
    """With its default settings the server answers one request after another, and does not say so."""


_NEWER_LIMITS = ("max_completion_tokens", "max_tokens")
GENERIC = Dialect("generic")

DIALECTS: Mapping[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "moonshot",
            hosts=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
            reasoning="reasoning_content",
            cache_key=True,
            schema="moonshot",
            limits=_NEWER_LIMITS,
        ),
        Dialect(
            "openai",
            hosts=("api.openai.com",),
            path="/v1",
            reasoning="never",
            cache_key=True,
            limits=_NEWER_LIMITS,
        ),
        Dialect(
            "azure",
            hosts=(".openai.azure.com", ".ai.azure.com"),
            reasoning="never",
            limits=_NEWER_LIMITS,
        ),
        Dialect(
            "deepseek",
            hosts=("api.deepseek.com",),
            path="/v1",
            reasoning="reasoning_content",
            reasoning_missing="",
            reasoning_missing_everywhere=True,
            thinking=Thinking("type", ("low", "high", "max")),
            images=False,
        ),
        Dialect(
            "openrouter",
            hosts=("openrouter.ai",),
            path="/api/v1",
            reasoning="reasoning_details",
            thinking=Thinking("effort_object", ("minimal", *_THREE_EFFORTS), on="medium"),
        ),
        Dialect(
            "mistral",
            hosts=(".mistral.ai",),
            path="/v1",
            reasoning="never",
            stream_options=False,
            short_ids=True,
            bridge=True,
        ),
        Dialect(
            "gemini",
            hosts=("generativelanguage.googleapis.com", "-aiplatform.googleapis.com"),
            path="/v1beta/openai",
            reasoning="never",
            thinking=Thinking("effort", _THREE_EFFORTS, on="medium"),
            extra_content=True,
        ),
        Dialect("groq", hosts=("api.groq.com",), path="/openai/v1", reasoning="never"),
        Dialect(
            "glm",
            hosts=("api.z.ai", "open.bigmodel.cn"),
            reasoning="reasoning_content",
            thinking=Thinking("type_kept"),
            stream_options=False,
        ),
        Dialect(
            "qwen",
            hosts=("dashscope.", "dashscope-", ".dashscope.aliyuncs.com", ".maas.aliyuncs.com"),
            path="/compatible-mode/v1",
            reasoning="reasoning_content",
            thinking=Thinking("enable_thinking"),
        ),
        Dialect(
            "minimax",
            hosts=("api.minimax.io", "api.minimaxi.com", "api.minimax.chat", "api.minimax."),
            path="/v1",
            reasoning="reasoning_details",
            extra={"reasoning_split": True},
        ),
        Dialect(
            "ollama",
            reasoning="reasoning",
            thinking=Thinking("effort", _THREE_EFFORTS, on="medium"),
            one_at_a_time=True,
        ),
        Dialect("vllm", reasoning="reasoning", thinking=Thinking("template")),
        Dialect(
            "llamacpp",
            reasoning="reasoning_content",
            thinking=Thinking("template"),
            # llama.cpp sends nothing else while it reads a prompt, which takes minutes without a graphics card.
            extra={"return_progress": True},
        ),
        Dialect("lmstudio", reasoning="reasoning_content"),
        Dialect("sglang", reasoning="reasoning_content", thinking=Thinking("template")),
        GENERIC,
    )
}


@dataclass(frozen=True, slots=True)
class _ModelRule:
    """A change for models whose name matches, on the named dialects; without names on all dialects."""

    model_rx: re.Pattern[str]
    changes: Mapping[str, Any]
    dialects: frozenset[str] = frozenset()


def _rule(pattern: str, *dialects: str, **changes: Any) -> _ModelRule:
    return _ModelRule(re.compile(pattern, re.IGNORECASE), changes, frozenset(dialects))


_MODEL_RULES: tuple[_ModelRule, ...] = (
    # Thinking Kimi models refuse an assistant message with calls but without its reasoning; they take `""` for no reasoning.
    _rule(r"(^|/)(kimi-(k|for)|k\d)", "moonshot", reasoning_missing=" "),
    _rule(r"(^|/)kimi-k2\.[56]($|-)", "moonshot", thinking=Thinking("type")),
    _rule(
        r"(^|/)(kimi-)?k3",
        "moonshot",
        thinking=Thinking("effort", ("low", "high", "max"), always=True),
    ),
    _rule(r"(^|/)(kimi-k2\.7|kimi-for-coding|kimi-k2-thinking)", thinking=_ALWAYS),
    _rule(r"(^|/)(minimax-m2|magistral|deepseek-(reasoner|r1))", thinking=_ALWAYS),
    _rule(r"(^|/)(devstral|ministral|mistral|magistral|codestral|pixtral)", bridge=True),
    # OpenAI's newer models accept function tools on this endpoint only with reasoning off.
    _rule(
        r"(^|/)gpt-(5\.([4-9]|\d\d)|[6-9]|\d\d)",
        "openai",
        "azure",
        thinking=Thinking("effort", _THREE_EFFORTS, on="medium", not_with_tools=True),
    ),
    _rule(
        r"(^|/)gpt-5($|-)",
        "openai",
        "azure",
        thinking=Thinking("effort", ("minimal", *_THREE_EFFORTS), on="medium", always=True),
    ),
    _rule(
        r"(^|/)gpt-5\.[123]($|-)",
        "openai",
        "azure",
        thinking=Thinking("effort", _THREE_EFFORTS, on="medium"),
    ),
    _rule(
        r"(^|/)o[134]($|-)",
        "openai",
        "azure",
        thinking=Thinking("effort", _THREE_EFFORTS, on="medium", always=True),
    ),
    _rule(
        r"(^|/)gemini-(2\.5-pro|3)",
        "gemini",
        thinking=Thinking("effort", ("low", "high"), on="high", always=True),
    ),
    _rule(r"(^|/)qwen", "groq", thinking=Thinking("effort", on="default")),
    _rule(
        r"(^|/)gpt-oss",
        "groq",
        "vllm",
        "ollama",
        "lmstudio",
        thinking=Thinking("effort", _THREE_EFFORTS, on="medium", always=True),
    ),
    _rule(
        r"(^|/)gpt-oss",
        "llamacpp",
        "sglang",
        thinking=Thinking("template", _THREE_EFFORTS, on="medium", always=True),
    ),
    _rule(r"(^|/)deepseek-(reasoner|r1)", "deepseek", reasoning="never", reasoning_missing=None),
    _rule(r"(^|/)moonshot-v1", "moonshot", reasoning="never", reasoning_missing=None),
    _rule(r"(^|/)glm-4($|[^.\d])", "glm", thinking=Thinking()),
)


_LONGEST_MODEL = 500


def dialect_of_host(host: str) -> Dialect:
    """Return the dialect of a host, else the generic dialect."""
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
    """Return the dialect with this name.

    Raises:
        LLMError: no dialect has this name; the text lists the names.
    """
    try:
        return DIALECTS[name.strip().lower()]
    except KeyError:
        raise LLMError(
            f"{name!r} is not a dialect (a variant of the API).",
            advice=f"Use one of {', '.join(DIALECTS)}.",
        ) from None


def for_model(dialect: Dialect, model: str) -> Dialect:
    """Return the dialect with the rules of this model's family applied."""
    model = model[:_LONGEST_MODEL]
    for rule in _MODEL_RULES:
        if (not rule.dialects or dialect.name in rule.dialects) and rule.model_rx.search(model):
            dialect = replace(dialect, **rule.changes)
    return dialect


def dialect_for(base_url: str, model: str, override: str | None = None) -> Dialect:
    """Detect the dialect of a server and a model; `override` (config, environment) wins over the host.

    Raises:
        LLMError: `override` names no dialect.
    """
    chosen = dialect_named(override) if override else dialect_of_host(host_of(base_url))
    return for_model(chosen, model)


def family(model: str) -> str:
    """Return the family of a model: `kimi-k2.6` and `moonshotai/kimi-k2.7-code` both belong to `kimi-k2`."""
    name = model.rsplit("/", 1)[-1].lower()
    found = re.match(r"\D*\d*", name)
    return found.group(0) if found and found.group(0) else name


MAX_LEARNED_PER_REQUEST = 3
REASONING_FIELDS = ("reasoning_content", "reasoning_details", "reasoning")

_REFUSED = re.compile(
    r"unknown|unsupported|not supported|not support|unrecognized|unexpected|not permitted|extra_forbidden"
    r"|extra inputs|cannot find field|not allowed|additional propert|invalid (field|parameter|argument)"
    r"|only type=|does not exist|cannot be (set|modified)|no such",
    re.IGNORECASE,
)
_MISSING = re.compile(r"missing|must be passed back|required|must be provided", re.IGNORECASE)
_ROLES = re.compile(
    r"unexpected role '?user'? after role '?tool|roles must alternate|"
    r"after the optional system message.{0,120}alternat|role 'tool'.{0,120}'user'",
    re.IGNORECASE,
)
_SINGLE_CALLS = re.compile(
    r"only supports? single tool.?calls?|multiple tool.?calls (?:are|is) not supported",
    re.IGNORECASE,
)
_SHORT_IDS = re.compile(
    r"tool call ids? (?:should be alphanumeric|was .{0,200}must be a-z, ?A-Z, ?0-9).{0,40}length (?:of )?9",
    re.IGNORECASE,
)
_SCHEMA = re.compile(
    r"moonshot flavored json schema|when using anyOf, type should be defined"
    r"|function\.parameters\.type is required",
    re.IGNORECASE,
)
_NO_IMAGES = re.compile(
    r"unknown variant .?image_url|image input is not supported|does not support image"
    r"|not a multimodal model|image_url is (?:only|not) supported",
    re.IGNORECASE,
)
_NO_THINKING = re.compile(r"does not support (?:thinking|reasoning)", re.IGNORECASE)
_THINKING_FIELDS = (
    "reasoning_effort",
    "thinking",
    "enable_thinking",
    "reasoning",
    "chat_template_kwargs",
)
_MOST_CHARS = 20_000
_CONTENT_AND_THINKING = re.compile(r"cannot pass both content and thinking", re.IGNORECASE)
_EFFORT_NONE = re.compile(r"set reasoning_effort to ['\"]?none", re.IGNORECASE)
_SIGNATURE = re.compile(r"missing a thought_?signature", re.IGNORECASE)


@dataclass(slots=True)
class LearnedQuirks:
    """The facts that refusals and answers taught about a provider and model, beyond their dialect."""

    dropped: set[str] = field(default_factory=set[str])
    """Fields that are not sent any more."""
    reasoning_missing: str | None = None
    """The value to send if reasoning is missing; None if nothing was learned."""
    bridge: bool = False
    single_calls: bool = False
    short_ids: bool = False
    moonshot_schema: bool = False
    no_images: bool = False
    extra_content: bool = False
    effort_none: bool = False
    """With tools the model answers only if the request turns reasoning off."""
    ends_without_reason: bool = False
    """The server never sends a finish reason: `[DONE]` ends an answer."""
    window: int | None = None
    """The window in tokens that a refusal named."""
    accepted: int = 0
    """The input tokens of the last answer, as the server counted them."""
    counted_share: float = 0.0
    """The largest ratio so far of the server's token count of a prompt to our estimate."""
    _newest: tuple[Dialect, tuple[object, ...], Dialect] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The newest result of `applied`, with the dialect and the facts that it is of."""

    def applied(self, dialect: Dialect) -> Dialect:
        """Return the dialect, changed by the learned facts: the same object as long as these are the same."""
        facts = (
            *(frozenset(self.dropped), self.reasoning_missing, self.bridge, self.single_calls),
            *(self.short_ids, self.moonshot_schema, self.no_images, self.extra_content),
            self.effort_none,
        )
        newest = self._newest
        if newest is None or newest[0] is not dialect or newest[1] != facts:
            newest = self._newest = (dialect, facts, self._applied(dialect))
        return newest[2]

    def _applied(self, dialect: Dialect) -> Dialect:
        if self.reasoning_missing is not None:
            known = dialect.reasoning
            dialect = replace(
                dialect,
                reasoning="reasoning_content" if known in {"never", "as_came"} else known,
                reasoning_missing=self.reasoning_missing,
            )
        elif self.dropped & set(REASONING_FIELDS):
            dialect = replace(dialect, reasoning="never", reasoning_missing=None)
        if self.effort_none:
            dialect = replace(dialect, thinking=replace(dialect.thinking, not_with_tools=True))
        return replace(
            dialect,
            stream_options=dialect.stream_options and "stream_options" not in self.dropped,
            cache_key=dialect.cache_key and "prompt_cache_key" not in self.dropped,
            bridge=dialect.bridge or self.bridge,
            single_calls=dialect.single_calls or self.single_calls,
            short_ids=dialect.short_ids or self.short_ids,
            schema="moonshot" if self.moonshot_schema else dialect.schema,
            images=dialect.images and not self.no_images,
            extra_content=(dialect.extra_content or self.extra_content)
            and "extra_content" not in self.dropped,
        )

    def learn(self, refusal: str, sent: Set[str], dialect: Dialect) -> str | None:
        """Learn from a refusal.

        Args:
            refusal: the whole body of the response, as text.
            sent: the names of the optional fields in the refused request, those inside messages included.
            dialect: the dialect of the request, with these quirks applied.

        Returns:
            The learned fact in a few words; None if nothing was learned, so that the same request would be refused again.
        """
        refusal = refusal[:_MOST_CHARS]
        if _CONTENT_AND_THINKING.search(refusal) and sent & set(REASONING_FIELDS):
            return self._drop("reasoning_content")
        if _SINGLE_CALLS.search(refusal) and not dialect.single_calls:
            self.single_calls = True
            return "one tool call per message"
        if _SHORT_IDS.search(refusal) and not dialect.short_ids:
            self.short_ids = True
            return "tool call ids of nine letters"
        if _SCHEMA.search(refusal) and dialect.schema != "moonshot":
            self.moonshot_schema = True
            return "tool schemas as Moonshot expects them"
        if "image_url" in sent and dialect.images and _NO_IMAGES.search(refusal):
            self.no_images = True
            return "no images"
        if _NO_THINKING.search(refusal):
            for name in _THINKING_FIELDS:
                if name in sent - self.dropped:
                    return self._drop(name)
        if _ROLES.search(refusal) and not dialect.bridge:
            self.bridge = True
            return "no user message after a tool result"
        if _SIGNATURE.search(refusal) and not dialect.extra_content:
            self.extra_content = True
            return "extra_content of tool calls is sent to the server again"
        if _EFFORT_NONE.search(refusal) and not dialect.thinking.not_with_tools:
            self.effort_none = True
            return "no reasoning together with tools"
        if _MISSING.search(refusal) and re.search(r"reasoning(_content)?", refusal):
            learned = self._learn_missing(dialect)
            if learned:
                return learned
        if not _REFUSED.search(refusal):
            return None
        for name in sorted(sent - self.dropped, key=len, reverse=True):
            if re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", refusal):
                return self._drop(name)
        return None

    def _learn_missing(self, dialect: Dialect) -> str | None:
        # If no value was sent, an empty text is tried next; if that was refused, a blank.
        tried = dialect.reasoning_missing
        if tried == " ":
            return None
        self.dropped -= set(REASONING_FIELDS)
        self.reasoning_missing = "" if tried is None else " "
        return (
            f"reasoning is sent to the server again ({self.reasoning_missing!r} if there is none)"
        )

    def _drop(self, name: str) -> str:
        self.dropped.add(name)
        if name in REASONING_FIELDS:
            self.reasoning_missing = None
        return f"no {name}"


learned_quirks: dict[tuple[str, str, str], LearnedQuirks] = {}
"""The quirks learned in this run of the program, by base URL, model and configured dialect."""


def quirks_of(provider: str, model: str, dialect: str = "") -> LearnedQuirks:
    """Return the quirks of a provider and model: the same object at every call.

    Args:
        provider: its base URL.
        model: the model's id.
        dialect: the configured dialect; each dialect has quirks of its own, as its requests differ.
    """
    return learned_quirks.setdefault((provider, model, dialect), LearnedQuirks())
