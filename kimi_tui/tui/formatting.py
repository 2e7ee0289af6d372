"""Formats figures, times, sizes, money, paths and styled text, for the screen and the command line alike. No Textual here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from kimi_tui.display_names import counted, tokens
from kimi_tui.foreign_text import one_line

if TYPE_CHECKING:
    from datetime import datetime

    from kimi_tui.soul.blame import LineAuthor
    from kimi_tui.soul.token_meter import WindowPart
    from kimi_tui.soul.usage import Cost, RuleFigures, Statistics

MINUS = "−"
LEAST_S = 0.05
"""The shortest duration in seconds that is written; a shorter one would read as 0 s."""


# --- characters as people see them


_LONGEST_GRAPHEME = 64
"""Maximum number of code points of a character; longer ones are passed in pieces."""
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
"""Code points of the letters that form flags; two of them are one flag."""


def grapheme_before(text: str, at: int) -> int:
    """Return the index where the character begins that ends at `at`; a character is what is seen as one, of any number of code points.

    Args:
        text: one line.
        at: an index of it.
    """
    if at <= 1 or text[at - 2 : at].isascii():
        return max(0, at - 1)
    n_flags = 0
    while n_flags < at and ord(text[at - 1 - n_flags]) in _FLAG_LETTERS:
        n_flags += 1
    if n_flags:
        return at - 2 + n_flags % 2
    from rich.cells import split_graphemes

    start = max(0, at - _LONGEST_GRAPHEME)
    spans, _ = split_graphemes(text[start:at])
    return start + spans[-1][0]


def grapheme_after(text: str, at: int) -> int:
    """Return the index where the character ends that begins at `at`; characters are those of `grapheme_before`.

    Args:
        text: one line.
        at: an index of it.
    """
    if at + 1 >= len(text) or text[at : at + 2].isascii():
        return min(len(text), at + 1)
    flags = text[at : at + 2]
    if all(ord(one) in _FLAG_LETTERS for one in flags):
        return at + 2
    from rich.cells import split_graphemes

    spans, _ = split_graphemes(text[at : at + _LONGEST_GRAPHEME])
    return at + spans[0][1]


# --- figures


def rounded(count: int) -> str:
    """Format a number as `tokens` does, but as `21k` and `5k`: without decimals from ten thousand on, and without `.0`."""
    return (
        f"{round(count / 1_000)}k"
        if 9_950 <= count < 999_500
        else tokens(count).replace(".0k", "k")
    )


def change(count: int, *, estimated: bool = False) -> str:
    """Format a signed number of tokens: `+2.1k`, `−18.4k`; estimates without decimal, `~−18k`. Figures from 100 on are in k."""
    sign = MINUS if count < 0 else "+"
    size = abs(count)
    if estimated:
        body = f"{size}" if size < 1_000 else f"{round(size / 1_000)}k"
        return f"~{sign}{body}"
    if 50 <= size < 1_000:
        return f"{sign}{size / 1_000:.1f}k"
    return f"{sign}{tokens(size)}"


def both_sizes(before: int, after: int, to: str, *, estimated: bool) -> str:
    """Format two sizes as `4.4k → 3.1k` with `to` between (`~3.1k` for an estimate); with the difference, `4.4k −40`, if both
    look alike.
    """
    was, becomes = rounded(before), rounded(after)
    if was != becomes:
        return f"{was}{to}{'~' if estimated else ''}{becomes}"
    return f"{was} {change(after - before, estimated=estimated)}" if before != after else was


def percent(part: int, whole: int) -> str:
    """Format a share as `22%`, and as `<1%` if it is above zero but rounds to nothing."""
    if whole <= 0:
        return "0%"
    share = 100 * part / whole
    return "<1%" if 0 < share < 1 else f"{share:.0f}%"


def money(amount: float, currency: str) -> str:
    """Format a sum as `$0.42`, `$1,204`, `$0.0031`: without cents from a hundred on, with two significant digits below a cent."""
    if amount >= 99.995:
        return f"{currency}{amount:,.0f}"
    if amount >= 0.00995 or amount == 0:
        return f"{currency}{amount:.2f}"
    return f"{currency}{amount:.4f}" if amount >= 0.0001 else f"<{currency}0.0001"


def size_words(size_bytes: int) -> str:
    """Format a size in bytes: `840 B`, `12 kB`, `3.4 MB`."""
    if size_bytes < 1_000:
        return f"{size_bytes} B"
    if size_bytes < 999_500:
        return f"{size_bytes / 1_000:.0f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def grouped(count: int) -> str:
    """Format a number with separators: `1,998`."""
    return f"{count:,}"


def duration(seconds: float) -> str:
    """Format a duration: `0.3 s`, `12 s`, `3 min`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def clock(seconds: float) -> str:
    """Format the seconds of a running clock: `0:42`, `1:12`, `1:02:03`."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def age(then: datetime, now: datetime) -> str:
    """Format an age as `now`, `5 min`, `2 h`, `yesterday`, `3 d`, `2 w`, then as the date."""
    seconds = (now - then).total_seconds()
    if seconds < 60:
        return "now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min"
    days = (now.date() - then.date()).days
    # Times of some hours ago are given in hours also soon after midnight.
    if days == 0 or seconds < 6 * 3600:
        return f"{int(seconds // 3600)} h"
    if days == 1:
        return "yesterday"
    if days < 14:
        return f"{days} d"
    if days < 61:
        return f"{days // 7} w"
    return then.strftime("%Y-%m-%d")


def ago(age: str) -> str:
    """Return the result of `age` as a part of a sentence: `just now`, `5 min ago`, `yesterday`, a date."""
    if age == "now":
        return "just now"
    return f"{age} ago" if age[0].isdigit() and "-" not in age else age


_AUTHORS = {"before": "before", "task": "task", "other": "others"}


def author_words(author: LineAuthor, now: datetime) -> tuple[str, str, str]:
    """Return the author of a line in columns: the checkpoint (or `before` the session, `task`, `others`), the tool, the age."""
    from datetime import UTC, datetime

    when = age(datetime.fromtimestamp(author.at, UTC), now) if author.at else "now"
    if author.who != "agent":
        return _AUTHORS[author.who], "", when if author.who != "before" else ""
    point = f"#{author.checkpoint_id}" if author.checkpoint_id >= 0 else "agent"
    where = f"{point} world line {author.world_line}" if author.world_line else point
    return where, author.tool, when


def time_of(iso: str) -> datetime | None:
    """Return the time of a stored ISO 8601 text, in UTC if it names no zone; None if the text is no time.

    None also at the ends of the calendar, where there is no such time in the zone of this machine.
    """
    from datetime import UTC, datetime

    try:
        then = datetime.fromisoformat(iso)
        then = then if then.tzinfo else then.replace(tzinfo=UTC)
        then.astimezone()
    except (ValueError, OverflowError):
        return None
    return then


def short_age(seconds: float) -> str:
    """Format an age in at most six cells: `now`, `5 min`, `2 h`, `3 d`, `2 w`; empty if only a date would tell it."""
    for until, unit_s, name in (
        (3_600, 60, "min"),
        (86_400, 3_600, "h"),
        (14 * 86_400, 86_400, "d"),
        (61 * 86_400, 7 * 86_400, "w"),
    ):
        if seconds < 60:
            return "now"
        if seconds < until:
            return f"{int(seconds // unit_s)} {name}"
    return ""


# --- texts


def session_words(title: str, cells: int = 60) -> str:
    """Return a session as the subject of a sentence: its title in quotation marks, cut to so many cells, or words for an untitled one."""
    return f"“{cut(title, cells)}”" if title else "The session"


def cut(text: str, width: int, mark: str = "…") -> str:
    """Return the text in at most `width` cells; a longer one is cut and ends in the mark.

    The mark of a row that is painted here is that of the signs in use; in a sentence that is painted later the usual one is
    replaced there (`glyphs.drawn`).
    """
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1).rstrip() + mark if width > 1 else mark


Wordings = str | tuple[str, ...]
"""A text, or several that say the same, the longest first."""


def cut_wording(wordings: Wordings, width: int, mark: str = "…") -> str:
    """Return the longest of these texts that fits the width; if none does, the last one, cut as by `cut`."""
    if isinstance(wordings, str):
        return cut(wordings, width, mark)
    fitting = (text for text in wordings if cell_len(text) <= width)
    return next(fitting, None) or cut(wordings[-1] if wordings else "", width, mark)


def cut_head(text: str, width: int, mark: str) -> str:
    """Shorten to `width` terminal cells, with a mark in place of the beginning; empty if not even the mark fits."""
    if cell_len(text) <= width:
        return text
    room, kept = width - cell_len(mark), len(text)
    while kept and room - cell_len(text[kept - 1]) >= 0:
        room -= cell_len(text[kept - 1])
        kept -= 1
    return f"{mark}{text[kept:]}" if width >= cell_len(mark) else ""


def cut_middle(text: str, width: int, mark: str = "…") -> str:
    """Return the text in at most `width` cells; a longer one keeps its beginning and end, which tell similar names apart."""
    if cell_len(text) <= width:
        return text
    end, n_cells = len(text), 0
    while end and n_cells + cell_len(text[end - 1]) <= (width - 1) // 2:
        end -= 1
        n_cells += cell_len(text[end])
    return f"{cut(text, width - n_cells, mark)}{text[end:]}"


NAME_WIDTH = 40
"""Maximum number of cells of a world line's name within a sentence."""


