"""The help screen: a page of the keys to know first, then all keys, signs and commands in sections, with a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Input

from kimi_tui.config.keymap import DEFAULT_KEYS
from kimi_tui.tui.approval.model import CHANGE_KEY
from kimi_tui.tui.dialogs.text_screen import TextRows, TextScreen
from kimi_tui.tui.formatting import cut, wrap_words
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.glyphs import Glyphs, drawn, glyphs_of
from kimi_tui.tui.key_names import key_name, key_of, keys_of, line_break_key, newline_keys
from kimi_tui.tui.line_field import LineField
from kimi_tui.tui.pick_list import LIST_KEYS, LISTED_KEYS, MODEL_KEYS, SERVER_KEYS, SETTINGS_KEYS
from kimi_tui.tui.prompt.command import CommandTable
from kimi_tui.tui.row_list import plain
from kimi_tui.tui.rows import BLANK, Line, Span
from kimi_tui.tui.terminal_input import has_extended_keys
from kimi_tui.tui.timeline.legend import legend

Pair = tuple[str, str]
FIRST = "Keys"
"""The title of the first section."""
LEGEND = "Timeline signs"
"""The title of the first section of the legend."""
COLUMN = 26
NARROW_BELOW = 56
"""Width in cells below which the column of keys is narrower."""
SNUG_BELOW = 80
"""Width in cells below which each section has a column that is only as wide as its own keys."""

Row = tuple[tuple[str, ...], str]
"""A row of the help: actions by their names in `[keys]`, and their effects; the keys are looked up."""

PLACES: tuple[tuple[str, str, tuple[Row, ...]], ...] = (
    (
        "Chat",
        "chat",
        (
            (("chat.above", "chat.below"), "select the block above or below"),
            (("chat.turn_before", "chat.turn_after"), "go to your previous or next message"),
            (("chat.fold",), "expand or collapse the selected block"),
            (("chat.preview",), "preview a rewind to the selected message; on a D-Mail: expand it"),
            (("chat.pin",), "pin the message, or unpin it: compaction and D-Mails keep it"),
            (("chat.copy", "chat.copy_code"), "copy the block or the selection; copy its code"),
            (("chat.link",), "open the first link of the block; again, the next one"),
            (
                ("chat.select_up", "chat.select", "chat.select_all"),
                "select text upwards or downwards; select all",
            ),
            (("chat.copy_mode",), "select text with a cursor that keys move"),
        ),
    ),
    (
        "Selecting with a cursor",
        "copy",
        (
            (
                ("copy.left", "copy.down", "copy.up", "copy.right"),
                "move by a character or by a row",
            ),
            (
                ("copy.word", "copy.back", "copy.word_end"),
                "go to the next word, the previous word or the end of the word",
            ),
            (
                ("copy.start", "copy.text", "copy.end"),
                "go to the start of the row, the start of its text or its end",
            ),
            (("copy.turn_before", "copy.turn_after"), "go to your previous or next message"),
            (("copy.page_up", "copy.page_down"), "move a page up or down"),
            (("copy.top", "copy.bottom"), "go to the start or the end of the chat"),
            (("copy.mark", "copy.lines"), "start or end a selection of characters or of lines"),
            (("copy.swap",), "go to the other end of the selection"),
            (("copy.take",), "copy the selection, or the row of the cursor"),
            (("copy.author",), "on a line of a diff: go to the checkpoint that wrote it"),
            (("copy.leave",), "leave without copying"),
        ),
    ),
    (
        "Search",
        "search",
        (
            (("search.up", "search.down"), "go to the previous or next match"),
            (("search.text",), "move the focus to the chat, where the next two keys work"),
            (("search.next", "search.before"), "go to the next or previous match"),
            (("search.page_up", "search.page_down"), "scroll the chat"),
            (("search.again",), "start another search"),
            (("search.end",), "end the search"),
        ),
    ),
    (
        "Timeline",
        "timeline",
        (
            (("timeline.up", "timeline.down"), "select a newer or an older step"),
            (("timeline.older_turn", "timeline.newer_turn"), "go to an older or a newer turn"),
            (
                ("timeline.older_branch", "timeline.newer_branch"),
                "go to an older or a newer world line",
            ),
            (("timeline.page_up", "timeline.page_down"), "move a page to newer or older steps"),
            (("timeline.newest", "timeline.oldest"), "go to the newest or the oldest step"),
            (("timeline.choose",), "preview a rewind to the step; a click does the same"),
            (("timeline.fold",), "expand or collapse a turn or a world line"),
            (
                ("timeline.read",),
                "read the selected world line, or the chat as it was at the selected step",
            ),
            (("timeline.bookmark",), "bookmark a checkpoint, or name a world line"),
            (("timeline.pin",), "pin the message of the step, or unpin it"),
            (("timeline.undo", "timeline.redo"), "undo or redo"),
            (("timeline.filter",), "filter the steps"),
            (("timeline.replay",), "replay the session"),
            (("timeline.keys",), "show these keys in the timeline"),
            (("timeline.leave",), "clear the filter; without one, return to the prompt"),
        ),
    ),
    (
        "Preview of a rewind",
        "preview",
        (
            (("preview.up", "preview.down"), "select an action"),
            (("preview.choose",), "carry out the selected action"),
            (("preview.details",), "go to the files, then to the removed messages, then back"),
            (("preview.bring_back",), "restore the selected file, or skip it"),
            (
                ("preview.line", "preview.line_before"),
                "in the full diff of a file: choose a line, and show who wrote it (blame)",
            ),
            (("preview.page_up", "preview.page_down"), "scroll the removed messages"),
            (("preview.cancel",), "close the preview; nothing changes"),
        ),
    ),
    (
        "World line",
        "line",
        (
            (("line.next", "line.before"), "select the next or previous message"),
            (
                ("line.jump",),
                "switch to this world line, without the selected message and later ones",
            ),
            (("line.compare",), "compare this world line with the current one"),
            (("line.send",), "copy the selected message to the current world line"),
            (("line.leave",), "close this view"),
        ),
    ),
    (
        "Viewing a future",
        "future",
        (
            (("future.next", "future.before"), "select the next or previous message"),
            (("future.message",), "send it a message; you can also just type"),
            (("future.stop",), "stop it; its finished steps are kept"),
            (("future.page",), "show all futures side by side"),
            (("future.answer",), "go to the waiting question"),
            (("future.leave",), "close this view"),
        ),
    ),
    (
        "Viewing a sub-agent of a future",
        "future",
        (
            (("future.next", "future.before"), "select the next or previous message"),
            (("future.message",), "send the future a message; you can also just type"),
            (("future.answer",), "go to the waiting question"),
            (("search",), "search"),
            (("future.leave",), "go back to the future"),
        ),
    ),
    (
        "Viewing a sub-agent",
        "subagent",
        (
            (("subagent.next", "subagent.before"), "select the next or previous message"),
            (("subagent.message",), "send it a message; you can also just type"),
            (("subagent.stop",), "stop only this sub-agent; the turn continues"),
            (("subagent.answer",), "go to the waiting question"),
            (("chat.preview",), "preview a rewind of the sub-agent to the selected step"),
            (("timeline",), "open its timeline"),
            (("subagent.leave",), "close this view"),
        ),
    ),
    (
        "Futures side by side",
        "futures",
        (
            (("futures.before", "futures.next"), "choose the previous or next future"),
            (("futures.up", "futures.down"), "select the message or file above or below"),
            (("futures.page_up", "futures.page_down"), "scroll"),
            (("futures.files",), "move to the files, and back"),
            (("futures.unfold",), "expand or collapse a message, or the diffs of a file"),
            (("futures.current",), "preview the switch to this future and its files"),
            (
                ("futures.send",),
                "copy the message to the current world line; in the files: copy the file to the work folder",
            ),
            (("futures.read",), "open the future to read its conversation"),
            (
                ("futures.opinion",),
                "ask the model how the futures differ; its answer changes nothing",
            ),
            (("futures.stop",), "stop the future"),
            (("futures.prune",), "delete the future; you are asked first"),
            (
                ("futures.new",),
                "start new futures: from the newest message if its turn failed, else from the end of the conversation",
            ),
            (("futures.leave",), "close the page"),
        ),
    ),
    (
        "Comparison",
        "compare",
        (
            (("compare.up", "compare.down"), "select the message or file above or below"),
            (("compare.page_up", "compare.page_down"), "scroll"),
            (("compare.side",), "move to the other side; to the files"),
            (("compare.next",), "go to the next difference"),
            (("compare.unfold",), "expand or collapse"),
            (
                ("compare.jump", "compare.whole"),
                "switch to just before the selected message; to the end of the world line",
            ),
            (("compare.send",), "copy the message to the current world line"),
            (("compare.leave",), "close the comparison"),
        ),
    ),
    (
        "Replay",
        "replay",
        (
            (("replay.play",), "play or pause"),
            (("replay.back", "replay.on"), "go one step back or forward"),
            (("replay.turn_before", "replay.turn_after"), "go one turn back or forward"),
            (("replay.beginning", "replay.end"), "go to the start or the end"),
            (("replay.slower", "replay.faster"), "play slower or faster"),
            (("replay.continue",), "continue from this step in a new session"),
            (("replay.timeline",), "move to the timeline"),
            (("replay.leave",), "leave the replay"),
        ),
    ),
    (
        "Sessions",
        "sessions",
        (
            (("sessions.find",), "search titles and your messages"),
            (("sessions.everywhere",), "show the sessions of all folders, or of this one"),
            (("sessions.rename", "sessions.fork"), "rename the session; open a copy of it"),
            (
                ("sessions.archive", "sessions.archived"),
                "archive the session, or unarchive it; show archived sessions",
            ),
            (
                ("sessions.others",),
                "list the sessions of other agents, such as Claude Code, to import one",
            ),
            (
                ("sessions.delete",),
                "move the session to the trash; you are asked first",
            ),
            (("sessions.leave",), "close the list"),
        ),
    ),
    (
        "D-Mails and summaries",
        "dmail",
        (
            (("dmail.draft",), "ask the model for a draft"),
            (("dmail.cancel",), "cancel the D-Mail"),
            (("summary.leave",), "close the summary"),
        ),
    ),
)
"""The sections: a title, the prefix of the names of their actions, and rows.

