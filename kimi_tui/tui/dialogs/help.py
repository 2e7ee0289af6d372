"""The help screen: all keys and commands, in sections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.tui.approval.model import CHANGE_KEY
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.formatting import cut, wrap_words
from kimi_tui.tui.glyphs import Glyphs, drawn, glyphs_of
from kimi_tui.tui.keyboard import key_name, key_of, keys_of, line_break_key, newline_keys
from kimi_tui.tui.pick_list import LIST_KEYS, MODEL_KEYS, SERVER_KEYS, SETTINGS_KEYS
from kimi_tui.tui.prompt.command import CommandTable
from kimi_tui.tui.row_list import plain
from kimi_tui.tui.rows import BLANK, Line, Span
from kimi_tui.tui.terminal_input import has_extended_keys

Pair = tuple[str, str]
COLUMN = 26
NARROW_BELOW = 56
"""Width in cells below which the column of keys is narrower."""

Row = tuple[tuple[str, ...], str]
"""A row of the help: actions by their names in `[keys]`, and their effects; the keys are looked up."""

PLACES: tuple[tuple[str, str, tuple[Row, ...]], ...] = (
    (
        "Chat",
        "chat",
        (
            (("chat.above", "chat.below"), "the block above, below: the others act on it"),
            (("chat.turn_before", "chat.turn_after"), "your message before, after"),
            (("chat.fold",), "fold or unfold it"),
            (("chat.preview",), "go back to it: see what a rewind takes; unfold a D-Mail"),
            (("chat.pin",), "pin it, or no longer"),
            (("chat.copy", "chat.copy_code"), "copy it or what is selected; its code"),
            (("chat.link",), "open its link"),
            (
                ("chat.select_up", "chat.select", "chat.select_all"),
                "select upwards, downwards, all",
            ),
            (("chat.copy_mode",), "select with a cursor that keys move"),
        ),
    ),
    (
        "Selecting with a cursor",
        "copy",
        (
            (("copy.left", "copy.down", "copy.up", "copy.right"), "a character, a row"),
            (("copy.word", "copy.back", "copy.word_end"), "the next word, the one before, its end"),
            (("copy.start", "copy.text", "copy.end"), "the row's beginning, its text, its end"),
            (("copy.turn_before", "copy.turn_after"), "your message before, after"),
            (("copy.page_up", "copy.page_down"), "a page up, down"),
            (("copy.top", "copy.bottom"), "the beginning, the end"),
            (("copy.mark", "copy.lines"), "select from here on, by characters or by lines; or not"),
            (("copy.swap",), "to the other end of what is selected"),
            (("copy.take",), "copy it, or the line of the cursor"),
            (("copy.leave",), "copy nothing"),
        ),
    ),
    (
        "Search",
        "search",
        (
            (("search.up", "search.down"), "the match before, the next one"),
            (("search.text",), "to the text, where the next two go on"),
            (("search.next", "search.before"), "the next match, the one before"),
            (("search.page_up", "search.page_down"), "read"),
            (("search.again",), "begin another search"),
            (("search.end",), "end it"),
        ),
    ),
    (
        "Timeline",
        "timeline",
        (
            (("timeline.up", "timeline.down"), "a step newer, older"),
            (("timeline.older_turn", "timeline.newer_turn"), "a turn older, newer"),
            (("timeline.older_branch", "timeline.newer_branch"), "a world line older, newer"),
            (("timeline.page_up", "timeline.page_down"), "a page newer, older"),
            (("timeline.newest", "timeline.oldest"), "now; the beginning"),
            (("timeline.choose",), "see what a rewind there takes, then decide; so does a click"),
            (("timeline.fold",), "fold or unfold a turn or a world line"),
            (("timeline.read",), "read a world line, or the chat at that step"),
            (("timeline.bookmark",), "name a step or a world line"),
            (("timeline.pin",), "pin what stands there, or no longer"),
            (("timeline.undo", "timeline.redo"), "undo, redo"),
            (("timeline.filter",), "filter"),
            (("timeline.replay",), "play the session back"),
            (("timeline.keys",), "list these keys"),
            (("timeline.leave",), "end the filter; back to the prompt"),
        ),
    ),
    (
        "Preview of a rewind",
        "preview",
        (
            (("preview.up", "preview.down"), "choose what to do"),
            (("preview.choose",), "do it"),
            (("preview.details",), "to the files, to what goes, and back"),
            (("preview.bring_back",), "bring the chosen file back, or leave it alone"),
            (("preview.page_up", "preview.page_down"), "read what goes"),
            (("preview.cancel",), "stay where you are"),
        ),
    ),
    (
        "World line",
        "line",
        (
            (("line.next", "line.before"), "choose the next message, the one before"),
            (("line.jump",), "go on with this line, up to before the chosen message"),
            (("line.compare",), "show it beside now"),
            (("line.send",), "send the chosen message to now"),
            (("line.leave",), "back to where it was opened"),
        ),
    ),
    (
        "Comparison",
        "compare",
        (
            (("compare.up", "compare.down"), "the message or file above, below"),
            (("compare.page_up", "compare.page_down"), "read"),
            (("compare.side",), "the other side; the files"),
            (("compare.next",), "the next difference"),
            (("compare.unfold",), "unfold"),
            (("compare.jump", "compare.whole"), "go on with the line before it; with all of it"),
            (("compare.send",), "send it to now"),
            (("compare.leave",), "back"),
        ),
    ),
    (
        "Replay",
        "replay",
        (
            (("replay.play",), "play, pause"),
            (("replay.back", "replay.on"), "a step back, on"),
            (("replay.turn_before", "replay.turn_after"), "a turn back, on"),
            (("replay.beginning", "replay.end"), "the beginning; the end"),
            (("replay.slower", "replay.faster"), "slower, faster"),
            (("replay.continue",), "go on from here in a session of its own"),
            (("replay.timeline",), "the timeline"),
            (("replay.leave",), "leave"),
        ),
    ),
    (
        "Sessions",
        "sessions",
        (
            (("sessions.find",), "search titles and what you said in them"),
            (("sessions.everywhere",), "those of all folders, or of this one"),
            (("sessions.rename", "sessions.fork"), "rename it; go on in a copy"),
            (
                ("sessions.archive", "sessions.archived"),
                "put it away, or back; show those put away",
            ),
            (("sessions.delete",), "put it into the trash; asks first"),
            (("sessions.leave",), "back"),
        ),
    ),
    (
        "D-Mails and summaries",
        "dmail",
        (
            (("dmail.draft",), "let the model write a first version"),
            (("dmail.cancel",), "do not send it"),
            (("summary.leave",), "close the summary"),
        ),
    ),
)
"""The sections: a title, the prefix of the names of their actions, and rows.