def missing_line_words(n: int) -> str:
    """Return that there is no world line of a number, and where those that exist are listed."""
    return f"There is no world line {n}. The timeline lists them."


def line_words(world_line: int, name: str, width: int = NAME_WIDTH) -> str:
    """Return a world line as a part of a sentence: `world line 2 (fix the quotes)`, its name in at most `width` cells."""
    return f"world line {world_line}" + (f" ({cut(name, width)})" if name else "")


def wrap_words(text: str, width: int) -> list[str]:
    """Return the words in lines of at most `width` cells, unless a single word is longer; no line for no words."""
    lines: list[str] = []
    for word in text.split():
        if lines and cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def path(text: str, width: int, mark: str) -> str:
    """Return a path in at most `width` cells: it loses its middle folders first, then the middle of its file name."""
    if cell_len(text) <= width:
        return text
    folders, _, name = text.rpartition("/")
    if folders:
        first = folders.split("/")[0]
        for short in (f"{first}/{mark}/{name}", f"{mark}/{name}"):
            if cell_len(short) <= width:
                return short
    if cell_len(name) <= width:
        return name
    stem, dot, suffix = name.rpartition(".")
    tail = f"{dot}{suffix}" if stem and len(suffix) <= 5 else ""
    room = width - cell_len(tail) - 1
    if room < 1:
        return cut(name, width, mark)
    return set_cell_size(stem if tail else name, room).rstrip() + mark + tail


