"""From the Markdown source of one piece to elements that any width can be laid out from.

markdown-it-py reads CommonMark with tables and strike-through; HTML stays text, and only http(s) links are links.
Entities are decoded by the parser, so every text is cleaned once more here. It is imported with the first answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kimi_tui.foreign_text import clean, expand_tabs
from kimi_tui.tui.chat.lines import HIT_LINK, Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

PARSE_LIMIT = 20_000
"""A longer piece is shown as plain text: some of Markdown's rules take quadratic time on made-up input."""
NESTING_LIMIT = 12

_URL = re.compile(r"https?://[^\s<>\"'`\])}]*[^\s<>\"'`\])}.,;:!?]")
_TASK = re.compile(r"^\[([ xX])\][ \t]+")


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    runs: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; all levels look alike but for the space above them."""

    runs: tuple[Span, ...]
    level: int


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code."""

    lines: tuple[str, ...]
    language: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A break between topics."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; every row has as many cells as the head."""

    head: tuple[tuple[Span, ...], ...]
    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    aligns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation."""

    children: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list. `marker` is `-`, `3.` or a task's sign (`done`, `open`)."""

    marker: str
    children: tuple[Element, ...]
    tight: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Item, ...]


Element = Paragraph | Heading | Code | Rule | Table | Quote | Items


@cache
def _markdown() -> MarkdownIt:
    """One for all: it keeps nothing of a text, and compiling its rules takes longer than most texts."""
    from markdown_it import MarkdownIt

    options = {"html": False, "maxNesting": NESTING_LIMIT}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


class Parser:
    """Parses pieces of one text; link definitions of earlier pieces hold in later ones."""

    def __init__(self) -> None:
        self._env: dict[str, Any] = {}

    def parse(self, source: str) -> tuple[Element, ...]:
        """The elements of a piece. Never raises on content."""
        if len(source) > PARSE_LIMIT:
            return (Paragraph((Span(source),)),)
        tokens = _markdown().parse(source, self._env)
        elements, _ = _elements(tokens, 0, "")
        return tuple(elements)


def _elements(tokens: Sequence[Token], index: int, until: str) -> tuple[list[Element], int]:
    out: list[Element] = []
    while index < len(tokens):
        token = tokens[index]
        kind = token.type
        if kind == until:
            return out, index
        if kind == "paragraph_open":
            out.append(Paragraph(inline(tokens[index + 1])))
            index += 2
        elif kind == "heading_open":
            out.append(Heading(inline(tokens[index + 1], "strong"), int(token.tag[1:])))
            index += 2
        elif kind in {"fence", "code_block"}:
            lines = [
                expand_tabs(line) for line in clean(token.content).removesuffix("\n").split("\n")
            ]
            out.append(Code(tuple(lines), clean(token.info).strip()))
        elif kind == "hr":
            out.append(Rule())
        elif kind == "blockquote_open":
            children, index = _elements(tokens, index + 1, "blockquote_close")
            out.append(Quote(tuple(children)))
        elif kind in {"bullet_list_open", "ordered_list_open"}:
            items, index = _items(tokens, index)
            out.append(items)
        elif kind == "table_open":
            table, index = _table(tokens, index)
            out.append(table)
        elif kind == "inline":
            out.append(Paragraph(inline(token)))
        index += 1
    return out, index


def _items(tokens: Sequence[Token], index: int) -> tuple[Items, int]:
    opening = tokens[index]
    ordered = opening.type == "ordered_list_open"
    closing = opening.type.replace("open", "close")
    start = opening.attrGet("start")
    number = int(start) if isinstance(start, (int, str)) else 1
    items: list[Item] = []
    index += 1
    while index < len(tokens) and tokens[index].type != closing:
        delimiter = tokens[index].markup or "."
        tight = not (index + 1 < len(tokens) and _is_loose(tokens, index))
        children, index = _elements(tokens, index + 1, "list_item_close")
        marker = f"{number}{delimiter}" if ordered else "-"
        first = children[0] if children else None
        if not ordered and isinstance(first, Paragraph) and first.runs:
            task = _TASK.match(first.runs[0].text)
            if task is not None:
                marker = "open" if task[1] == " " else "done"
                text, style, hit = first.runs[0]
                children[0] = Paragraph((Span(text[task.end() :], style, hit), *first.runs[1:]))
        items.append(Item(marker, tuple(children), tight))
        number += 1
        index += 1
    return Items(tuple(items)), index