An action with that prefix that has no row is listed with the description of its binding.
"""


_ALSO: Mapping[str, tuple[Pair, ...]] = {
    "sessions": (
        ("↑, ↓, k, j", "the session above, below; in the search the arrows do"),
        ("Enter", "go on with it"),
    )
}
"""Keys of a place that cannot be changed."""


def sections(
    commands: CommandTable, keys: Mapping[str, str], glyphs: Glyphs, *, extended: bool = True
) -> tuple[tuple[str, tuple[Pair, ...]], ...]:
    """Return the sections of the help, each with a title and pairs of keys and meaning.

    Args:
        commands: all commands.
        keys: the configured keys, by action.
        glyphs: the set of signs in use.
        extended: whether the terminal sends Shift+Enter as a key of its own.
    """
    return tuple(
        (title, tuple((drawn(key, glyphs), drawn(meaning, glyphs)) for key, meaning in pairs))
        for title, pairs in _sections(commands, keys, glyphs, extended=extended)
    )


def _sections(
    commands: CommandTable, keys: Mapping[str, str], glyphs: Glyphs, *, extended: bool
) -> tuple[tuple[str, tuple[Pair, ...]], ...]:
    return (
        ("Prompt", _prompt(keys, extended=extended)),
        *(
            (title, (*_ALSO.get(area, ()), *_place(area, rows, keys)))
            for title, area, rows in PLACES
        ),
        ("Approvals", _approvals(keys, glyphs)),
        *_screens(),
        (
            "Commands",
            tuple(
                (command.usage, _with_key(command.help, key_of(command.name, keys)))
                for command in commands
            ),
        ),
    )


def _prompt(keys: Mapping[str, str], *, extended: bool) -> tuple[Pair, ...]:
    send = key_of("send", keys)
    newline = line_break_key(keys, extended=extended)
    shown_newline = _fitting(newline_keys(keys, extended=extended))
    escape, complete = key_of("escape", keys), key_of("complete", keys)
    rows = (
        (send, "send; while the agent works: steer it before its next step"),
        (f"{send}, prompt empty", "go on after a stop, an error or a rewind; try again now"),
        (
            shown_newline if newline != "Enter" else f"Enter, {shown_newline}",
            "begin a new line" if extended else "begin a new line; Shift+Enter is Enter here",
        ),
        (complete, "complete; else queue it for after the turn; in an empty prompt: to the chat"),
        (
            key_of("history-back", keys),
            "take back what is queued; else what was sent before",
        ),
        (key_of("history-forward", keys), "what was sent after that"),
        (
            escape,
            "close the menu; stop the agent; twice in an empty prompt: go back to a step",
        ),
        (key_of("interrupt", keys), "copy what is selected; stop; twice: quit"),
        (key_of("delete-or-quit", keys), "delete; twice in an empty prompt: quit"),
        (key_of("undo-typing", keys), "undo typing"),
        *_editing(),
        (_keys(("page-up", "page-down"), keys), "read the chat"),
        ("/ and a blank before it", "a command, and a message that begins like one"),
        (
            "@",
            "a file or folder that goes with the message; behind it #10-40 or :10-40: these lines",
        ),
        (
            key_of("paste", keys),
            "an image from the clipboard, or text; a dragged file comes as its path",
        ),
        ("! and !!", "run a command of your own; of one with !! the agent is not told"),
        ("#", "add a line to AGENTS.md"),
        (key_of("redraw", keys), "draw the screen anew, also on a terminal attached later"),
        (key_of("history", keys), "search what was sent; again: the one before"),
        ("Ctrl+X Ctrl+E", "write in the editor"),
        ("Esc, i", "where /settings has prompt.vim on: vim's commands, and back to writing"),
    )
    return tuple(row for row in rows if row[0])


def _editing() -> Iterator[Pair]:
    """Return the keys that edit the text and cannot be changed, as readline has them."""
    from kimi_tui.tui.prompt.area import PromptArea

    return _fixed(PromptArea.BINDINGS)


def _fixed(bindings: Sequence[BindingType]) -> Iterator[Pair]:
    """Yield the keys that cannot be changed."""
    for binding in bindings:
        if isinstance(binding, Binding) and not binding.id:
            yield _fitting(map(key_name, binding.key.split(","))), _small(binding.description)


def _screens() -> Iterator[tuple[str, tuple[Pair, ...]]]:
    """Yield the sections of modal screens, whose keys cannot be configured."""
    yield (
        "Lists: settings, models, servers",
        (
            ("letters", "only those with these in their name"),
            *(
                (", ".join(map(key_name, keys.split(","))), words)
                for keys, words in LIST_KEYS.items()
            ),
        ),
    )
    lists = (("Settings", SETTINGS_KEYS), ("Models", MODEL_KEYS), ("Local servers", SERVER_KEYS))
    for title, keys in lists:
        yield title, tuple((key_name(key), words) for key, words in keys.items())
    yield (
        "Jobs, window, statistics, notices",
        (*_fixed(TextScreen.BINDINGS), ("↑, ↓, PageUp, PageDown", "read")),
    )


def meaning_of(action: str, commands: CommandTable) -> str:
    """Return the effect of an action of `[keys]`, in words."""
    for _, _, rows in PLACES:
        for names, words in rows:
            if action in names:
                return words
    found = next((command.title for command in commands if command.name == action), "")
    return found or _small(_described(action)) or _PROMPT_WORDS.get(action, action)


_PROMPT_WORDS: Mapping[str, str] = {
    "complete": "complete a command or a name",
    "delete-or-quit": "delete the character; twice in an empty prompt: quit",
    "escape": "close the menu; stop the agent",
    "history-back": "what was sent before",
    "history-forward": "what was sent after that",
    "interrupt": "copy what is selected; stop; twice: quit",
    "newline": "begin a new line",
    "page-down": "read the chat downwards",
    "page-up": "read the chat upwards",
    "redraw": "draw the screen anew",
    "send": "send the message",
    "undo-typing": "undo typing",
}
"""The effects of the prompt's actions; the help says more about some."""