# --- statistics of a session


def statistics_pairs(figures: Statistics) -> list[tuple[str, str]]:
    """Return statistics as rows of a name and a sentence, without rows for what never happened."""
    from kimi_tui.tool_cards import short_name

    pairs: list[tuple[str, str]] = []
    if figures.turns or figures.steps:
        pairs.append(("turns", f"{figures.turns:,}, with {counted(figures.steps, 'step')}"))
    if figures.tool_calls:
        calls = ", ".join(
            f"{short_name(name)} {count:,}" for name, count in figures.tool_calls.items()
        )
        # Right after the last tool's name, the failures would be read as failures of its calls.
        total = f"{sum(figures.tool_calls.values()):,}"
        failed = f", {figures.tool_failures:,} failed" if figures.tool_failures else ""
        pairs.append(("tool calls", f"{total}{failed}: {calls}" if failed else calls))
    if figures.input_tokens or figures.output_tokens:
        cached = percent(figures.cached_tokens, figures.input_tokens)
        pairs.append(
            (
                "tokens",
                f"{tokens(figures.input_tokens)} input ({tokens(figures.cached_tokens)} cached, {cached}), "
                f"{tokens(figures.output_tokens)} output",
            )
        )
    if figures.cost is not None:
        pairs.append(("cost", cost_words(figures.cost)))
    if figures.dmails:
        pairs.append(
            (
                "D-Mails",
                f"{figures.dmails:,}, {tokens(figures.dmail_tokens_saved)} tokens removed from the context",
            )
        )
    pairs.extend((f"rule {one_line(one.name)}", rule_words(one)) for one in figures.dmail_rules)
    if figures.compactions:
        each = ", ".join(
            f"{tokens(before)} to {tokens(after, estimated=not measured)} ({percent(after, before)})"
            for before, after, measured in figures.compactions
        )
        pairs.append(("compactions", each))
    if figures.rewinds:
        pairs.append(("rewinds", f"{figures.rewinds:,}"))
    waits = (
        ("the model", figures.model_s),
        ("tools", figures.tools_s),
        ("you", figures.user_s),
    )
    waited = ", ".join(f"{who} {duration(time_s)}" for who, time_s in waits if time_s >= LEAST_S)
    if waited:
        pairs.append(("waiting time", waited))
    if figures.is_fork and pairs:
        pairs.append(("a fork", "these figures include the session that this one was forked from"))
    return pairs


def rule_words(rule: RuleFigures) -> str:
    """Return what a rule of D-Mails did, and what it really saved, as a sentence."""
    did = f"applied {counted(rule.fired, 'time')}: {counted(rule.drafted, 'D-Mail')} drafted, {rule.sent:,} sent, {rule.refused:,} refused by you"
    if not (rule.sent or rule.cost):
        return did

    def amount(value: float) -> str:
        if rule.currency:
            sign = "-" if value < 0 else ""
            return f"{sign}{money(abs(value), rule.currency)}"
        return f"{value:,.0f} tokens"

    unit = ""
    if not rule.currency:
        unit = (
            "; in tokens of uncached input, because prices are unknown or in different currencies"
        )
    return (
        f"{did}. Removed from the context: {tokens(rule.taken)} tokens. In {counted(rule.calls, 'step')} since then: "
        f"saved {amount(rule.saved)}, spent {amount(rule.cost)} (drafts, lost prompt cache), net {amount(rule.net)}{unit}"
    )


def window_pairs(parts: Iterable[WindowPart]) -> list[tuple[str, tuple[str, str]]]:
    """Return the parts of a context window as rows of a name, its tokens and its share; a part inside another one is indented."""
    parts = list(parts)
    whole = sum(part.tokens for part in parts if not part.is_inside)
    return [
        (
            f"{'  ' * part.is_inside}{one_line(part.name)}"
            + (f" ({grouped(part.count)})" if part.count else ""),
            (tokens(part.tokens, estimated=True), percent(part.tokens, whole)),
        )
        for part in parts
    ]


def cost_words(cost: Cost) -> str:
    """Format a cost: `$0.42`, `about $0.42` if some tokens are not known for certain, `at least $0.42` if a price is missing."""
    amounts = " + ".join(money(amount, currency) for currency, amount in cost.amounts)
    if not cost.is_whole:
        return f"at least {amounts}"
    return amounts if cost.is_exact else f"about {amounts}"
