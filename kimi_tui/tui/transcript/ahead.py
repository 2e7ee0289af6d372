"""What drawing a conversation needs is imported before it is drawn, in a thread: on the event loop it would hold up every key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.wire.events import EventRecord

_MOST_LANGUAGES = 8


def import_for_answers() -> None:
    """What the first answer will need, whatever it says."""
    from kimi_tui.tui.transcript import code, motion, viewport

    _import_markdown()
    code.warm_up()
    del motion, viewport


def import_for(records: Iterable[EventRecord]) -> None:
    """What a picture of these events needs, and no more: somebody waits for it."""
    from kimi_tui.projection import transcript
    from kimi_tui.tui.transcript import viewport
    from kimi_tui.tui.transcript.code import lexer_for
    from kimi_tui.tui.transcript.markdown_splitter import INFO_LIMIT, fence_of
    from kimi_tui.wire.events import TextPart

    del transcript, viewport
    _import_markdown()
    languages: dict[str, None] = {}
    for record in records:
        if isinstance(record.event, TextPart):
            fences = map(fence_of, record.event.text.split("\n"))
            languages |= {fence[2][:INFO_LIMIT]: None for fence in fences if fence and fence[2]}
    for language in list(languages)[-_MOST_LANGUAGES:]:
        lexer_for(language)


def _import_markdown() -> None:
    from kimi_tui.tui.transcript import markdown

    # Its rules are imported when it parses something.
    markdown.Parser().parse("")