An action with that prefix that has no row is listed with the description of its binding.
"""


_ALSO: Mapping[str, tuple[Pair, ...]] = {
    "sessions": (
        ("↑, ↓, k, j", "select the session above or below; in the search field, letters are typed"),
        ("Enter", "resume the session"),
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
        (FIRST, _first(keys, extended=extended)),
        ("Prompt", _prompt(keys, extended=extended)),
        *_places(keys, glyphs),
        ("Approvals", _approvals(keys, glyphs)),
        *_screens(),
        (
            "Commands",
            tuple(
                (
                    command.usage,
                    _with_key(command.help, key_of(command.name, keys)),
                )
                for command in commands
            ),
        ),
    )


def _places(keys: Mapping[str, str], glyphs: Glyphs) -> Iterator[tuple[str, tuple[Pair, ...]]]:
    """Yield the sections of the places with keys, and the legend behind that of the timeline."""
    for title, area, rows in PLACES:
        yield title, (*_ALSO.get(area, ()), *_place(title, area, rows, keys))
        if area == "timeline":
            yield from legend(glyphs)


def _first(keys: Mapping[str, str], *, extended: bool) -> tuple[Pair, ...]:
    """Return the keys to know first: one page, also on a terminal with 20 rows."""
    rows = (
        (key_of("send", keys), "send, also while the agent works"),
        (line_break_key(keys, extended=extended), "begin a new line"),
        (key_of("escape", keys), "stop; twice: go back to a step"),
        (key_of("mode", keys), "change what runs without asking"),
        (key_of("timeline", keys), "timeline: go back to any step"),
        (key_of("complete", keys), "complete; queue a message"),
        (
            _listed(key_of("history", keys), key_of("search", keys)),
            "search sent messages or the chat",
        ),
        (key_of("compact", keys), "compact the context"),
        (_listed("/", key_of("commands", keys)), "list the commands"),
        ("@  !  #", "attach; run; add to AGENTS.md"),
        (key_of("legend", keys), "timeline and gauge signs"),
        (key_of("quit", keys), "quit"),
        (
            _listed("?", key_of("help", keys)),
            "this page; type to search",
        ),
    )
    return tuple(row for row in rows if row[0])


def _listed(*keys: str) -> str:
    return ", ".join(filter(None, keys))


def _prompt(keys: Mapping[str, str], *, extended: bool) -> tuple[Pair, ...]:
    send = key_of("send", keys)
    newline = line_break_key(keys, extended=extended)
    shown_newline = _fitting(newline_keys(keys, extended=extended))
    escape, complete = key_of("escape", keys), key_of("complete", keys)
    rows = (
        (send, "send the message; a working agent reads it before its next step"),
        (f"{send}, prompt empty", "continue after a stop, an error or a rewind; retry now"),
        (
            shown_newline if newline != "Enter" else f"Enter, {shown_newline}",
            "begin a new line" if extended else "begin a new line (Shift+Enter sends here)",
        ),
        (
            complete,
            "complete a name; else queue the message until the turn ends; in an empty prompt, go to the chat",
        ),
        (
            key_of("history-back", keys),
            "edit the queued message; else show the previous sent message",
        ),
        (key_of("history-forward", keys), "show the next sent message"),
        (
            escape,
            "close the menu; stop the agent; twice in an empty prompt: choose a step to go back to",
        ),
        (key_of("interrupt", keys), "copy the selection; stop the agent; twice: quit"),
        (key_of("delete-or-quit", keys), "delete; twice in an empty prompt: quit"),
        (key_of("undo-typing", keys), "undo typing"),
        *_editing(),
        (_keys(("page-up", "page-down"), keys), "scroll the chat"),
        ("/", "run a command; with a space before it, send the text as a message"),
        ("?, prompt empty", "show the keys"),
        (
            "@",
            "attach a file or folder to the message; #10-40 or :10-40 after it attaches these lines",
        ),
        (
            key_of("paste", keys),
            "paste an image or text from the clipboard; a dragged file becomes its path",
        ),
        (
            "! and !!",
            "run a shell command of your own, outside the sandbox; !! hides it from the agent",
        ),
        ("#", "add a line to AGENTS.md"),
        (key_of("redraw", keys), "redraw the screen, for example after tmux attach"),
        (key_of("history", keys), "search sent messages; again: the next match"),
        ("Ctrl+X Ctrl+E", "edit the prompt in your editor"),
        ("Esc, i", "vim: go to normal or to insert mode (setting prompt.vim)"),
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
            ("letters", "show only the entries that contain what you type"),
            *(
                (", ".join(map(key_name, keys.split(","))), words)
                for keys, words in LIST_KEYS.items()
            ),
        ),
    )
    lists = (
        ("Settings", SETTINGS_KEYS),
        ("Permissions", LISTED_KEYS),
        ("Models", MODEL_KEYS),
        ("Local servers", SERVER_KEYS),
    )
    for title, keys in lists:
        yield title, tuple((key_name(key), words) for key, words in keys.items())
    yield (
        "Tasks, context, statistics, notices",
        (*_fixed(TextScreen.BINDINGS), ("↑, ↓, PageUp, PageDown", "scroll")),
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
    "complete": "complete a command or a path",
    "delete-or-quit": "delete the character; twice in an empty prompt: quit",
    "escape": "close the menu; stop the agent",
    "history-back": "show the previous sent message",
    "history-forward": "show the next sent message",
    "interrupt": "copy the selection; stop the agent; twice: quit",
    "newline": "begin a new line",
    "page-down": "scroll the chat down",
    "page-up": "scroll the chat up",
    "redraw": "redraw the screen",
    "send": "send the message",
    "undo-typing": "undo typing",
}
"""The effects of the prompt's actions; the help says more about some."""


