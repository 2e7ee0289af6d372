"""Bursts of keys: text that came at once was pasted, or typed on a line that stood still; nobody saw what it did.

A terminal that does not mark pastes (bracketed paste is off, `tmux paste-buffer` without -p) sends them as keys, each end of a
line as Enter. So an Enter with more text behind it in the same burst is a line break. One that ends a burst without any other
sends, as `tmux send-keys 'x' Enter` and slow lines have it.

Where one key answers, a burst of several characters is no answer: `TypedText` comes before its keys, so that the app can take
the text as pasted.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual import events
from textual.message import Message

from kimi_tui.tui.key_sequences import CHORDS

BURST_S = 0.01
"""Maximum seconds between two keys of one burst: nobody types so fast."""
_WRITES = {"enter": "\n", "ctrl+j": "\n", "tab": "\t"}


class TypedPaste(events.Paste):
    """A burst of keys with an Enter that is followed by text; it is a paste if the field takes several lines.

    Attributes:
        keys: the keys that were sent, for fields of one line and lists, in which Enter keeps its meaning.
    """

    def __init__(self, keys: list[events.Key]) -> None:
        super().__init__("".join(_written(key) for key in keys))
        self.keys = keys
        self.time = keys[-1].time


class TypedText(events.Event):
    """Several characters that came at once; their keys follow as messages of their own.

    Attributes:
        text: the characters, without the Enter at their end.
        keys: the keys that follow.
    """

    def __init__(self, keys: list[events.Key]) -> None:
        super().__init__()
        self.text = "".join(map(_written, keys)).rstrip("\n")
        self.keys = keys
        self.time = keys[-1].time


def _written(message: Message) -> str:
    """Return the text that a key writes; empty for a key that writes nothing, and for a message that is no key."""
    if not isinstance(message, events.Key):
        return ""
    if (text := _WRITES.get(message.key)) is not None:
        return text
    is_text = message.is_printable and not message.key.startswith(CHORDS)
    return (message.character or "") if is_text else ""


def _is_enter(key: events.Key) -> bool:
    return key.key == "enter"


class Bursts:
    """Holds keys of a burst with an Enter back until nothing follows.

    Attributes:
        waits: whether keys are held back, until `BURST_S` after the newest input.
    """

    def __init__(self) -> None:
        self._run: list[events.Key] = []
        """The newest keys that write, held back because one of them is Enter."""
        self._written_at = float("-inf")

    @property
    def waits(self) -> bool:
        """Whether keys are held back."""
        return bool(self._run)

    def take(self, messages: Iterable[Message], now: float) -> list[Message]:
        """Return the messages that can be handed on after these, which came at once.

        Args:
            messages: keys and other messages.
            now: the monotonic time in seconds.
        """
        out: list[Message] = []
        run, self._run = self._run, []
        follows = now - self._written_at < BURST_S
        for message in messages:
            if isinstance(message, events.Key) and _written(message):
                run.append(message)
                continue
            out += _settled(run)
            out.append(message)
            run, follows = [], False
        if not run:
            return out
        self._written_at = now
        if any(map(_is_enter, run)) and (follows or not all(map(_is_enter, run))):
            self._run = run
        else:
            out += _settled(run)
        return out

    def end(self) -> list[Message]:
        """Return the keys that were held back: the burst is over."""
        run, self._run = self._run, []
        return _settled(run)


def _settled(run: list[events.Key]) -> list[Message]:
    last_text = max((at for at, key in enumerate(run) if not _is_enter(key)), default=-1)
    if any(map(_is_enter, run[: last_text + 1])):
        return [TypedPaste(run)]
    return [TypedText(run), *run] if len(run) > 1 and last_text >= 0 else [*run]