def _place(area: str, rows: Sequence[Row], keys: Mapping[str, str]) -> tuple[Pair, ...]:
    named = {name for names, _ in rows for name in names}
    rest = [
        ((name,), _small(_described(name)))
        for name in DEFAULT_KEYS
        if name.startswith(f"{area}.") and name not in named
    ]
    pairs = ((_keys(names, keys), words) for names, words in (*rows, *rest))
    return tuple(pair for pair in pairs if pair[0])


def _described(name: str) -> str:
    """Return the description of the chat's binding of an action; the table has those of other actions."""
    from kimi_tui.tui.transcript.transcript import Transcript

    bound = (one for one in Transcript.BINDINGS if isinstance(one, Binding))
    return next((one.description for one in bound if one.id == name), name.partition(".")[2])


def _small(words: str) -> str:
    return words[:1].lower() + words[1:]


def _keys(names: Sequence[str], keys: Mapping[str, str]) -> str:
    """Return the keys of one action, as many as fit; for several actions the first key of each."""
    if len(names) == 1:
        return _fitting(map(key_name, keys_of(names[0], keys)))
    return ", ".join(filter(None, (key_of(name, keys) for name in names)))


def _fitting(keys: Iterable[str]) -> str:
    shown = ""
    for key in filter(None, keys):
        longer = f"{shown}, {key}" if shown else key
        if shown and cell_len(longer) > COLUMN - 2:
            break
        shown = longer
    return shown