def _place(title: str, area: str, rows: Sequence[Row], keys: Mapping[str, str]) -> tuple[Pair, ...]:
    """Return the keys of a place, behind them those of its area that no place names; two places may share an area."""
    sharing = [(each, listed) for each, other, listed in PLACES if other == area]
    named = {name for _, listed in sharing for names, _ in listed for name in names}
    rest = [
        ((name,), _small(_described(name)))
        for name in DEFAULT_KEYS
        if title == sharing[0][0] and name.startswith(f"{area}.") and name not in named
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
        ("y, a, n, e", "yes; yes for the session; no; no, with a reason"),
        ("p", "yes, and do not ask again in this folder (revoke it with /permissions)"),
        ("y, c, n, e", "D-Mail: yes; yes, but edit it; no; no, with a reason"),
        (
            "1 to 9, c, n, e",
            "plan: 1 to 9 approve it, c edits it first; n stops the turn, e asks for a better plan",
        ),
        ("1 to 9, e, n", "question: an answer; your own answer; let the agent decide"),
        (
            f"{glyphs.up}{glyphs.down}, Enter",
            "select an answer, and confirm it; the digit of an answer does both at once",
        ),
        ("PageUp, PageDown", "read all of what will run; if all is shown, scroll the chat"),
        ("Tab", "show more or fewer rows of what will run; else go to the chat"),
        (key_name(CHANGE_KEY), "edit a command before it runs; the agent is told of the change"),
        (timeline, "look at the timeline; Esc there returns to the question"),
        (mode, "change the mode; the open question stays open"),
        ("Esc", "stop the turn"),
    )
    return tuple(row for row in rows if row[0])


