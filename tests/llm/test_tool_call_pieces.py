"""Pieces of tool calls come to the calls that the model made, whatever a gateway does to them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_tui import lenient_json
from kimi_tui.llm.completion import Collector
from kimi_tui.llm.errors import ResponseContext
from kimi_tui.llm.provider import Finished
from kimi_tui.llm.stream import ChunkDecoder, SSEDecoder
from kimi_tui.llm.tool_call_pieces import ToolCallMerger

Piece = tuple[str, int | None, str, Any]
"""An id, an index, a name, arguments; an empty id and no index are left out."""


def entry(piece: Piece) -> dict[str, Any]:
    call_id, index, name, arguments = piece
    function = ({"name": name} if name else {}) | ({"arguments": arguments})
    found: dict[str, Any] = {"function": function}
    return (
        found | ({"id": call_id} if call_id else {}) | ({} if index is None else {"index": index})
    )


def stream_of(pieces: list[Piece]) -> bytes:
    chunks: list[Any] = [{"choices": [{"delta": {"tool_calls": [entry(one)]}}]} for one in pieces]
    chunks.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(f"data: {json.dumps(one)}\n\n".encode() for one in chunks)


def read(data: bytes, cuts: list[int] | None = None) -> list[tuple[str, str, Any]]:
    """Return the calls in the message that is stored: id, name, and the arguments as a value (as text where they are none)."""
    events, decoder, collector = (
        SSEDecoder(),
        ChunkDecoder(ResponseContext("host", "m")),
        Collector(),
    )
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    positions: list[int] = []
    for start, end in itertools.pairwise(edges):
        for event in events.feed(data[start:end], decoder.alike):
            for item in decoder.decode(event):
                positions += [item.position] if hasattr(item, "position") else []  # pyright: ignore[reportAttributeAccessIssue]
                collector.add(item)
    for item in decoder.finish():
        positions += [item.position] if hasattr(item, "position") else []  # pyright: ignore[reportAttributeAccessIssue]
        collector.add(item)
    message = collector.message()
    assert collector.finish == Finished("tool_calls")
    # The engine counts the calls by these positions, and the screen uses them as well.
    assert sorted(set(positions)) == list(range(len(set(positions))))
    assert list(dict.fromkeys(positions)) == sorted(set(positions)), "calls begin in their order"
    found = (message.tool_calls if message is not None else None) or []
    return [(c.id, c.function.name, value_of(c.function.arguments or "")) for c in found]


def value_of(arguments: str) -> Any:
    try:
        return lenient_json.parse(arguments or "{}")
    except ValueError:
        return arguments


A, B = '{"path": "a"}', '{"path": "b"}'


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [("c_a", 0, "Shell", ""), ("", 0, "", A), ("c_a", 1, "Shell", A)],
            [("c_a", "Shell", A)],
            id="the whole call again, under the next index",
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("c_b", 0, "Read", ""), ("", 1, "", B)],
            [("c_a", "Read", A), ("c_b", "Read", B)],
            id="a head under the index of the one before",
        ),
        pytest.param(
            [("c_a", 0, "Write", '{"pa'), ("c_a", 1, "", 'th": "a"}')],
            [("c_a", "Write", A)],
            id="a known id under another index",
        ),
        pytest.param(
            [
                ("c_a", 0, "Write", '{"pa'),
                ("c_b", 1, "Read", '{"pa'),
                ("c_a", 1, "", 'th": "a"}'),
                ("c_b", 0, "", 'th": "b"}'),
            ],
            [("c_a", "Write", A), ("c_b", "Read", B)],
            id="known ids under each other's index",
        ),
        pytest.param(
            [("c_a", 0, "Read", "{}"), ("", 0, "", A)],
            [("c_a", "Read", A)],
            id="an empty object first",
        ),
        pytest.param(
            [("c_a", 0, "Read", "nu"), ("", 0, "", "ll"), ("", 0, "", A)],
            [("c_a", "Read", A)],
            id="null first, in pieces",
        ),
        pytest.param(
            [("c_a", 0, "Read", json.dumps(A))],
            [("c_a", "Read", A)],
            id="a string with the object in it",
        ),
        pytest.param([("c_a", 0, "Read", A + A)], [("c_a", "Read", A)], id="doubled"),
        pytest.param(
            [("c_a", 0, "Jobs", "null"), ("c_b", 1, "Jobs", ""), ("c_c", 2, "Jobs", "{}")],
            [("c_a", "Jobs", "{}"), ("c_b", "Jobs", "{}"), ("c_c", "Jobs", "{}")],
            id="no arguments",
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("c_b", 1, "Read", A)],
            [("c_a", "Read", A), ("c_b", "Read", A)],
            id="two that differ in the id alone are two",
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("c_b", 0, "Read", A)],
            [("c_a", "Read", A), ("c_b", "Read", A)],
            id="also where all have one index",
        ),
        pytest.param(
            [("", 0, "Read", A), ("", 1, "Read", A)],
            [("", "Read", A)],
            id="without ids they are one",
        ),
        pytest.param(
            [("", None, "Read", A), ("", None, "Read", A), ("", None, "Read", B)],
            [("", "Read", A), ("", "Read", B)],
            id="also without an index",
        ),
        pytest.param(
            [("x", 0, "Read", A), ("x", 1, "Read", B), ("x", 2, "Read", A)],
            [("x", "Read", A), ("x", "Read", B)],
            id="one id for all",
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("c_a", 1, "Read", '{ "path":"a" }')],
            [("c_a", "Read", A)],
            id="repeated in another form",
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("", 0, "", B)],
            [("c_a", "Read", A + B)],
            id="two objects in one call are for the tool to refuse",
        ),
        pytest.param(
            [("", 0, "", A)], [("", "", A)], id="a call without a name is told to the model"
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("c_b", 1, "", A)], [("c_a", "Read", A)], id="no ghost"
        ),
        pytest.param(
            [("c_a", 0, "Read", A), ("", 1, "", B)],
            [("c_a", "Read", A), ("", "", B)],
            id="an index of its own is a call of its own",
        ),
    ],
)
def test_what_gateways_were_seen_to_do(
    pieces: list[Piece], calls: list[tuple[str, str, str]]
) -> None:
    assert read(stream_of(pieces)) == [(i, name, value_of(text)) for i, name, text in calls]


def test_what_is_certain_is_not_held_back() -> None:
    merger = ToolCallMerger()
    added = [
        merger.feed(entry(one))
        for one in [("c", 0, "Read", ""), ("", 0, "", '{"p'), ("", 0, "", 'a"')]
    ]
    assert [[(d.name, d.arguments) for d in deltas] for deltas in added] == [
        [("Read", "")],
        [("", '{"p')],
        [("", 'a"')],
    ]


# -- a grammar of what gateways do --


@dataclass(frozen=True)
class Gateway:
    """How one gateway sends calls on."""

    index: str
    """proper, offset, zero (one for all), missing, rising (of each piece), crossed (a head under that of the call before)."""
    ids: str
    """head, every (piece), late (the last piece), missing, changed (another one with each piece)."""
    names: str
    """head, every (piece), late (the last piece)."""
    form: str
    """text, string (JSON in a JSON string), twice (that in another), object."""
    head_is_empty: bool
    interleaved: bool
    again: str
    """How whole calls are repeated: no, nameless, same index, next index, no id."""
    again_at_end: bool
    again_split: bool
    first: str = ""
    """The part before the arguments."""
    doubled: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether the gateway's stream has one meaning. The limits, each with the other possible meaning:"""
        by_index = self.index in ("proper", "offset")
        by_id = self.ids == "every"
        if self.interleaved and not (by_index or by_id):
            return False  # nothing says to which call a piece belongs
        if self.interleaved and self.index == "zero":
            return False  # the id of one call could have changed in its middle
        if self.ids == "changed" and (not by_index or self.interleaved):
            return False  # nothing says to which call a piece belongs
        if self.ids == "changed" and self.names == "every" and self.head_is_empty:
            return False  # a head without arguments and another id: two calls, which differ in the id alone
        if self.names == "late" and (self.interleaved or self.index == "crossed"):
            return False  # a piece without a name continues the call that is open
        if (
            self.names == "late"
            and self.ids in ("missing", "late")
            and self.index in ("zero", "missing")
        ):
            return False  # nothing tells the next call from more of this one
        if self.index == "crossed" and (
            self.ids != "head" or self.names != "head" or not self.head_is_empty
        ):
            return False  # the seen form: an id and a name in the head, the arguments after it
        if (
            self.index == "rising"
            and self.names == "every"
            and self.ids in ("head", "late", "missing")
        ):
            return False  # each piece looks like a call of its own
        if self.form == "object" and self.head_is_empty:
            return False  # an object is sent whole
        if self.again == "no":
            return not self.again_at_end and not self.again_split
        if self.ids in ("changed", "missing", "late") and self.again in (
            "same index",
            "next index",
        ):
            return False  # the id is what tells
        if self.again == "nameless" and (
            self.index in ("rising", "crossed") or self.names == "late"
        ):
            return False  # it could be the next call, whose name is late
        if (
            self.again in ("nameless", "no id")
            and (self.interleaved or self.again_at_end)
            and not by_index
        ):
            return False
        if self.again == "no id" and self.index in ("rising", "crossed"):
            return False
        return not (self.again in ("nameless", "no id") and self.ids == "late")


