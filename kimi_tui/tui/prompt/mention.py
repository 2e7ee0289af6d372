"""How files are named in the prompt: which path is being typed behind `@`, and how one is written there.

Apart from the field, so that its patterns are compiled with the first `@` and not before the first paint.
"""

from __future__ import annotations

import re

_TYPED = re.compile(r'(?:^|(?<=[\s(\[{]))@(?:"([^"]*)|([^\s"#]*))$')
_LONGEST = 1000
"""Letters of the line before the cursor that are looked at: a pasted one has no end."""
_PLAIN = re.compile(r"[^\s\"\\#]+")


def typed_mention(before: str) -> tuple[int, str] | None:
    """What is being typed of a path: where its `@` stands in the line, and the path so far; None where it is none.

    Args:
        before: the line up to the cursor.
    """
    found = _TYPED.search(before, max(0, len(before) - _LONGEST))
    if found is None:
        return None
    return found.start(), found[1] if found[1] is not None else found[2]


def mention(path: str) -> str:
    """A path as it is written in the prompt; quoted where a blank or a sign in it would end it."""
    if _PLAIN.fullmatch(path):
        return f"@{path}"
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'@"{escaped}"'
