"""Splitting `<think>…</think>` off the start of an answer, wherever the stream cuts the tags."""

from __future__ import annotations

from typing import Literal

_OPEN = "<think>"
_CLOSE = "</think>"

Kind = Literal["text", "think"]


class ThinkTags:
    """Feed it content, get pieces that are told apart. Only a tag at the very start counts."""

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "after", "text"] = "start"
        self._held = ""

    def feed(self, content: str) -> list[tuple[Kind, str]]:
        """The pieces that are certain now."""
        if self._state == "text":
            return [("text", content)] if content else []
        self._held += content
        pieces: list[tuple[Kind, str]] = []
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._state = "thinking"
                self._held = begun[len(_OPEN) :].removeprefix("\n")
            elif _OPEN.startswith(begun):
                return []
            else:
                return self._text()
        if self._state == "thinking":
            thought, closed, rest = self._held.partition(_CLOSE)
            if not closed:
                kept = _overlap(self._held, _CLOSE)
                thought, rest = (
                    self._held[: len(self._held) - kept],
                    self._held[-kept:] * (kept > 0),
                )
            if thought:
                pieces.append(("think", thought))
            self._held = rest
            if closed:
                self._state = "after"
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                pieces += self._text()
        return pieces

    def finish(self) -> list[tuple[Kind, str]]:
        """What was held back, once nothing more comes."""
        held, self._held = self._held, ""
        if not held or self._state == "after":
            return []
        return [("think" if self._state == "thinking" else "text", held)]

    def _text(self) -> list[tuple[Kind, str]]:
        held, self._held, self._state = self._held, "", "text"
        return [("text", held)]


def _overlap(held: str, tag: str) -> int:
    """How many characters at the end of `held` may be the beginning of `tag`."""
    for size in range(min(len(held), len(tag) - 1), 0, -1):
        if held.endswith(tag[:size]):
            return size
    return 0
