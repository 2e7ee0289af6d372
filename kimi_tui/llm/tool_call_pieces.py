"""Puts streamed tool calls together: decides which piece belongs to which call, and which call only repeats another.

By the protocol a call begins with an index, an id and a name of its own, and its later pieces have the same index. Gateways
number pieces in place of calls, leave indices and ids out, change them, share them, name a call at its end, begin with `{}`,
encode the arguments twice, and send whole calls again. The rules of `ToolCallMerger`:

1. A piece belongs to the call with its id, else to the call with its index, else to the last call with incomplete arguments.
2. Only a piece with a name starts a call. A piece without a name continues a call; if no call is open, the piece waits for
its name, and is dropped at the end if it only repeats known arguments.
3. A call with the name and the arguments of an earlier call repeats that call and is dropped, unless both have ids and the
ids differ: two calls that differ only in the id are two calls. Arguments are compared as values.
4. `{}` and `null` in front of other arguments count as nothing. Arguments that are a JSON string are the text in it.

A call is held back until these rules have decided about it, and later calls wait for it: calls are given out in the order in
which they began, and their positions have no gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kimi_tui import lenient_json
from kimi_tui.llm.provider import ToolCallDelta

_NOTHING = re.compile(r"(?:\{\s{0,64}\}|null)\s{0,64}")
_BEGINS_NOTHING = re.compile(r"(?:\{\s{0,64}\}?|n|nu|nul|null)\s{0,64}")
_MARKS = re.compile(r'["{}\[\]]')
_MARKS_IN_TEXT = re.compile(r'["\\]')
_LONGEST_NOTHING = 64
_MOST_ENCODED = 3
"""The number of times that the arguments may be encoded as a JSON string."""


class Arguments:
    """The arguments of one call, put together from pieces that may be split anywhere.

    Attributes:
        raw: all pieces, unchanged.
        whole: the complete object as text; empty until it is complete.
        nothing: the `{}` or `null` that came, as long as nothing else followed.
    """

    def __init__(self) -> None:
        self.raw: list[str] = []
        self.whole = ""
        self.nothing = ""
        self._state: Literal["begin", "string", "object", "whole", "other"] = "begin"
        self._held = ""
        self._pieces: list[str] = []
        self._depth = 0
        self._in_text = self._escaped = False
        self._n_encoded = 0
        self._halves = lenient_json.Halves()
        self._repeated: Arguments | None = None
        self._canonical: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no argument has come; `{}` and `null` do not count as arguments."""
        is_begun = self._held.startswith("{") and not self.nothing
        return self._state == "begin" and not is_begun

    @property
    def is_repeating(self) -> bool:
        """Whether the arguments are complete, and a part of the same arguments has come once more."""
        return self._repeated is not None and not self._repeated.is_empty

    @property
    def is_unfinished(self) -> bool:
        """Whether the arguments, or their repetition, are incomplete."""
        return self.is_open or self.is_repeating

    @property
    def is_open(self) -> bool:
        """Whether the arguments are incomplete."""
        return self._state != "whole"

    @property
    def canonical(self) -> str:
        """The value of the complete arguments, written in one canonical form."""
        if self._canonical is None:
            try:
                value = lenient_json.parse(self.whole or "{}")
                self._canonical = json.dumps(value, sort_keys=True)
            except (ValueError, RecursionError):
                self._canonical = self.whole
        return self._canonical

    @staticmethod
    def can_begin(piece: str) -> bool:
        """Return whether a piece looks like the beginning of arguments."""
        return piece.lstrip().startswith("{")

    def feed(self, piece: str) -> str:
        """Take the next piece; return the text to add to the arguments."""
        piece = self._halves.feed(piece)
        if not piece:
            return ""
        self.raw.append(piece)
        return self._feed(piece)

    def _feed(self, text: str) -> str:
        match self._state:
            case "begin":
                return self._begin(text)
            case "string":
                return self._string(text)
            case "object":
                return self._object(text)
            case "whole":
                return self._behind(text)
            case "other":
                return text

    def _begin(self, text: str) -> str:
        held = (self._held + text).lstrip()
        while (nothing := _NOTHING.match(held)) is not None and nothing.end() < len(held):
            held = held[nothing.end() :]
        self._held, self.nothing = held, ""
        if not held:
            return ""
        if len(held) <= _LONGEST_NOTHING and _BEGINS_NOTHING.fullmatch(held):
            self.nothing = held if _NOTHING.fullmatch(held) else ""
            return ""
        self._held = ""
        self._state = {"{": "object", '"': "string"}.get(held[0], "other")  # pyright: ignore[reportAttributeAccessIssue]
        if self._state == "string":
            self._pieces = [held[:1]]
            return self._string(held[1:])
        return self._feed(held)

    def _string(self, text: str) -> str:
        """Collect a JSON string to its end, then read the text inside it."""
        self._in_text = True
        end = self._end_of_text(text, 0)
        if self._in_text:
            self._pieces.append(text)
            return ""
        self._pieces.append(text[:end])
        written = "".join(self._pieces)
        self._pieces = []
        self._n_encoded += 1
        try:
            inner = lenient_json.text(lenient_json.parse(written))
        except ValueError:
            inner = ""
        is_object = inner.lstrip()[:1] in ("{", "n", '"', "") and self._n_encoded <= _MOST_ENCODED
        self._state = "begin" if is_object else "other"
        return self._feed(inner if is_object else written) + self._feed(text[end:])

    def _object(self, text: str) -> str:
        end = self._end_of_object(text)
        if end < 0:
            self._pieces.append(text)
            return text
        self._pieces.append(text[:end])
        self.whole = "".join(self._pieces)
        self._pieces = []
        self._state = "whole"
        return text[:end] + self._behind(text[end:])

    def _behind(self, text: str) -> str:
        """Take the text after the complete object: a repetition counts as nothing; any other text is added, so that the tool
        refuses the call.
        """
        if self._repeated is None:
            text = text.lstrip()
            if not text:
                return ""
            self._repeated = Arguments()
        again = self._repeated
        again.feed(text)
        if again._state == "other" or (again.whole and again.canonical != self.canonical):
            self._state = "other"
            return "".join(again.raw)
        if again.whole:
            self._repeated = again._repeated
        return ""

    def _end_of_object(self, text: str) -> int:
        """Return the place where the object ends in this piece, or -1."""
        place = 0
        while place < len(text):
            if self._in_text:
                place = self._end_of_text(text, place)
                continue
            mark = _MARKS.search(text, place)
            if mark is None:
                return -1
            place = mark.end()
            letter = mark[0]
            if letter == '"':
                self._in_text = True
            elif letter in "{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    return place
        return -1

    def _end_of_text(self, text: str, place: int) -> int:
        """Continue inside a string from a place; return the place after its end, or the length of the text if it does not end."""
        while place < len(text):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            mark = _MARKS_IN_TEXT.search(text, place)
            if mark is None:
                return len(text)
            place = mark.end()
            if mark[0] == '"':
                self._in_text = False
                return place
            self._escaped = True
        return place

    def rest(self) -> str:
        """Return the text that was held back and has to be added at the end of the stream."""
        if self._state == "string":
            return "".join(self._pieces)
        if self._state != "begin":
            return ""
        held, self._held = self._held, ""
        return "{}" if self.nothing else held