def _is_loose(tokens: Sequence[Token], index: int) -> bool:
    following = tokens[index + 1]
    return following.type == "paragraph_open" and not following.hidden


def _table(tokens: Sequence[Token], index: int) -> tuple[Table, int]:
    rows: list[tuple[tuple[Span, ...], ...]] = []
    aligns: list[str] = []
    row: list[tuple[Span, ...]] = []
    while index < len(tokens) and tokens[index].type != "table_close":
        token = tokens[index]
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            rows.append(tuple(row))
        elif token.type in {"th_open", "td_open"}:
            is_head = token.type == "th_open"
            if is_head:
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            row.append(inline(tokens[index + 1], "strong" if is_head else "ink"))
            index += 1
        index += 1
    head, *body = rows or [()]
    return Table(head, tuple(body), tuple(aligns)), index


def inline(token: Token, base: str = "ink") -> tuple[Span, ...]:
    """The runs of an inline token, styled on top of `base`."""
    out: list[Span] = []
    strong = italic = struck = 0
    href = ""
    label: list[str] = []
    for child in token.children or ():
        kind = child.type
        if kind in {"text", "text_special", "html_inline"}:
            text = clean(child.content)
            if href:
                label.append(text)
                out.append(
                    Span(text, _styled("ink", strong, italic, struck, link=True), HIT_LINK + href)
                )
            else:
                _put_text(out, text, _styled(base, strong, italic, struck))
        elif kind == "code_inline":
            text = clean(child.content).replace("\n", " ")
            label.append(text)
            out.append(Span(text, "ink@raised", HIT_LINK + href if href else ""))
        elif kind == "softbreak":
            out.append(Span(" ", base))
        elif kind == "hardbreak":
            out.append(Span("\n", base))
        elif kind == "image":
            source = clean(str(child.attrGet("src") or ""))
            out.append(Span(clean(child.content) or "image", base))
            out.append(Span(f" ({source})", "quiet"))
        elif kind == "link_open":
            href = clean(str(child.attrGet("href") or ""))
            label = []
            if not href.startswith(("http://", "https://")):
                href = ""
                label = [""]
                out.append(Span("", "link-target:" + clean(str(child.attrGet("href") or ""))))
        elif kind == "link_close":
            _end_link(out, href, "".join(label))
            href = ""
        elif kind.startswith("strong_"):
            strong += child.nesting
        elif kind.startswith("em_"):
            italic += child.nesting
        elif kind.startswith("s_"):
            struck += child.nesting
    return tuple(span for span in out if span.text) or (Span("", base),)


def _styled(base: str, strong: int, italic: int, struck: int, *, link: bool = False) -> str:
    name = "strong" if strong else base
    flags = ("i" if italic else "") + ("s" if struck else "") + ("u" if link else "")
    return f"{name}/{flags}" if flags else name


def _put_text(out: list[Span], text: str, style: str) -> None:
    if "://" not in text:
        out.append(Span(text, style))
        return
    position = 0
    for found in _URL.finditer(text):
        out.append(Span(text[position : found.start()], style))
        separator = "" if "/" in style else "/"
        out.append(Span(found.group(), f"{style}{separator}u", HIT_LINK + found.group()))
        position = found.end()
    out.append(Span(text[position:], style))


def _end_link(out: list[Span], href: str, label: str) -> None:
    """Say where a link goes wherever its text says something else that looks like an address."""
    if href:
        shown = label.strip().rstrip("/")
        looks_like_address = "." in shown and " " not in shown
        if looks_like_address and not href.rstrip("/").endswith(shown.removeprefix("www.")):
            out.append(Span(f" ({href})", "quiet"))
        return
    for index in range(len(out) - 1, -1, -1):
        if out[index].style.startswith("link-target:"):
            target = out[index].style.removeprefix("link-target:")
            text = "".join(span.text for span in out[index:])
            del out[index]
            if target and target != text:
                out.append(Span(f" ({target})", "quiet"))
            return
