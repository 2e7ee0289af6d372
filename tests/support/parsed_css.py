"""Every style sheet is parsed once for a process of tests, not once for each of its many apps, and applied at less cost."""

from __future__ import annotations

import functools
from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet


def remember() -> None:
    """Begin: what was parsed with the same variables is not parsed again. The rules are never changed once parsed."""
    parse = Stylesheet._parse_rules
    parsed: dict[tuple[object, ...], list[Any]] = {}

    @functools.wraps(parse)
    def remembered(self: Any, css: str, *arguments: Any, **options: Any) -> list[Any]:
        key = (css, arguments, *sorted(options.items()), frozenset(self._variables.items()))
        if key not in parsed:
            parsed[key] = parse(self, css, *arguments, **options)
        return parsed[key]

    Stylesheet._parse_rules = remembered
    # The same by Python's own means: each widget asks for the hashes of all rules, with a call of a function for each.
    RuleSet.__hash__ = object.__hash__
