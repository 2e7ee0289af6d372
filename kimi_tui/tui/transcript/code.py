"""Syntax highlighting with Pygments in three colours, a line at a time while the code is still being streamed.

Pygments is imported only when the first code block needs it (or earlier by `warm_up`, in a thread).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from kimi_tui.tui.rows import Span

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType  # pyright: ignore[reportPrivateUsage]

INK = "ink@raised"
KEYWORD = "code-keyword@raised"
STRING = "code-string@raised"
COMMENT = "code-comment@raised"

RELEX_LINES = 120
RELEX_CHARS = 6_000
"""The most lines and characters of a finished code block that is highlighted again as a whole, which is more exact than by
lines."""
LEX_LIMIT = 1_000
"""The largest number of characters of a line that are highlighted: many rules of lexers look ahead to the line's end from
each of them.
"""

_Rule = tuple[Callable[[str, int], Any], Any, Any]


def warm_up() -> None:
    """Import Pygments before the first code block needs it. It takes long, so call it in a thread."""
    for name in ("python", "bash", "json", "diff", "javascript", "toml"):
        lexer_for(name)


@lru_cache(maxsize=64)
def lexer_for(language: str) -> Lexer | None:
    """Return the lexer for the name of a language as it follows a fence; None if there is none."""
    name = language.strip().split(" ")[0].split(",")[0].strip("{}.").lower()
    if not name or name in {"text", "txt", "plain", "plaintext", "output", "console-output"}:
        return None
    lexers = import_module("pygments.lexers")
    errors = import_module("pygments.util")
    try:
        return cast("Lexer", lexers.get_lexer_by_name(name, stripnl=False, ensurenl=False))
    except errors.ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _style_of(token: _TokenType) -> str:
    tokens = import_module("pygments.token")
    if token in tokens.Comment:
        return COMMENT
    if token in tokens.Keyword or token in tokens.Operator.Word:
        return KEYWORD
    if token in tokens.String or token in tokens.Number:
        return STRING
    return INK


def _to_lines(pieces: Iterator[tuple[_TokenType, str]]) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    for token, text in pieces:
        style = _style_of(token)
        first, *rest = text.split("\n")
        _put(lines[-1], first, style)
        for part in rest:
            lines.append([])
            _put(lines[-1], part, style)
    return lines


def _put(line: list[Span], text: str, style: str) -> None:
    if not text:
        return
    if line and line[-1].style == style:
        line[-1] = Span(line[-1].text + text, style)
    else:
        line.append(Span(text, style))


def is_short(lines: Sequence[str]) -> bool:
    """Return whether a code block is short enough to be highlighted as a whole."""
    return (
        len(lines) <= RELEX_LINES
        and sum(len(line) for line in lines) <= RELEX_CHARS
        and all(len(line) <= LEX_LIMIT for line in lines)
    )


def colour(lines: Sequence[str], language: str) -> list[list[Span]]:
    """Highlight the lines of a finished code block; plain spans if there is no lexer for the language, or it fails."""
    lexer = lexer_for(language) if lines else None
    if lexer is None:
        return [[Span(line, INK)] if line else [] for line in lines]
    if not is_short(lines):
        stream = CodeStream(language)
        return [stream.feed(line) for line in lines]
    try:
        # Lexers of consoles lose a last line without a line end.
        out = _to_lines(lexer.get_tokens("\n".join(lines) + "\n"))
    except Exception:
        _blame(language)
        out = []
    # A lexer may add or drop lines and characters; the lines of the text count.
    out += [[] for _ in lines[len(out) :]]
    return [
        spans if "".join(span.text for span in spans) == line else [Span(line, INK)]
        for spans, line in zip(out, lines, strict=False)
    ]


def _blame(language: str) -> None:
    """Log a lexer that raised; the code stays plain. Third-party lexers may fail on any text."""
    logging.getLogger(__name__).exception("The lexer for %r failed", language)


def _keeps_context(lexer: Lexer) -> bool:
    """Return whether a lexer (of YAML, Ruby) needs more than a stack of states, so that it cannot be run line by line."""
    extended = import_module("pygments.lexer").ExtendedRegexLexer
    return isinstance(lexer, extended)


class CodeStream:
    """Highlights the lines of a code block one after another, keeping the lexer's state between them.

    Args:
        language: the name of the language, as it follows the fence.

    Pygments forgets its state at the end of a text, so the loop of its `RegexLexer` is written out here once more.
    """

    def __init__(self, language: str) -> None:
        self._lexer = lexer_for(language)
        self._stack = ["root"]
        self._language = language
        rules: object = getattr(self._lexer, "_tokens", None)
        if self._lexer is not None and _keeps_context(self._lexer):
            rules = None
        self._rules = cast("dict[str, list[_Rule]]", rules) if isinstance(rules, dict) else None
        if self._rules is not None and "root" not in self._rules:
            self._rules = None

    def feed(self, line: str) -> list[Span]:
        """Highlight the next complete line and advance the state; a line of more than `LEX_LIMIT` characters stays plain."""
        if self._rules is None:
            return [Span(line, INK)] if line else []
        if len(line) > LEX_LIMIT:
            out = self.peek(line[:LEX_LIMIT])
            _put(out, line[LEX_LIMIT:], INK)
            return out
        out: list[Span] = []
        try:
            for token, text in self._lex(line + "\n", self._stack):
                _put(out, text.rstrip("\n"), _style_of(token))
        except Exception:
            _blame(self._language)
            self._rules = None
        if "".join(span.text for span in out) != line:
            return [Span(line, INK)] if line else []
        return out

    def peek(self, line: str) -> list[Span]:
        """Highlight an incomplete line of at most `LEX_LIMIT` characters, without advancing the state."""
        if self._rules is None:
            return [Span(line, INK)] if line else []
        stack, rules = self._stack, self._rules
        self._stack = list(stack)
        try:
            return self.feed(line)
        finally:
            self._stack, self._rules = stack, rules

    def _lex(self, text: str, stack: list[str]) -> Iterator[tuple[_TokenType, str]]:
        rules = self._rules
        assert rules is not None
        plain: _TokenType = import_module("pygments.token").Token
        position = 0
        end = len(text)
        # A broken lexer may have rules that match nothing and change the state for ever, so the number of rounds is bounded.
        for _ in range(4 * end + 64):
            if position >= end:
                return
            for match_at, action, new_state in rules[stack[-1]]:
                found = match_at(text, position)
                if not found:
                    continue
                if action is not None:
                    if isinstance(action, tuple):
                        yield cast("_TokenType", action), found.group()
                    else:
                        for _, token, part in action(self._lexer, found):
                            yield token, part
                position = found.end()
                if new_state is not None:
                    _change_state(stack, new_state)
                break
            else:
                if text[position] == "\n":
                    stack[:] = ["root"]
                yield plain, text[position]
                position += 1
        if position < end:
            yield plain, text[position:]


def _change_state(stack: list[str], new_state: Any) -> None:
    if isinstance(new_state, tuple):
        for state in cast("tuple[str, ...]", new_state):
            if state == "#pop":
                if len(stack) > 1:
                    stack.pop()
            elif state == "#push":
                stack.append(stack[-1])
            else:
                stack.append(state)
    elif isinstance(new_state, int):
        if abs(new_state) >= len(stack):
            del stack[1:]
        else:
            del stack[new_state:]
    elif new_state == "#push":
        stack.append(stack[-1])