READABLE = [
    gateway
    for gateway in itertools.starmap(
        Gateway,
        itertools.product(
            ["proper", "offset", "zero", "missing", "rising", "crossed"],
            ["head", "every", "late", "missing", "changed"],
            ["head", "every", "late"],
            ["text", "string", "twice", "object"],
            [False, True],
            [False, True],
            ["no", "nameless", "same index", "next index", "no id"],
            [False, True],
            [False, True],
        ),
    )
    if gateway.is_readable
]


KINDS = [
    list(alike)
    for _, alike in itertools.groupby(READABLE, key=lambda one: (one.index, one.ids, one.names))
]
"""Gateways of one kind of index, ids and names: most distortions can only be read with proper indices, and the others count as much."""

TEXTS = st.text(st.sampled_from('ab "\\{}[]:,\n😀é\u2028'), max_size=12)
VALUES = st.recursive(
    TEXTS | st.integers(-9, 9) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(["Read", "Write", "Shell"])
KEYS = st.sampled_from(["path", "edit", "n"])
ANY_CALLS = st.lists(
    st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=2)), min_size=1, max_size=4
)
SOME_CALL = st.tuples(NAMES, st.dictionaries(KEYS, VALUES, min_size=1, max_size=2))
UNLIKE_CALLS = st.lists(
    SOME_CALL, min_size=1, max_size=4, unique_by=lambda call: json.dumps(call, sort_keys=True)
)
CALLS_UNLIKE_BUT_FOR_NAMES = st.lists(
    SOME_CALL, min_size=1, max_size=4, unique_by=lambda call: json.dumps(call[1], sort_keys=True)
)


