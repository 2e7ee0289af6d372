"""Nothing that is shown is ever read as markup: text of others would become styles, clickable actions, or a crash."""

from __future__ import annotations

import ast
from pathlib import Path

from support.sources import parsed

import kimi_tui

READ_MARKUP = {"Static", "Label", "Button", "Option", "Checkbox", "RadioButton", "notify"}
"""Names that read a plain string as markup unless they are told not to."""

BORDERS = {"border_title", "border_subtitle"}
"""What Textual shortens with a sign of its own, and so is always a `frame_label`."""
TITLES = {*BORDERS, "tooltip"}
TUI = Path(kimi_tui.__file__).parent / "tui"
MODULES = sorted(TUI.rglob("*.py"))


def name_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_safe(value: ast.expr) -> bool:
    """Our own words, or text that knows no markup; a formatted string may hold anything."""
    if isinstance(value, ast.Constant):
        return value.value is None or (isinstance(value.value, str) and "[" not in value.value)
    if isinstance(value, ast.IfExp):
        return is_safe(value.body) and is_safe(value.orelse)
    return isinstance(value, ast.Call) and not name_of(value).startswith("from_")


def faults(tree: ast.AST) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = name_of(node)
            if name == "from_markup":
                found.append(f"{node.lineno}: from_markup")
            off = any(
                k.arg == "markup" and isinstance(k.value, ast.Constant) and k.value.value is False
                for k in node.keywords
            )
            if name in READ_MARKUP and node.args and not off and not is_safe(node.args[0]):
                known = isinstance(node.args[0], ast.Name) and _is_content(tree, node.args[0].id)
                if not known:
                    found.append(f"{node.lineno}: {name}")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not isinstance(target, ast.Attribute) or target.attr not in TITLES:
                    continue
                if not (_is_label(node.value) if target.attr in BORDERS else is_safe(node.value)):
                    found.append(f"{node.lineno}: {target.attr}")
    return found


def _is_content(tree: ast.AST, name: str) -> bool:
    """Return whether the name is assigned a `Content` wherever it is assigned."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
    ]
    return bool(values) and all("Content" in ast.dump(value) for value in values)


def _is_label(value: ast.expr) -> bool:
    is_empty = isinstance(value, ast.Constant) and value.value == ""
    return is_empty or (isinstance(value, ast.Call) and name_of(value) == "frame_label")


def test_no_text_is_read_as_markup() -> None:
    # A file that has none of these names need not be parsed.
    names = READ_MARKUP | TITLES | {"from_markup"}
    texts = {path.relative_to(TUI).as_posix(): path.read_text() for path in MODULES}
    named = {path: text for path, text in texts.items() if any(name in text for name in names)}
    assert named
    assert {
        path: found for path, text in named.items() if (found := faults(parsed(TUI / path)[1]))
    } == {}


def test_what_would_be_found() -> None:
    for line in (
        "Static(text)",
        "self.notify(f'{error}')",
        "Static('[b]x')",
        "self.border_title = name",
        "self.border_title = 'Help'",
        "self.border_subtitle = Content(name)",
        "self.tooltip = name",
        "Text.from_markup('x')",
        "Option(label)",
    ):
        assert faults(ast.parse(line)), line
    for line in (
        "Static(text, markup=False)",
        "Static(Content.styled(text, 'b'))",
        "self.border_title = frame_label(self, name)",
        "self.border_subtitle = ''",
        "self.tooltip = Content(name)",
        "words = Content(x)\nStatic(words)",
    ):
        assert not faults(ast.parse(line)), line
