"""The settings in groups, each with its title, its value and the value's source; Enter changes it in the file."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen

from kimi_tui.app_paths import reason_of, short
from kimi_tui.config.file import save_setting
from kimi_tui.config.keymap import usable_keys
from kimi_tui.config.reference import (
    HOLDS,
    Setting,
    Value,
    in_words,
    parsed,
    settings,
    value_of,
)
from kimi_tui.config.settings import GROUPS, Config, ConfigError
from kimi_tui.foreign_text import clean, one_line
from kimi_tui.launch import GivenValue
from kimi_tui.tui.dialogs.help import PLACES, meaning_of
from kimi_tui.tui.dialogs.text_dialog import TextDialog, TextQuestion
from kimi_tui.tui.faults import reported
from kimi_tui.tui.formatting import cut, path
from kimi_tui.tui.frame import hint_row
from kimi_tui.tui.frame_label import frame_label
from kimi_tui.tui.frame_rows import Hint
from kimi_tui.tui.glyphs import glyphs_of
from kimi_tui.tui.key_names import key_name
from kimi_tui.tui.keyboard import TOO_EARLY, AskingScreen
from kimi_tui.tui.pick_list import CHANGED, SETTINGS_KEYS, Entry, PickList
from kimi_tui.tui.prompt.command import CommandTable
from kimi_tui.tui.row_list import Words, plain
from kimi_tui.tui.screens import AnswersOnce, app_of, push_once, sheets

ROWS_AROUND = 15
"""Rows of the frame, the details of the chosen setting, and the keys; some of the screen behind stays visible."""
LEAST_AROUND = 12
"""The same on a low screen, of which the dialog takes all."""
LOW_BELOW = 30
NARROW_BELOW = 80
_ALONE = re.compile(
    r"(left|right)_(shift|control|alt|super|hyper|meta)|iso_level[35]_shift|(caps|num|scroll)_lock"
)
"""Keys that mean something only together with others, as terminals that report every key name them."""
MOST_VALUE_CELLS = 18
"""A longer value is shortened in the sentence about its source."""
SOURCES_FROM = 80
NOT_SET = "not set"
CHOICES_AROUND = 13
"""Rows of the frame, the meaning and the keys around a list of values."""
MOST_CHOICES = 6
"""The number of choices that are named at a time if a setting has more."""


class ConfigurationFile(NamedTuple):
    """The file that the settings screen changes, and what overrides its values.

    Attributes:
        path: the path of our `config.toml`.
        copied: kimi-cli's file, which is in use and from which ours is copied first; None if ours is in use.
        given: the values from arguments and the environment that override it.
        used: the values that the session uses now, with their sources, of settings that need not be set.
        kept: whether changes are written; false in the demo.
    """

    path: Path
    copied: Path | None = None
    given: Mapping[str, GivenValue] = {}
    used: Mapping[str, GivenValue] = {}
    kept: bool = True


class SettingsScreen(ModalScreen[None], AskingScreen[None]):
    """Lists the settings with their values, and changes them in the file.

    Args:
        config: the configuration.
        file: the file to change.
        commands: all commands; their titles describe the keys.
        key: the setting to begin with; empty for the first.
    """

    class ThemePreviewed(Message):
        """The theme with that name is to be shown, but not stored."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class SettingSaved(Message):
        """A setting was written to the file; `config` is the configuration with it."""

        def __init__(self, key: str, config: Config) -> None:
            super().__init__()
            self.key = key
            self.config = config

    HELP_TITLE = "Settings"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "settings")

    def __init__(
        self,
        config: Config,
        file: ConfigurationFile,
        commands: CommandTable,
        key: str = "",
    ) -> None:
        super().__init__()
        self._begins_with = key
        self._config = config
        self._file = file
        self._commands = commands
        self._settings = tuple(sorted(settings(), key=_place))
        self._writing = asyncio.Lock()
        self._theme: str | None = None
        """The theme that is previewed and not stored."""
        self._list = PickList(self.seen, narrows=True)
        self._about = Words(widget_id="about")
        self._status = Words(widget_id="outcome")
        self._keys = Words()

    def compose(self) -> ComposeResult:
        """Return the list above the details of the chosen setting."""
        frame = Vertical(self._list, self._about, self._status, self._keys)
        frame.border_title = frame_label(self, "Settings")
        glyphs = glyphs_of(self)
        room = min(app_of(self).size.width, _WIDEST) - _EDGES
        frame.border_subtitle = frame_label(self, path(short(self._file.path), room, glyphs.cut))
        yield frame

    def on_mount(self) -> None:
        """Focus the list."""
        keys = [setting.key for setting in self._settings]
        begin = keys.index(self._begins_with) if self._begins_with in keys else 0
        self._list.show(self._entries(), begin)
        self._fit()
        self._list.focus()
        self._show()

    def on_resize(self) -> None:
        """Show as many rows as fit."""
        self._fit()

    def _fit(self) -> None:
        self._list.show(self._entries(), self._list.chosen)
        width, height = app_of(self).size
        around = LEAST_AROUND if height < LOW_BELOW else ROWS_AROUND
        if width < NARROW_BELOW:
            around += 2  # the details of a setting wrap into more rows
        self._list.most = max(3, height - around)
        self._list.styles.height = (
            self._list.most + 1
        )  # one for what was typed to find a key, or how many there are
        self._show()

    @property
    def chosen(self) -> Setting:
        """The chosen setting."""
        return self._settings[self._list.chosen]

    def _value(self, setting: Setting) -> str:
        if setting.key == "theme" and self._theme is not None:
            return self._theme
        if given := self._file.given.get(setting.key):
            return given.value
        own = _shown(setting, value_of(self._config, setting))
        used = self._file.used.get(setting.key)
        return used.value if used is not None and not own else own

    def _source(self, setting: Setting) -> str:
        """Return the source of the value; empty if it is the default, or not set."""
        if setting.key == "theme" and self._theme is not None:
            return "preview"
        if given := self._file.given.get(setting.key):
            return given.source
        if self._is_default(setting):
            return ""
        return (self._config.source or self._file.path).name

    def _is_default(self, setting: Setting) -> bool:
        return value_of(self._config, setting) == setting.default

    @property
    def _has_sources(self) -> bool:
        """Whether there is room for a column with the source of each value."""
        return app_of(self).size.width >= SOURCES_FROM

    def _entries(self) -> list[Entry]:
        """Return the entries with their values, and the sources in a column."""
        entries: list[Entry] = []
        for setting in self._settings:
            value, source = one_line(self._value(setting)), self._source(setting)
            shown, beside = value or NOT_SET, source
            if value and not source and (used := self._file.used.get(setting.key)) is not None:
                beside = used.source
            if beside and self._has_sources:
                shown = (cut(shown, MOST_VALUE_CELLS, glyphs_of(self).cut), beside)
            entries.append(
                Entry(
                    _title(setting),
                    shown,
                    group=_group(setting),
                    words=setting.key,
                    changed=bool(source),
                )
            )
        return entries

    def _key_refusal(self, action: str, keys: str) -> str:
        """Return the reason why an action cannot have these keys; empty if it can."""
        found: list[str] = []
        others = {name: kept for name, kept in self._config.keys.items() if name != action}
        usable_keys({**others, action: keys}, lambda _, why: found.append(why))
        return found[-1] if found else ""

    def _show(self) -> None:
        """Show the details of the chosen setting."""
        setting = self.chosen
        meaning = setting.meaning or f"{meaning_of(setting.action, self._commands)}."
        facts = [f"Default: {_shown(setting, setting.default) or NOT_SET}."]
        if setting.check.choices:
            facts.append(_values(setting.check.choices, self._value(setting)))
        used = self._file.used.get(setting.key)
        if used is not None and self._value(setting) == used.value and not self._source(setting):
            facts.append(f"Not set; this session uses {used.value}.")
        elif used is not None and used.value != self._value(setting):
            facts.append(f"This session uses {used.value}.")
        if given := self._file.given.get(setting.key):
            facts.append(f"{given.source} sets it in this run.")
        elif self._theme is None and (source := self._source(setting)):
            facts.append(f"{CHANGED} Set in {source}.")
        facts.append(f"A change takes effect {HOLDS[setting.holds]}. In config.toml: {setting.key}")
        said = plain(meaning[:1].upper() + meaning[1:], "bright")
        self._about.show(said, plain(" ".join(facts), "quiet"))
        hints: list[Hint] = [("Enter", self._verb)]
        if setting.check.kind == "choice":
            hints.append(("Left, Right", "preview" if setting.key == "theme" else "next value"))
        if not self._is_default(setting):
            hints.append(("Del", "reset"))
        hints.append(("letters", "filter"))
        hints.append(("Esc", "clear the filter" if self._list.narrowed else "close"))
        self._keys.show(hint_row(hints, min(100, app_of(self).size.width) - 10))

    @property
    def _verb(self) -> str:
        """The effect of Enter on the chosen setting."""
        setting = self.chosen
        if setting.check.kind == "flag":
            return "turn off" if self._value(setting) == "on" else "turn on"
        if setting.key == "theme" and self._theme is not None:
            return "save this theme"
        return {"choice": "choose a value", "key": "press a key"}.get(setting.check.kind, "edit")

    def _refresh(self) -> None:
        self._list.show(self._entries(), self._list.chosen)
        self._show()

    def _say(self, words: str, style: str = "quiet") -> None:
        self._status.show(plain(clean(words), style))

    @on(PickList.Moved)
    def _moved(self) -> None:
        self._say("")
        self._put_theme_back()
        self._show()

    @on(PickList.Picked)
    def _picked(self) -> None:
        setting = self.chosen
        if setting.key == "theme" and self._theme is not None:
            self._keep(setting, self._theme)
        elif setting.check.kind == "flag":
            self._keep(setting, self._next(setting, 1))
        elif setting.check.kind == "choice":
            tried = self._preview if setting.key == "theme" else None
            choice = ChoiceQuestion(setting, self._value(setting), tried)
            push_once(self, choice, self._keep_choice)
        elif setting.check.kind == "key":
            refusal = partial(self._key_refusal, setting.action)
            question = KeyQuestion(setting.action, self._value(setting), refusal)
            push_once(self, question, self._keep_answer)
        else:
            dialog = TextDialog(self._question(setting), refusal=partial(_refusal, setting))
            push_once(self, dialog, self._keep_answer)

    def _question(self, setting: Setting) -> TextQuestion:
        values = f" Values: {', '.join(setting.check.choices)}." if setting.check.choices else ""
        return TextQuestion(
            _title(setting),
            f"{setting.meaning}{values}",
            "Separate entries with commas. Leave it empty for the default."
            if setting.check.kind == "list"
            else "Leave it empty for the default.",
            text=in_words(value_of(self._config, setting)),
            placeholder=in_words(setting.default),
            verb="save",
            may_be_empty=True,
            low=True,
        )

    def _keep_answer(self, answer: str | None) -> None:
        if answer is not None:
            self._keep(self.chosen, answer)

    def _keep_choice(self, answer: str | None) -> None:
        if answer is not None:
            self._keep(self.chosen, answer)
        elif self.chosen.key == "theme":
            self._preview(self._config.theme)

    def _next(self, setting: Setting, step: int) -> str:
        choices = setting.check.choices or ("off", "on")
        value = self._value(setting)
        place = choices.index(value) if value in choices else -1
        return choices[(place + step) % len(choices)]

    def on_key(self, event: events.Key) -> None:
        """Preview or change a value with the arrows, restore the default, close."""
        setting = self.chosen
        if event.key not in SETTINGS_KEYS:
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self._put_theme_back()
            self.dismiss(None)
        elif not self.seen.accepts(event.time):
            self._say(f"{TOO_EARLY.capitalize()}.")
        elif event.key == "delete":
            self._keep(setting, "")
        elif setting.check.kind in ("flag", "choice"):
            value = self._next(setting, 1 if event.key == "right" else -1)
            if setting.key == "theme":
                self._theme = value
                self._preview(value)
                self._refresh()
            else:
                self._keep(setting, value)

    def _preview(self, theme: str) -> None:
        # The messages here and below go to the app directly, as this screen may be closed before they have bubbled up.
        app_of(self).post_message(self.ThemePreviewed(theme))

    def _put_theme_back(self) -> None:
        if self._theme is not None:
            self._theme = None
            self._preview(self._config.theme)
            self._refresh()

    def _keep(self, setting: Setting, text: str) -> None:
        if not self._file.kept:
            self._say("The demo does not save settings.", "warn")
            return
        if refusal := _refusal(setting, text):
            self._say(refusal, "error")
            return
        value = parsed(setting, text)
        # The changes are made one after the other, each to the file that the one before has written.
        self.run_worker(
            reported(self, partial(self._write, setting, value)), group="write", exclusive=False
        )

    async def _write(self, setting: Setting, value: Value) -> None:
        path, copied = self._file.path, self._file.copied
        async with self._writing:
            try:
                after = await asyncio.to_thread(save_setting, path, setting.key, value, base=copied)
            except (ConfigError, OSError) as error:
                self._say(f"The setting was not saved: {reason_of(error)}", "error")
                return
        is_first = copied is not None
        self._file = self._file._replace(copied=None)
        self._config = after
        if setting.key == "theme":
            self._theme = None
        app_of(self).post_message(self.SettingSaved(setting.key, after))
        self._refresh()
        if is_first:
            self._say(
                f"Saved in {short(path)}, a copy of kimi-cli's file. kimi-tui uses this copy from now on."
            )
        elif setting.key in self._file.given:
            source = self._file.given[setting.key].source
            self._say(f"Saved. In this run {source} still overrides it.")
        else:
            self._say(f"Saved. The change takes effect {HOLDS[setting.holds]}.")