@st.composite
def gateways_and_calls(draw: st.DrawFn) -> tuple[Gateway, list[tuple[str, dict[str, Any]]]]:
    """Return a gateway, and calls that are still to be told from another behind it."""
    gateway = draw(st.sampled_from(draw(st.sampled_from(KINDS))))
    if gateway.form != "object":
        first = draw(st.sampled_from(["", "", "{}", "null", " { } ", "{}null"]))
        if gateway.index == "missing" and gateway.names == "every" and gateway.ids != "every":
            first = ""  # a name and {}, then a name and more: two calls, as Gemini sends them
        if gateway.ids == "changed" and gateway.names == "every":
            first = ""  # the same with another id
        # Another id after complete arguments begins a call, whose name may come late.
        doubled = draw(st.booleans()) and gateway.ids != "changed"
        gateway = replace(gateway, first=first, doubled=doubled)
    # Only ids tell calls that are alike apart; a repetition of no arguments is no arguments; and a call that waits for its name
    # and has the arguments of another is taken for that.
    is_clear = gateway.ids in ("head", "every") and gateway.names != "late"
    can_be_alike = is_clear and gateway.again == "no" and not gateway.doubled
    if gateway.names == "late":
        return gateway, draw(CALLS_UNLIKE_BUT_FOR_NAMES)
    return gateway, draw(ANY_CALLS if can_be_alike else UNLIKE_CALLS)


