"""Blocks of the chat as HTML. All text is escaped here, after keys and private names were taken out of it.

Markdown is rendered with raw HTML off, so that no tag of a text becomes a tag of the page; an image becomes its address as
text, since a picture from elsewhere would be a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from kimi_tui.foreign_text import clean_source
from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    RetryBlock,
    ThoughtBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.projection.subagents import agent_name
from kimi_tui.tool_cards import DiffBlock, ImageBlock, ShellBlock, TodoBlock
from kimi_tui.tui.formatting import both_sizes, change, counted
from kimi_tui.tui.transcript.card_facts import facts_of, target_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from pygments.formatters.html import HtmlFormatter

    from kimi_tui.wire.events import AgentChanged

_WHOLE_CHARS = 50_000
"""The most characters of a result that are written whole; of a longer one, its head and tail."""
_EDGE_CHARS = 20_000
_COLOURED_CHARS = 40_000
"""The most characters of a code block whose code is coloured."""
_MARKDOWN = re.compile(r"[^\w \n.,;!?'\"()/%-]|^[ \d-]| $|\n\n\n|_", re.MULTILINE)
"""Characters to which Markdown may give a meaning; a text without them is words and nothing else."""
_STATE_SIGNS = {"done": "✓", "failed": "✗"}

Clean = Callable[[str], str]
Picture = Callable[[ImageBlock], str]
"""Returns the data URL of an image, empty to show only its name."""


class BlockWriter:
    """Writes blocks as HTML.

    Args:
        redacted: takes what is private out of a text.
        picture: the images of the session.
        tools: false to write only the titles of tool calls.
        steps: returns the messages of a sub-agent by its name; None to leave them out.
    """

    def __init__(
        self,
        redacted: Clean,
        picture: Picture,
        *,
        tools: bool = True,
        steps: Callable[[str], Sequence[Block]] | None = None,
    ) -> None:
        self._steps = steps
        self._redacted = redacted
        self._picture = picture
        self._tools = tools

    def article(self, key: int, block: Block) -> str:
        """Return a block as an `<article>`, with its key as the id."""
        kind = _kind_of(block)
        number = (
            f'<a class="point" href="#">#{block.checkpoint}</a>'
            if block.checkpoint is not None
            else ""
        )
        if isinstance(block, UserBlock) and (words := block.apart):
            kind = f"{kind} apart"
            number = f'<span class="point">{words}</span>'
        attributes = f'id="b{key}" class="{kind}"' + (
            f' data-n="{block.checkpoint}"' if block.checkpoint is not None else ""
        )
        return f"<article {attributes}>{number}{''.join(self._body(block))}</article>"

    def text(self, text: str) -> str:
        """Return a text as HTML: redacted, without control characters, escaped."""
        return escape(self.plain(text))

    def plain(self, text: str) -> str:
        """Return a text redacted and without control characters, not escaped."""
        return self._redacted(clean_source(text))

    def _body(self, block: Block) -> Iterator[str]:
        match block:
            case UserBlock():
                yield f'<div class="words">{self.text(block.written or block.text)}</div>'
                yield from map(self._image, block.images)
                for attached in block.attached:
                    yield f'<p class="quiet">{self.text(attached)}</p>'
            case AgentBlock():
                yield self.markdown(block.stream.source)
            case ThoughtBlock():
                seconds = f" {block.seconds:.0f} s" if block.seconds >= 1 else ""
                text = self.text(block.stream.text.strip())
                yield f"<details><summary>Thinking{seconds}</summary><pre>{text}</pre></details>"
            case ToolBlock():
                yield from self._tool(block)
            case DMailBlock():
                yield from self._dmail(block)
            case CompactionBlock():
                sizes = ""
                if block.tokens_before != block.tokens_after:
                    sizes = both_sizes(
                        block.tokens_before, block.tokens_after, " → ", estimated=block.estimated
                    )
                yield f'<p class="head"><b>Compacted</b> {escape(sizes)} tokens</p>'
                yield f"<details><summary>Summary</summary>{self.markdown(block.summary)}</details>"
            case RetryBlock():
                yield f'<p class="quiet">Trying again: {self.text(block.reason)}</p>'
            case ErrorBlock():
                words = " ".join(part for part in (block.reason, block.advice) if part)
                yield f'<p class="head"><b>{self.text(block.title)}</b> {self.text(words)}</p>'
            case MarkBlock():
                yield f'<p class="quiet">{self.text(block.text)}</p>'
            case NoticeBlock():
                words = " ".join(part for part in (block.text, block.advice) if part)
                yield f'<p class="notice {block.level}">{self.text(words)}</p>'
            case _:
                pass

    def _dmail(self, block: DMailBlock) -> Iterator[str]:
        sender = "Your D-Mail" if block.author == "person" else "D-Mail"
        way = f" from #{block.from_checkpoint}" if block.undid and not block.is_moved else ""
        size = (
            f" {change(block.tokens_changed, estimated=block.estimated)} tokens"
            if block.tokens_changed
            else ""
        )
        yield f'<p class="head"><b>{sender}</b>{escape(way)}{escape(size)}</p>'
        yield f'<div class="words">{self.text(block.text)}</div>'
        if block.undid:
            calls = f"{counted(block.tool_calls, 'tool call')} in " if block.tool_calls else ""
            yield f'<p class="quiet">Folded away: {calls}{counted(block.steps, "step")}</p>'

    def _tool(self, block: ToolBlock) -> Iterator[str]:
        facts = [" ".join(span.text for span in fact.spans) for fact in facts_of(block)]
        sign = _STATE_SIGNS.get(block.state, "◦")
        if block.card.is_letter:
            sign = "✉"
        title = (
            f'<span class="sign {escape(block.state)}">{sign}</span>'
            f"<b>{self.text(block.name)}</b> <code>{self.text(target_of(block))}</code>"
            f'<span class="facts">{self.text(" · ".join(facts))}</span>'
        )
        body = "".join(self._details(block)) if self._tools else ""
        if body:
            opened = " open" if any(isinstance(one, DiffBlock) for one in block.display) else ""
            yield f"<details{opened}><summary>{title}</summary>{body}</details>"
        else:
            yield f'<p class="head">{title}</p>'

    def _agent(self, one: AgentChanged) -> Iterator[str]:
        """Yield the steps of a sub-agent, folded."""
        blocks = self._steps(one.name) if self._steps is not None else ()
        rows = (
            f'<div class="{_kind_of(block)}">{"".join(self._body(block))}</div>' for block in blocks
        )
        if blocks:
            title = f"{counted(one.step, 'step')} of {self.text(agent_name(one))}"
            yield f'<details class="agent"><summary>{title}</summary>{"".join(rows)}</details>'

    def _details(self, block: ToolBlock) -> Iterator[str]:
        shown = block.display
        if block.agent is not None:
            yield from self._agent(block.agent)
            yield self.markdown(_shortened(block.output.strip()))
            return
        for one in shown:
            match one:
                case DiffBlock():
                    yield self._diff(one)
                case TodoBlock():
                    signs = {"done": "✓", "in_progress": "▸", "pending": "◦"}
                    items = (
                        f'<li class="{item.status}">{signs[item.status]} {self.text(item.title)}</li>'
                        for item in one.items
                    )
                    yield f'<ul class="todo">{"".join(items)}</ul>'
                case ShellBlock():
                    yield f'<pre class="command">{self.text(one.command)}</pre>'
                case ImageBlock():
                    yield self._image(one)
                case _:
                    pass
        if block.card.is_letter or block.card.shows in ("text", "list"):
            return
        output = block.output.strip("\n")
        if output and not any(isinstance(one, DiffBlock) for one in shown):
            yield f"<pre>{self.text(_shortened(output))}</pre>"

    def _diff(self, diff: DiffBlock) -> str:
        kinds = {"+": "add", "-": "del", " ": "same"}
        rows = "".join(
            f'<span class="{kinds[line.sign]}"><i>{line.number}</i>{line.sign}{self.text(line.text)}\n</span>'
            for line in diff.lines
        )
        path = f'<p class="quiet">{self.text(diff.path)}</p>'
        return f'{path}<pre class="diff">{rows}</pre>'

    def _image(self, image: ImageBlock) -> str:
        address = self._picture(image)
        name = self.text(image.label)
        if address:
            source = escape(address)
            return f'<img alt="{name}" src="{source}">'
        return f'<p class="quiet">[{name}]</p>'

    def markdown(self, text: str) -> str:
        """Return Markdown as HTML."""
        return _rendered(self.plain(text))


def _kind_of(block: Block) -> str:
    return type(block).__name__.removesuffix("Block").lower()


def _shortened(text: str) -> str:
    """Return a long text without its middle, with the number of characters that are missing."""
    if len(text) <= _WHOLE_CHARS:
        return text
    left_out = len(text) - 2 * _EDGE_CHARS
    return f"{text[:_EDGE_CHARS]}\n… {left_out:,} characters are left out …\n{text[-_EDGE_CHARS:]}"


@lru_cache(maxsize=256)
def _rendered(text: str) -> str:
    """Return Markdown as HTML. Words without any sign of Markdown, as most steps have, are not parsed."""
    if not _MARKDOWN.search(text):
        paragraphs = (escape(one.strip()) for one in text.split("\n\n"))
        return "".join(f"<p>{one}</p>\n" for one in paragraphs if one)
    return _parser("|" in text).render(text)


@cache
def _parser(has_tables: bool) -> MarkdownIt:
    """Return the parser; looking for a table costs as much as looking for all else that a line may begin."""
    from markdown_it import MarkdownIt
    from markdown_it.common.utils import escapeHtml

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "highlight": _coloured})
    parser.enable(["table", "strikethrough"] if has_tables else ["strikethrough"])

    def image(_self: Any, tokens: Sequence[Any], index: int, _options: Any, _env: Any) -> str:
        token = tokens[index]
        return escapeHtml(f"[image: {token.content} {token.attrGet('src') or ''}]")

    def link_open(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
        tokens[index].attrSet("rel", "noreferrer noopener")
        return str(self.renderToken(tokens, index, options, env))

    parser.add_render_rule("image", image)
    parser.add_render_rule("link_open", link_open)
    return parser


def _coloured(text: str, language: str, _attributes: str) -> str:
    """Return code as HTML with a class for each kind of token; plain text where the language is not known."""
    from pygments import highlight

    if len(text) > _COLOURED_CHARS or not language:
        return escape(text)
    lexer = _lexer(language)
    return highlight(text, lexer, _formatter()) if lexer is not None else escape(text)


@cache
def _formatter() -> HtmlFormatter[str]:
    from pygments.formatters.html import HtmlFormatter

    return HtmlFormatter(nowrap=True)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    """Return the lexer of a language; None for one that is not known, which takes long to find out."""
    from pygments import lexers
    from pygments.util import ClassNotFound

    find: Any = lexers.get_lexer_by_name  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    try:
        return find(language)
    except ClassNotFound:
        return None
