"""Speeds up style sheets in a process of tests with many apps: each is parsed once, and applied when a widget needs it."""

from __future__ import annotations

import functools
from typing import Any

from textual.css.model import RuleSet
from textual.css.styles import RenderStyles
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode


def remember() -> None:
    """Cache parsed style sheets by their text and variables. Rules are never changed once parsed."""
    parse_rules, parse = Stylesheet._parse_rules, Stylesheet.parse
    parsed: dict[tuple[object, ...], list[Any]] = {}
    all_parsed: dict[tuple[object, ...], tuple[Any, Any]] = {}

    @functools.wraps(parse_rules)
    def remembered(self: Any, css: str, *arguments: Any, **options: Any) -> list[Any]:
        key = (css, arguments, *sorted(options.items()), frozenset(self._variables.items()))
        if key not in parsed:
            parsed[key] = parse_rules(self, css, *arguments, **options)
        return parsed[key]

    @functools.wraps(parse)
    def all_remembered(self: Any) -> None:
        # A test that replaces the parser sees every parse.
        if self._invalid_css or Stylesheet._parse_rules is not remembered:
            parse(self)
            return
        key = (tuple(self.source.items()), frozenset(self._variables.items()))
        if key not in all_parsed:
            parse(self)
            all_parsed[key] = (self._rules, self.rules_map)
        self._rules, self._rules_map = all_parsed[key]
        self._require_parse = False

    Stylesheet._parse_rules = remembered
    Stylesheet.parse = all_remembered
    # The default hash is the same and faster: each widget asks for the hashes of all rules, with a Python call for each.
    RuleSet.__hash__ = object.__hash__


class _ComponentStyles(dict[str, RenderStyles]):
    """The styles of a node's component classes, each made when it is first read."""

    def __init__(self, node: DOMNode) -> None:
        super().__init__()
        self.node = node
        self.stylesheet = Stylesheet()

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.node._get_component_classes()

    def __missing__(self, name: str) -> RenderStyles:
        part = DOMNode(classes=name)
        part._attach(self.node)
        self.stylesheet.apply(part)
        self[name] = part.styles
        return part.styles


def style_what_is_asked_for() -> None:
    """Style the component classes of a widget once it draws with them, and from then on as usual.

    Textual styles all of them at once and whenever the widget's own state changes: that was most of the work of its style
    sheets, for parts that few tests ever draw.
    """

    def process(self: Stylesheet, node: DOMNode) -> None:
        if not node._get_component_classes():
            return
        styles = node._component_styles
        if not isinstance(styles, _ComponentStyles):
            node._component_styles = styles = _ComponentStyles(node)
            styles.stylesheet = self
            node.refresh()
            return
        before = dict(styles)
        styles.clear()
        styles.stylesheet = self
        if any(styles[name] != style for name, style in before.items()):
            node.refresh()

    Stylesheet._process_component_classes = process