@dataclass(slots=True, eq=False)
class _Call:
    id: str = ""
    name: str = ""
    index: int | None = None
    arguments: Arguments = field(default_factory=Arguments)
    position: int = -1
    """The call's position among the calls that were given out; -1 until then, and for good if the call is dropped."""
    original: _Call | None = None
    """The call that this one only repeats."""
    has_name_out: bool = False
    has_id_out: bool = False
    waiting: list[str] = field(default_factory=list[str])
    extras: dict[str, Any] | None = None

    def added(self) -> Iterator[ToolCallDelta]:
        """Yield everything that came since the last call as one piece; nothing if nothing came."""
        new_name = "" if self.has_name_out else self.name
        new_id = "" if self.has_id_out else self.id
        text = "".join(self.waiting)
        if new_name or new_id or text or self.extras is not None:
            yield ToolCallDelta(self.position, new_id, new_name, text, self.extras)
        self.has_name_out = self.has_name_out or bool(new_name)
        self.has_id_out = self.has_id_out or bool(new_id)
        self.waiting.clear()
        self.extras = None


class _Namesakes:
    """The calls with one name that were given out; answers whether another call repeats one of them."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._indexes: set[int] = set()
        self._open: list[_Call] = []
        self._whole: dict[str, dict[str, _Call]] = {}
        """Complete calls by the value of their arguments, then by id, which is empty for a call without one."""

    def add(self, call: _Call) -> None:
        """Add a call that was given out."""
        self._ids.add(call.id)
        if call.index is not None:
            self._indexes.add(call.index)
        self._open.append(call)

    def can_be_one(self, call: _Call) -> bool:
        """Return whether a call has the id of one of these calls, or at most one of both has an id."""
        return bool(self._ids) and (not call.id or "" in self._ids or call.id in self._ids)

    def open_ones(self, call: _Call) -> list[_Call]:
        """Return the incomplete calls that this call may repeat."""
        for one in self._open:
            if not one.arguments.is_open:
                self._whole.setdefault(one.arguments.canonical, {})[one.id] = one
        self._open = [one for one in self._open if one.arguments.is_open]
        return [one for one in self._open if not _are_two(call.id, one.id)]

    def same(self, call: _Call) -> _Call | None:
        """Return the call that a complete call repeats; check `open_ones` first."""
        alike = self._whole.get(call.arguments.canonical, {})
        if not call.id:
            return next(iter(alike.values()), None)
        return alike.get(call.id) or alike.get("")

    def has_head(self, call: _Call) -> bool:
        """Return whether one of the calls has the id of a call without arguments or, if that has no id, its index."""
        return call.id in self._ids if call.id else call.index in self._indexes


def _are_two(one: str, other: str) -> bool:
    return bool(one and other and one != other)


class ToolCallMerger:
    """Assigns each streamed piece of `tool_calls` to its call, by the rules above."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._open: dict[_Call, None] = {}
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._namesakes: dict[str, _Namesakes] = {}
        self._n_decided = 0
        self._n_out = 0
        self._has_ended = False

    def all_complete(self) -> bool:
        """Return whether there are calls, and the arguments of each are a whole object."""
        every = [call.arguments for call in self._calls if call.name]
        return bool(every) and all(
            bool(one.nothing) or lenient_json.is_object(one.whole) for one in every
        )

    def feed(self, entry: Any) -> list[ToolCallDelta]:
        """Return what this entry of `tool_calls` adds; nothing if it repeats known data or is not decided yet."""
        piece = lenient_json.mapping(entry)
        function = lenient_json.mapping(piece.get("function"))
        call_id = lenient_json.without_surrogates(lenient_json.text(piece.get("id")))
        name = lenient_json.without_surrogates(lenient_json.text(function.get("name")))
        raw = function.get("arguments")
        text = json.dumps(raw) if isinstance(raw, dict | list) else lenient_json.text(raw)
        index = lenient_json.count(piece.get("index"))
        extra = lenient_json.text_only(lenient_json.mapping(piece.get("extra_content")))
        find = self._call_of_named_piece if name else self._call_of_nameless_piece
        call = find(index, call_id, name, text)
        if call is None:
            if not (name or text or call_id or extra):
                return []
            call = _Call(index=index)
            self._calls.append(call)
            self._open[call] = None
        if index is not None:
            self._by_index[index] = call
        if call_id:
            call.id = call.id or call_id
            self._by_id[call_id] = call
        call.name = call.name or name
        if extra:
            call.extras = {"extra_content": extra}
        if added := call.arguments.feed(text):
            call.waiting.append(added)
        if not call.arguments.is_open:
            self._open.pop(call, None)
        found = list(call.added()) if call.position >= 0 else []
        return [*found, *self._decide()]

    def finish(self) -> list[ToolCallDelta]:
        """Return the pieces that were held back, at the end of the stream."""
        self._has_ended = True
        found: list[ToolCallDelta] = []
        for call in self._calls:
            if rest := call.arguments.rest():
                call.waiting.append(rest)
            if call.position >= 0:
                found += call.added()
        return [*found, *self._decide()]

    # These methods decide to which call a piece belongs; None means that the piece starts a call.

    def _looked_up(self, index: int | None, call_id: str) -> tuple[_Call | None, _Call | None]:
        """Return the last calls with this index and with this id; a repetition is replaced by its original."""
        at = self._by_index.get(index) if index is not None else None
        known = self._by_id.get(call_id) if call_id else None
        return (at and at.original) or at, (known and known.original) or known

    def _last(self) -> _Call | None:
        """Return the last call that does not only repeat another one."""
        for call in reversed(self._calls):
            if call.original is None and (call.name or not self._is_known(call.arguments)):
                return call
        return None

    def _is_known(self, mine: Arguments) -> bool:
        """Return whether these are the arguments of a call that was given out."""
        others = (one.arguments for one in self._calls if one.position >= 0)
        return bool(mine.whole) and any(mine.canonical == one.canonical for one in others)

    def _call_of_nameless_piece(
        self, index: int | None, call_id: str, name: str, text: str
    ) -> _Call | None:
        at, known = self._looked_up(index, call_id)
        if known is not None:
            return at if at is not None and at.id == call_id else known
        last_open = next(reversed(self._open), None)
        if at is None:
            last = self._last()
            if last_open is not None or last is None:
                return last_open
            is_its_name_late = not last.name and not _are_two(call_id, last.id)
            is_its_id_late = bool(call_id) and not last.id and not text
            is_marked = bool(call_id) or index is not None
            is_more = last.arguments.is_repeating or is_its_name_late or is_its_id_late
            return last if is_more or not is_marked else None
        if at.arguments.is_unfinished or not at.name:
            return at
        if _are_two(call_id, at.id):
            return last_open
        # The arguments of the index's call are complete: this piece repeats them, or belongs to another call with the same index.
        is_other = (
            last_open is not None
            and last_open.arguments.is_empty
            and at.arguments.can_begin(text)
            and not at.arguments.whole.startswith(text.strip())
        )
        return last_open if is_other else at

    def _call_of_named_piece(
        self, index: int | None, call_id: str, name: str, text: str
    ) -> _Call | None:
        at, known = self._looked_up(index, call_id)
        if at is not None and not _are_two(call_id, at.id):
            return _continued(at, call_id, name, text)
        if known is not None:
            return _continued(known, call_id, name, text)
        if at is not None:
            # One index has another id: the id changed in the middle of a call, or several calls share the index.
            is_middle = at.arguments.is_unfinished and not at.arguments.is_empty
            return at if not at.name or (is_middle and at.name == name) else None
        last = self._last()
        if last is None:
            return None
        if not last.name and not _are_two(call_id, last.id):
            return last
        if call_id or index is not None:
            is_its_id_late = bool(call_id) and not last.id and not text and last.name == name
            return last if is_its_id_late else None
        # In Gemini's form each entry is a call, even one without arguments.
        is_middle = last.arguments.is_unfinished and not last.arguments.nothing
        return last if is_middle and last.name == name else None

    # These methods decide which calls there are.

    def _decide(self) -> Iterator[ToolCallDelta]:
        """Give out or drop, in their order, the calls that are decided."""
        while self._n_decided < len(self._calls):
            call = self._calls[self._n_decided]
            is_one = self._is_one(call)
            if is_one is None:
                return
            self._n_decided += 1
            if is_one:
                call.position = self._n_out
                self._n_out += 1
                self._namesakes.setdefault(call.name, _Namesakes()).add(call)
                yield from call.added()

    def _is_one(self, call: _Call) -> bool | None:
        """Return whether this is a call of its own; None if that is not certain yet."""
        mine = call.arguments
        if not call.name:
            # At the end of the stream the model is told about the broken call, unless it adds nothing new.
            is_new = self._n_out == 0 if mine.is_empty else not self._is_known(mine)
            return is_new if self._has_ended else None
        others = self._namesakes.get(call.name)
        if others is None or not others.can_be_one(call):
            return True
        open_ones = others.open_ones(call)
        if mine.is_open or open_ones:
            if not self._has_ended:
                return None
            if mine.is_empty:
                is_head = any(one.arguments.is_empty for one in open_ones)
                return not (is_head or others.has_head(call))
            if mine.is_open:
                # The call broke off, so that the answer will be refused anyway.
                return not (call.id and others.has_head(call))
        call.original = others.same(call)
        return call.original is None


def _continued(call: _Call, call_id: str, name: str, text: str) -> _Call | None:
    """Return the call to which a named piece belongs; None if it starts another call or repeats one."""
    if not call.name:
        return call
    is_its_id_late = bool(call_id) and not call.id and not text
    is_more = call.name == name and (call.arguments.is_unfinished or is_its_id_late)
    return call if is_more else None