def cut_anywhere(text: str, places: list[int]) -> list[str]:
    """Return the text in pieces, also between the halves of a character outside the first 65,536."""
    units = text.encode("utf-16-le")
    edges = sorted({0, len(units), *(2 * (place % (len(units) // 2 + 1)) for place in places)})
    pairs = itertools.pairwise(edges)
    return [units[start:end].decode("utf-16-le", "surrogatepass") for start, end in pairs]


def sent_by(
    gateway: Gateway, calls: list[tuple[str, dict[str, Any]]], places: list[int], order: list[int]
) -> Iterator[Piece]:
    """Yield the pieces of these calls as the gateway sends them."""
    per_call: list[list[Piece]] = []
    repeats: list[list[Piece]] = []
    n_changed = 0
    for number, (name, value) in enumerate(calls):
        written: Any = json.dumps(value, ensure_ascii=bool(number % 2))
        plain = written
        for _ in range({"string": 1, "twice": 2}.get(gateway.form, 0)):
            written = json.dumps(written)
        if gateway.doubled:
            written += written
        if gateway.form == "object":
            texts: list[Any] = [value]
        else:
            texts = cut_anywhere(gateway.first + written, places)
        if gateway.head_is_empty:
            texts.insert(0, "")
        if gateway.names == "late" or gateway.ids == "late":
            texts.append("")
        index: int | None = {"zero": 0, "missing": None, "offset": 5 - number}.get(
            gateway.index, number
        )
        call_id = f"call_{number}"
        pieces: list[Piece] = []
        for place, text in enumerate(texts):
            is_head, is_last = place == 0, place == len(texts) - 1
            has = {"head": is_head, "every": True, "late": is_last, "missing": False}
            piece_id = call_id if has.get(gateway.ids, False) else ""
            if gateway.ids == "changed":
                n_changed += 1
                piece_id = f"call_{number}_{n_changed}"
            at = max(number - 1, 0) if gateway.index == "crossed" and is_head else index
            pieces.append((piece_id, at, name if has[gateway.names] else "", text))
        per_call.append(pieces)
        again = cut_anywhere(plain, places) if gateway.again_split else [plain]
        named: list[Piece] = []
        for place, text in enumerate(again):
            match gateway.again:
                case "nameless":
                    named.append(("", index, "", text))
                case "no id":
                    named.append(("", index, name if place == 0 else "", text))
                case "same index":
                    named.append((call_id, index, name if place == 0 else "", text))
                case "next index":
                    at = None if index is None else len(calls) + 10 + number
                    named.append((call_id, at, name if place == 0 else "", text))
                case _:
                    pass
        if not gateway.again_at_end:
            pieces += named
            named = []
        repeats.append(named)
    stream: list[Piece] = []
    if gateway.interleaved:
        left = [list(pieces) for pieces in per_call]
        # Heads in their order: that is the order of the calls.
        stream += [pieces.pop(0) for pieces in left]
        for choice in [*order, *range(10_000)]:
            if not any(left):
                break
            if pieces := left[choice % len(left)]:
                stream.append(pieces.pop(0))
    else:
        stream += [piece for pieces in per_call for piece in pieces]
    stream += [piece for named in repeats for piece in named]
    for rising, (call_id, index, name, text) in enumerate(stream):
        yield call_id, rising if gateway.index == "rising" else index, name, text


@given(
    gateways_and_calls(),
    st.lists(st.integers(0, 10_000), max_size=6),
    st.lists(st.integers(0, 3), max_size=20),
    st.lists(st.integers(0, 100_000), max_size=6),
)
def test_the_true_calls_come_back_in_order_and_once(
    drawn: tuple[Gateway, list[tuple[str, dict[str, Any]]]],
    places: list[int],
    order: list[int],
    cuts: list[int],
) -> None:
    gateway, calls = drawn
    found = read(stream_of(list(sent_by(gateway, calls, places, order))), cuts)
    assert [(name, value) for _, name, value in found] == calls
    if gateway.ids in ("head", "every", "late"):
        assert [call_id for call_id, _, _ in found] == [f"call_{n}" for n in range(len(calls))]


FIXED: list[tuple[str, dict[str, Any]]] = [
    ("Read", {"path": "a 😀", "n": 1}),
    ("Write", {"edit": [{"old": "}{", "new": '"'}], "path": "b"}),
    ("Read", {"path": "c"}),
]


@pytest.mark.exhaustive
def test_every_thirteenth_gateway_with_the_same_calls() -> None:
    wrong: list[Gateway] = []
    for number, gateway in enumerate(READABLE[::13]):
        if gateway.form != "object" and gateway.ids != "changed":
            gateway = replace(gateway, doubled=number % 3 == 0)
        places, order = [3, 11, 12, 25, 40 + number % 5], [0, 2, 2, 1]
        found = read(stream_of(list(sent_by(gateway, FIXED, places, order))), [number * 31])
        if [(name, value) for _, name, value in found] != FIXED:
            wrong.append(gateway)
    assert not wrong
