"""What a server taught us by refusing: kept for provider and model while the program runs, shown by `doctor`.

A lesson is learned once per field and makes the next request smaller, or adds what was missed. At most three a request.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, field, replace

from kimi_tui.llm.dialects import Dialect

MAX_LESSONS_PER_REQUEST = 3
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
    r"after the optional system message.*alternat|role 'tool'.*'user'",
    re.IGNORECASE,
)
_CONTENT_AND_THINKING = re.compile(r"cannot pass both content and thinking", re.IGNORECASE)
_EFFORT_NONE = re.compile(r"set reasoning_effort to ['\"]?none", re.IGNORECASE)
_SIGNATURE = re.compile(r"missing a thought_?signature", re.IGNORECASE)


@dataclass(slots=True)
class Lessons:
    """What is known of one provider and model beyond its dialect."""

    dropped: set[str] = field(default_factory=set[str])
    """Fields that are not sent any more."""
    reasoning_missing: str | None = None
    """What has to stand where reasoning is missing; None: nothing was learned."""
    swapped_output_limit: bool = False
    bridge: bool = False
    extra_content: bool = False
    effort_none: bool = False
    """With tools it answers only when told not to reason."""
    ends_without_reason: bool = False
    """It never gives a finish reason, `[DONE]` has to do."""
    window: int | None = None

    def applied(self, dialect: Dialect) -> Dialect:
        """The dialect as it really is."""
        if self.reasoning_missing is not None:
            known = dialect.reasoning
            dialect = replace(
                dialect,
                reasoning="reasoning_content" if known in {"never", "as_came"} else known,
                reasoning_missing=self.reasoning_missing,
            )
        elif self.dropped & set(REASONING_FIELDS):
            dialect = replace(dialect, reasoning="never", reasoning_missing=None)
        if self.swapped_output_limit:
            other = (
                "max_tokens" if dialect.output_limit != "max_tokens" else "max_completion_tokens"
            )
            dialect = replace(dialect, output_limit=other)
        if self.effort_none:
            dialect = replace(dialect, thinking="effort_none_with_tools")
        return replace(
            dialect,
            stream_options=dialect.stream_options and "stream_options" not in self.dropped,
            cache_key=dialect.cache_key and "prompt_cache_key" not in self.dropped,
            bridge=dialect.bridge or self.bridge,
            extra_content=(dialect.extra_content or self.extra_content)
            and "extra_content" not in self.dropped,
        )

    def learn(self, refusal: str, sent: Set[str], dialect: Dialect) -> str | None:
        """Learn from a refusal.

        Args:
            refusal: the whole body, as text.
            sent: the names of the optional fields that the refused request had, in messages too.
            dialect: under which it was made, these lessons applied.

        Returns:
            What was learned in a few words, or None: the same request would be refused again.
        """
        if _CONTENT_AND_THINKING.search(refusal) and sent & set(REASONING_FIELDS):
            return self._drop("reasoning_content")
        if _ROLES.search(refusal) and not dialect.bridge:
            self.bridge = True
            return "no user message after a tool result"
        if _SIGNATURE.search(refusal) and not dialect.extra_content:
            self.extra_content = True
            return "calls need their extra_content back"
        if _EFFORT_NONE.search(refusal) and dialect.thinking != "effort_none_with_tools":
            self.effort_none = True
            return "no reasoning beside tools"
        if _MISSING.search(refusal) and re.search(r"reasoning(_content)?", refusal):
            learned = self._learn_missing(dialect)
            if learned:
                return learned
        if not _REFUSED.search(refusal):
            return None
        limit = dialect.output_limit
        if limit in sent and re.search(rf"\b{limit}\b", refusal) and not self.swapped_output_limit:
            self.swapped_output_limit = True
            return f"not {limit}"
        for name in sorted(sent - self.dropped, key=len, reverse=True):
            if re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", refusal):
                return self._drop(name)
        return None

    def _learn_missing(self, dialect: Dialect) -> str | None:
        # Where nothing was sent an empty text is tried, where that was refused a blank.
        tried = dialect.reasoning_missing
        if tried == " ":
            return None
        self.dropped -= set(REASONING_FIELDS)
        self.reasoning_missing = "" if tried is None else " "
        return f"reasoning is wanted back ({self.reasoning_missing!r} where there is none)"

    def _drop(self, name: str) -> str:
        self.dropped.add(name)
        if name in REASONING_FIELDS:
            self.reasoning_missing = None
        return f"no {name}"

    def described(self) -> list[str]:
        """All that was learned, a line each."""
        lines = [f"does not take {name}" for name in sorted(self.dropped)]
        if self.reasoning_missing is not None:
            lines.append("wants reasoning back with every tool call")
        if self.swapped_output_limit:
            lines.append("names its output limit the other way")
        if self.bridge:
            lines.append("takes no user message after a tool result")
        if self.extra_content:
            lines.append("wants extra_content of calls back")
        if self.effort_none:
            lines.append("answers without thinking when it has tools")
        if self.ends_without_reason:
            lines.append("gives no finish reason")
        if self.window is not None:
            lines.append(f"its window is {self.window} tokens")
        return lines


_known: dict[tuple[str, str], Lessons] = {}


def lessons_for(provider: str, model: str) -> Lessons:
    """The lessons of a provider (its origin) and model; the same object every time."""
    return _known.setdefault((provider, model), Lessons())


def all_lessons() -> dict[tuple[str, str], list[str]]:
    """Everything learned so far, for those who report."""
    return {who: lines for who, known in _known.items() if (lines := known.described())}


def forget_lessons() -> None:
    """Forget everything (a changed configuration, a test)."""
    _known.clear()