def _place(setting: Setting) -> int:
    """Return the place of a setting's group on the screen; the keys come last, in the order of the help."""
    if setting.check.kind != "key":
        return GROUPS.index(setting.group)
    areas = [area for _, area, _ in PLACES]
    area, dot, _ = setting.action.partition(".")
    return len(GROUPS) + (1 + areas.index(area) if dot and area in areas else 0 if not dot else 99)


def _group(setting: Setting) -> str:
    if setting.check.kind != "key":
        return setting.group
    area, dot, _ = setting.action.partition(".")
    place = next((title for title, one, _ in PLACES if one == area), area) if dot else "everywhere"
    return (
        f"Keys: {place[:1].lower()}{place[1:]}" if not place.startswith("D-") else f"Keys: {place}"
    )


def _title(setting: Setting) -> str:
    if setting.check.kind != "key":
        return setting.title
    words = setting.action.rpartition(".")[2].replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


_WIDEST, _EDGES = 100, 6
"""Cells of the frame, and of its lower edge that a text cannot use."""


def _values(choices: Sequence[str], chosen: str) -> str:
    """Return a sentence with the choices; if there are many, with those beside the chosen one, to which Left and Right lead."""
    if len(choices) <= MOST_CHOICES:
        return f"Values: {', '.join(choices)}."
    place = choices.index(chosen) if chosen in choices else 0
    first = max(0, min(place - MOST_CHOICES // 2, len(choices) - MOST_CHOICES))
    shown = ", ".join(choices[first : first + MOST_CHOICES])
    end = ", …" if first + MOST_CHOICES < len(choices) else "."
    return f"{len(choices)} values: {'…, ' if first else ''}{shown}{end}"


def _refusal(setting: Setting, text: str) -> str:
    """Return the reason why a text cannot be the value of a setting; empty if it can."""
    try:
        parsed(setting, text)
    except ValueError as error:
        return f"{_title(setting)} {error}."
    return ""


def _shown(setting: Setting, value: Value) -> str:
    if setting.check.kind != "key":
        return in_words(value)
    return ", ".join(key_name(one) for one in str(value).split(",") if one)


class ChoiceQuestion(ModalScreen[str | None], AskingScreen[str | None]):
    """Asks for one of the values of a setting. Its result is the value, or None if nothing was chosen.

    Args:
        setting: the setting.
        now: its present value.
        tried: called with each value that is selected, to preview it; None for no preview.
    """

    HELP_TITLE = "Lists: settings, models, servers"
    IS_EXPECTED = True
    CSS_PATH = sheets("rows", "settings")

    def __init__(self, setting: Setting, now: str, tried: Callable[[str], None] | None) -> None:
        super().__init__()
        self._setting = setting
        self._tried = tried
        values = setting.check.choices
        entries = [Entry(one, holds=one == now) for one in values]
        at = values.index(now) if now in values else 0
        self._list = PickList(self.seen, entries, chosen=at)
        self._keys = Words()

    def compose(self) -> ComposeResult:
        """Return the values, in a frame."""
        frame = Vertical(Words(plain(self._setting.meaning, "quiet")), self._list, self._keys)
        frame.border_title = frame_label(self, _title(self._setting))
        yield frame

    def on_mount(self) -> None:
        """Focus the list."""
        self._list.focus()
        self._keys.show(hint_row([("Enter", "save"), ("Esc", "cancel")], 54))

    def on_resize(self) -> None:
        """Show as many values as fit."""
        self._list.most = max(3, app_of(self).size.height - CHOICES_AROUND)
        self._list.refresh(layout=True)

    @on(PickList.Moved)
    def _moved(self) -> None:
        if self._tried is not None:
            self._tried(self._setting.check.choices[self._list.chosen])

    @on(PickList.Picked)
    def _picked(self) -> None:
        self.dismiss(self._setting.check.choices[self._list.chosen])

    def on_key(self, event: events.Key) -> None:
        """Close without a choice."""
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.dismiss(None)


class KeyQuestion(ModalScreen[str | None], AnswersOnce[str | None], inherit_bindings=False):
    """Asks for the keys of an action by having them pressed. Its result is the keys as `[keys]` has them, or None.

    Args:
        action: the name of the action in `[keys]`.
        now: its present keys, in words.
        refusal: returns the reason why it cannot have some keys; empty if it can.
    """

    CSS_PATH = sheets("rows", "settings")

    def __init__(self, action: str, now: str, refusal: Callable[[str], str]) -> None:
        super().__init__()
        self._action = action
        self._now = now
        self._refusal = refusal
        self._why = ""
        self._pressed: list[str] = []
        self._words = Words()
        self._keys = Words()

    def compose(self) -> ComposeResult:
        """Return the pressed keys, in a frame."""
        frame = Vertical(self._words, self._keys)
        frame.border_title = frame_label(self, self._action)
        yield frame

    def on_mount(self) -> None:
        """Show the question."""
        self._show()

    def _show(self) -> None:
        pressed = ", ".join(map(key_name, self._pressed))
        words = pressed or "Press a key. You can press further keys for the same action."
        self._why = self._refusal(",".join(self._pressed)) if pressed else ""
        below = (
            plain(f"This key {self._why}.", "error")
            if self._why
            else plain(f"Current keys: {self._now}.", "quiet")
        )
        self._words.show(plain(words, "bright" if pressed else "ink"), below)
        keep: list[Hint] = [("Enter", "save")] if pressed and not self._why else []
        again: list[Hint] = [("Backspace", "remove")] if pressed else []
        self._keys.show(hint_row([*keep, *again, ("Esc", "cancel")], 54))

    def on_key(self, event: events.Key) -> None:
        """Add the pressed key."""
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.dismiss(None)
        elif event.key == "enter" and self._pressed:
            if not self._why:
                self.dismiss(",".join(self._pressed))
        elif event.key == "backspace" and self._pressed:
            self._pressed.pop()
            self._show()
        elif event.key not in self._pressed and not _ALONE.fullmatch(event.key.split("+")[-1]):
            self._pressed.append(event.key)
            self._show()