def _with_key(text: str, key: str) -> str:
    return f"{text}  {key}" if key else text


class HelpScreen(TextScreen, inherit_bindings=False):
    """Lists all keys and commands; typing shows only the rows with the typed words.

    Args:
        commands: all commands.
        keys: the configured keys, by action.
        title: the section to scroll to; empty for the beginning.
    """

    HELP_TITLE = ""  # its own key closes it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "dismiss", "Close", show=False),
        # They come before the field, which has no use for them while it is empty.
        Binding("home", "scroll_far(0)", "First row", show=False, priority=True),
        Binding("end", "scroll_far(1)", "Last row", show=False, priority=True),
    ]

    def __init__(self, commands: CommandTable, keys: Mapping[str, str], title: str = "") -> None:
        super().__init__("Help", self._rows)
        self._commands = commands
        self._keys = keys
        self._first = title
        self._field = LineField(placeholder="Type to search", id="find")

    def compose(self) -> ComposeResult:
        """Return the field of the search over the text."""
        frame = Vertical(self._field, self.scrolled())
        frame.border_title = frame_label(self, self._title)
        frame.border_subtitle = frame_label(self, "↑↓ scroll  Esc close")
        yield frame

    def on_mount(self) -> None:
        """Scroll to the section, once the width of the rows is known."""
        self._field.focus()
        if self._first:
            self.call_after_refresh(self._go_to_first)

    def _go_to_first(self) -> None:
        text = self.query_one(TextRows)
        titles = [row.text for row in text.lines(text.size.width)]
        scroll = self.query_one(VerticalScroll)
        # A user who has scrolled meanwhile stays there.
        if self._first in titles and scroll.scroll_target_y == 0:
            scroll.scroll_to(y=titles.index(self._first), animate=False, immediate=True)

    @on(Input.Changed)
    def _typed(self) -> None:
        """Show the rows that match."""
        self.query_one(TextRows).refresh(layout=True)
        self.query_one(VerticalScroll).scroll_to(y=0, animate=False, immediate=True)

    def on_key(self, event: events.Key) -> None:
        """Scroll by keys that do not edit the search; Esc ends the search first."""
        scroll = self.query_one(VerticalScroll)
        actions = {
            "up": scroll.action_scroll_up,
            "down": scroll.action_scroll_down,
            "pageup": scroll.action_page_up,
            "pagedown": scroll.action_page_down,
        }
        if event.key == "escape" and self._field.value:
            self._field.value = ""
        elif event.key == "escape":
            self.dismiss(None)
        elif event.key in actions:
            with suppress(SkipAction):
                actions[event.key]()
        else:
            return
        event.stop()
        event.prevent_default()

    def action_scroll_far(self, end: int) -> None:
        """Scroll to the first row (0), or to the last one (1); while a search is typed its field gets the key."""
        if self._field.value:
            raise SkipAction
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_to(y=scroll.max_scroll_y * end, animate=False, immediate=True)

    def _found(self) -> Iterator[tuple[str, Sequence[Pair]]]:
        """Yield the sections with the rows that contain every typed word, in their text or in the title of their section.

        While a search is typed, what is named by these words comes first: the command `/rewind` for `rewind`.
        """
        words = self._field.value.lower().split()
        found = sections(
            self._commands, self._keys, glyphs_of(self), extended=has_extended_keys(self)
        )
        if not words:
            yield from found
            return

        def rank(pair: Pair) -> int:
            key = pair[0].lower()
            if key.startswith(f"/{words[0]}"):
                return 0
            return 1 if all(word in key for word in words) else 2

        matching: list[tuple[str, list[Pair]]] = []
        for title, pairs in found:
            shown = [
                pair
                for pair in pairs
                if all(word in f"{title} {' '.join(pair)}".lower() for word in words)
            ]
            # The first page would repeat rows of the others.
            if shown and title != FIRST:
                matching.append((title, sorted(shown, key=rank)))
        yield from sorted(matching, key=lambda section: rank(section[1][0]))

    def _rows(self, width: int) -> list[Line]:
        """Return the sections, each under its title."""
        lines: list[Line] = []
        most = COLUMN if width >= NARROW_BELOW else COLUMN * 2 // 3
        for title, pairs in self._found():
            lines.append(plain(title, "strong"))
            column = most
            if width < SNUG_BELOW:
                fitting = (cell_len(key) + 3 for key, _ in pairs if cell_len(key) + 2 <= most)
                column = min(most, max(fitting, default=most))
            for key, meaning in pairs:
                gap = " " * (column - cell_len(key))
                first, *rest = wrap_words(meaning, max(16, width - column - 2))
                if len(gap) < 2:
                    # A key text that is wider than its column gets a row of its own.
                    lines.append(plain(f"  {cut(key, width - 2, glyphs_of(self).cut)}", "accent"))
                    rest.insert(0, first)
                else:
                    lines.append(Line((Span(f"  {key}", "accent"), Span(gap + first))))
                lines += [plain(" " * (column + 2) + row) for row in rest]
            lines.append(BLANK)
        return lines[:-1] or [plain("No key or command matches. Esc shows all.", "quiet")]
