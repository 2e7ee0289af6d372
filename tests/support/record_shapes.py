"""The shapes of the records of events: the keys of each type of event, and the types of their values.

`PYTHONPATH=CHECKOUT:CHECKOUT/tests python tests/support/record_shapes.py` prints the shapes of a version from its own events.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

N_EXAMPLES = 300
MOST_WORDS = 12
"""The largest number of different values of a key that occurs often for the shape to list them as its words."""
_WORD = re.compile("[A-Za-z_]*").fullmatch
OPEN_WORDS = {("ApprovalRequest", "kind")}
"""Keys for which every reader accepts any word."""
LEFT_OUT = {("ToolStarted", "arguments"), ("ApprovalRequest", "checkpoint_id")}
"""Keys that a record lacks if an earlier event said the same, or if there is no value; no example shows that."""

UNREAD = {("ApprovalRequest", "agent_id")}
"""Keys that this version writes without a value and never reads, and where kimi-cli accepts a text."""

Shape = dict[str, Any]
"""The `types` of values, the `keys` of objects, the `words` of texts, and the `items` of lists by the `type` of the objects in
them; `always` says that a key is never left out.
"""


def shape_of(values: Sequence[Any]) -> Shape:
    """Return the shape that these values have in common."""
    shape: Shape = {"types": sorted({type(value).__name__ for value in values})}
    objects = [value for value in values if isinstance(value, dict)]
    if objects:
        names = sorted({name for value in objects for name in value})
        shape["keys"] = {
            name: shape_of(found) | {"always": len(found) == len(objects)}
            for name in names
            if (found := [value[name] for value in objects if name in value])
        }
    texts = [value for value in values if isinstance(value, str)]
    words = set(texts)
    if texts and len(words) <= min(MOST_WORDS, len(texts) / 8) and all(map(_WORD, words)):
        shape["words"] = sorted(words)
    items: dict[str, list[Any]] = {}
    for value in values:
        for item in value if isinstance(value, list) else ():
            items.setdefault(_tag(item), []).append(item)
    if items:
        shape["items"] = {tag: shape_of(found) for tag, found in sorted(items.items())}
    return shape


def misfits(value: Any, shape: Shape, where: str) -> Iterator[str]:
    """Yield the differences between a value and its shape; keys that the shape does not have are ignored."""
    kind = type(value).__name__
    if kind not in shape["types"] and not (kind == "int" and "float" in shape["types"]):
        yield f"{where} is of the type {kind}"
    elif isinstance(value, dict):
        for name, of_key in shape.get("keys", {}).items():
            if name in value:
                yield from misfits(value[name], of_key, f"{where}.{name}")
            elif of_key["always"]:
                yield f"{where}.{name} is missing"
    elif isinstance(value, list):
        for item in value:
            of_item = shape.get("items", {}).get(_tag(item))
            if of_item is None:
                yield f"{where} has an item of the type {_tag(item)!r}"
            else:
                yield from misfits(item, of_item, f"{where}[]")
    elif isinstance(value, str) and "words" in shape and value not in shape["words"]:
        yield f"{where} is {value!r}"


def _tag(item: Any) -> str:
    return str(item.get("type", "")) if isinstance(item, dict) else type(item).__name__


def _shapes() -> dict[str, Shape]:
    """Return the shapes of the events of the imported version."""
    from hypothesis import HealthCheck, given, settings
    from wire.test_codec import KINDS, encode, events_of

    payloads: dict[str, list[Any]] = {}
    for kind in KINDS:

        @settings(
            max_examples=N_EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(events_of(kind))
        def gather(event: Any) -> None:
            message = json.loads(json.dumps(encode(event)))
            payloads.setdefault(message["type"], []).append(message["payload"])

        gather()
    shapes = {name: shape_of(found) for name, found in sorted(payloads.items())}
    for name, key in OPEN_WORDS:
        shapes[name]["keys"][key].pop("words", None)
    for name, key in LEFT_OUT:
        shapes[name]["keys"][key]["always"] = False
    for name, key in UNREAD:
        shapes[name]["keys"][key]["types"] = ["NoneType", "str"]
    return shapes


if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(shape)}" for name, shape in _shapes().items())
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")
