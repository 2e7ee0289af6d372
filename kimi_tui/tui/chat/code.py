"""Colouring code with three colours, a line at a time while it is still being written.

Pygments is only imported when the first fence needs it (or by `warm_up`, in a thread, before that).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from kimi_tui.tui.chat.lines import Span

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType  # pyright: ignore[reportPrivateUsage]

INK = "ink@raised"
KEYWORD = "code-keyword@raised"
STRING = "code-string@raised"
COMMENT = "code-comment@raised"

RELEX_LINES = 120
"""A closed fence of at most so many lines is coloured again as a whole, which mends what single lines cannot know."""

_Rule = tuple[Callable[[str, int], Any], Any, Any]


def warm_up() -> None:
    """Import what the first fence will need; meant for a thread."""
    for name in ("python", "bash", "json", "diff", "javascript", "toml"):
        lexer_for(name)


@lru_cache(maxsize=64)
def lexer_for(language: str) -> Lexer | None:
    """The lexer for the name after a fence, None where there is none."""
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


def colour(lines: list[str], language: str) -> list[list[Span]]:
    """All lines of a finished piece of code, coloured."""
    lexer = lexer_for(language) if lines else None
    if lexer is None:
        return [[Span(line, INK)] if line else [] for line in lines]
    out = _to_lines(lexer.get_tokens("\n".join(lines)))
    # A lexer may add or drop a last line end; the text's own lines decide.
    return (out + [[] for _ in lines])[: len(lines)]


class CodeStream:
    """Colours lines one after another, keeping the lexer's state between them.

    Pygments forgets its state at the end of a text, so the loop of its `RegexLexer` is written out here once more.
    """

    def __init__(self, language: str) -> None:
        self._lexer = lexer_for(language)
        self._stack = ["root"]
        rules: object = getattr(self._lexer, "_tokens", None)
        self._rules = cast("dict[str, list[_Rule]]", rules) if isinstance(rules, dict) else None
        if self._rules is not None and "root" not in self._rules:
            self._rules = None

    def feed(self, line: str) -> list[Span]:
        """The next whole line, coloured; the state moves on."""
        if self._rules is None:
            return [Span(line, INK)] if line else []
        out: list[Span] = []
        for token, text in self._lex(line + "\n", self._stack):
            _put(out, text.rstrip("\n"), _style_of(token))
        return out

    def peek(self, line: str) -> list[Span]:
        """A line that is not finished, coloured; the state stays."""
        if self._rules is None:
            return [Span(line, INK)] if line else []
        stack = self._stack
        self._stack = list(stack)
        try:
            return self.feed(line)
        finally:
            self._stack = stack

    def _lex(self, text: str, stack: list[str]) -> Iterator[tuple[_TokenType, str]]:
        rules = self._rules
        assert rules is not None
        plain: _TokenType = import_module("pygments.token").Token
        position = 0
        end = len(text)
        # A rule may match nothing and change state for ever in a broken lexer: the turns are bounded.
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