def _approvals(keys: Mapping[str, str], glyphs: Glyphs) -> tuple[Pair, ...]:
    mode, timeline = key_of("mode", keys), key_of("timeline", keys)
    rows = (
        ("y, a, n, e", "yes; yes for the session; no; no, and why"),
        ("y, c, n, e", "of a D-Mail: yes; yes, but change it; no; no, and why"),
        ("1 to 9, c, n, e", "of a plan: how it is carried out; change it; no; what is missing"),
        ("1 to 9, e, n", "of a question: an answer; one of your own; leave it to the agent"),
        (
            f"{glyphs.up}{glyphs.down}, Enter",
            "choose an answer, and give it; a digit chooses its row, too",
        ),
        ("PageUp, PageDown", "read all of what will run; where it is all to be seen, the chat"),
        ("Tab", "as many of its rows as the screen has room for, or fewer; else: to the chat"),
        (key_name(CHANGE_KEY), "edit a command before it runs; the agent is told"),
        (timeline, "look back; Esc there returns to the question, which takes no answer meanwhile"),
        (mode, "change what is asked from the next question on"),
        ("Esc", "stop the turn"),
    )
    return tuple(row for row in rows if row[0])


def _with_key(text: str, key: str) -> str:
    return f"{text}  {key}" if key else text


class HelpScreen(TextScreen, inherit_bindings=False):
    """Lists all keys and commands.

    Args:
        commands: all commands.
        keys: the configured keys, by action.
        title: the section to scroll to; empty for the beginning.
    """

    HELP_TITLE = ""  # its own key closes it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,f1", "dismiss", "Close", show=False),
    ]

    def __init__(self, commands: CommandTable, keys: Mapping[str, str], title: str = "") -> None:
        super().__init__("Help", self._rows)
        self._commands = commands
        self._keys = keys
        self._first = title

    def on_mount(self) -> None:
        """Scroll to the section, once the width of the rows is known."""
        if self._first:
            self.call_after_refresh(self._go_to_first)

    def _go_to_first(self) -> None:
        text = self.query_one(TextRows)
        titles = [row.text for row in text.lines(text.size.width)]
        scroll = self.query_one(VerticalScroll)
        # A user who has scrolled meanwhile stays there.
        if self._first in titles and scroll.scroll_target_y == 0:
            scroll.scroll_to(y=titles.index(self._first), animate=False, immediate=True)

    def _rows(self, width: int) -> list[Line]:
        """Return the sections, each under its title."""
        lines: list[Line] = []
        column = COLUMN if width >= NARROW_BELOW else COLUMN * 2 // 3
        for title, pairs in sections(
            self._commands, self._keys, glyphs_of(self), extended=has_extended_keys(self)
        ):
            lines.append(plain(title, "strong"))
            for key, meaning in pairs:
                gap = " " * (column - cell_len(key))
                first, *rest = wrap_words(meaning, max(16, width - column - 2))
                if len(gap) < 2:
                    # A key text that is wider than its column gets a row of its own.
                    lines.append(plain(f"  {cut(key, width - 2)}", "accent"))
                    rest.insert(0, first)
                else:
                    lines.append(Line((Span(f"  {key}", "accent"), Span(gap + first))))
                lines += [plain(" " * (column + 2) + row) for row in rest]
            lines.append(BLANK)
        return lines[:-1]
