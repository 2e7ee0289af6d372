"""A session as a recording of a terminal in the format of asciinema, version 2 (docs.asciinema.org/manual/asciicast/v2).

The first line is a header, each other one `[seconds, "o", text]`. Blocks are printed as they come and nothing is drawn twice, so
a session of thousands of steps stays small; what a D-Mail or a rewind took away is said in a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from kimi_tui.export.story import Story
from kimi_tui.foreign_text import clean_source
from kimi_tui.projection.blocks import (
    AgentBlock,
    Block,
    CompactionBlock,
    DMailBlock,
    ErrorBlock,
    MarkBlock,
    NoticeBlock,
    ToolBlock,
    UserBlock,
)
from kimi_tui.tool_cards import DiffBlock
from kimi_tui.tui.formatting import counted, cut
from kimi_tui.tui.transcript.card_facts import facts_of, target_of

WIDTH = 100
HEIGHT = 30
_OUTPUT_ROWS = 8
_DIFF_ROWS = 20
_BLUE, _GREEN, _RED, _GREY, _ORANGE, _VIOLET = "1;34", "32", "31", "90", "33", "35"


def write_cast(
    story: Story, redacted: Callable[[str], str], at: float, *, tools: bool = True
) -> Iterator[str]:
    """Yield the lines of the recording.

    Args:
        story: the session.
        redacted: takes what is private out of a text.
        at: when it is made, in seconds since the epoch.
        tools: false to print only the titles of tool calls.
    """

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=True) + "\n"

    title = redacted(clean_source(story.title))
    yield line(
        {"version": 2, "width": WIDTH, "height": HEIGHT, "timestamp": int(at), "title": title}
    )
    shown: list[int] = []
    for frame in story.frames:
        start, items = frame.blocks
        gone = [key for key in shown[start:] if key not in items]
        shown[start:] = items
        said = ""
        if gone:
            said += _rows(f"↶ {counted(len(gone), 'block')} removed from the chat", _GREY, "  ")
        said += "".join(
            text
            for key in items
            for text in _printed(
                story.blocks[key], lambda text: redacted(clean_source(text)), tools
            )
        )
        if said:
            yield line([round(frame.at_s, 3), "o", said])


def _painted(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _rows(text: str, style: str, lead: str = "") -> str:
    return "".join(
        f"{lead}{_painted(cut(row, WIDTH - len(lead)), style)}\r\n" for row in text.split("\n")
    )


def _printed(block: Block, plain: Callable[[str], str], tools: bool) -> Iterator[str]:
    match block:
        case UserBlock():
            style = _GREY if block.apart else _BLUE
            yield "\r\n" + _rows(plain(block.text), style, "> ") + "\r\n"
            if block.apart:
                yield _rows(f"({block.apart})", _GREY, "  ")
        case AgentBlock():
            yield plain(block.stream.text).strip().replace("\n", "\r\n") + "\r\n\r\n"
        case ToolBlock():
            facts = " · ".join(" ".join(s.text for s in fact.spans) for fact in facts_of(block))
            sign = {"done": _painted("✓", _GREEN), "failed": _painted("✗", _RED)}.get(
                block.state, "◦"
            )
            title = cut(plain(f"{block.name} {target_of(block)}   {facts}"), WIDTH - 4)
            yield f"  {sign} {title}\r\n"
            if tools:
                yield _body(block, plain)
        case DMailBlock():
            yield "\r\n" + _rows(f"✉ D-Mail\n{plain(block.text)}", _ORANGE, "│ ") + "\r\n"
        case CompactionBlock():
            yield _rows("Compacted", _VIOLET, "│ ")
        case ErrorBlock():
            yield _rows(plain(f"{block.title} {block.reason}"), _RED, "  ")
        case MarkBlock() | NoticeBlock():
            yield _rows(plain(block.text), _GREY, "  ")
        case _:
            pass


def _body(block: ToolBlock, plain: Callable[[str], str]) -> str:
    diffs = [one for one in block.display if isinstance(one, DiffBlock)]
    if diffs:
        rows = [line for one in diffs for line in one.lines][:_DIFF_ROWS]
        styles = {"+": _GREEN, "-": _RED, " ": _GREY}
        return "".join(
            _rows(line.sign + plain(line.text), styles[line.sign], "    ") for line in rows
        )
    output = plain(block.output).strip("\n") if block.card.shows in ("output", "command") else ""
    if not output:
        return ""
    lines = output.split("\n")
    rows = lines[-_OUTPUT_ROWS:]
    more = (
        [f"… {counted(len(lines) - len(rows), 'earlier line')}"] if len(lines) > len(rows) else []
    )
    return _rows("\n".join([*more, *rows]), _GREY, "    ")
