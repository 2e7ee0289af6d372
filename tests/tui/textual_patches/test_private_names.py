"""Only `tui/textual_patches` names what is private to Textual: a new version of it is looked through in one place."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from inspect import getsourcefile
from pathlib import Path

from support.sources import parsed

import kimi_tui.tui

TUI = Path(kimi_tui.tui.__file__).parent
PATCHES = TUI / "textual_patches"
_SET = re.compile(r"\bself\.(_[a-z]\w*)(?:: [^=\n]+)? = ")
# The one private name of another library: the type of a token of Pygments.
_FLAGGED = re.compile(r"^(?!.*_TokenType).*reportPrivateUsage", re.MULTILINE)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def attributes_set_in(path: str) -> set[str]:
    """Return the private attributes that the classes of a file of Textual's give themselves."""
    return {*_SET.findall(Path(path).read_text(encoding="utf-8"))}


@cache
def taken_from(kind: type) -> set[str]:
    """Return the private names that a class has from Textual."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("textual."):
            found |= {*filter(is_private, vars(base))}
            found |= attributes_set_in(getsourcefile(base) or "")
    return found


def used_in(body: ast.ClassDef) -> Iterator[str]:
    """Yield the names that a class overrides, or uses as its own."""
    for node in ast.walk(body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case (
                ast.Attribute(value=ast.Name("self"), attr=name)
                | ast.Attribute(value=ast.Call(func=ast.Name("super")), attr=name)
            ):
                yield name
            case _:
                pass


def classes_in(
    tree: ast.Module | ast.ClassDef, owner: object
) -> Iterator[tuple[ast.ClassDef, type]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and isinstance(kind := vars(owner).get(node.name), type):
            yield node, kind
            yield from classes_in(node, kind)


def imported_in(tree: ast.Module) -> Iterator[str]:
    """Yield the modules and names that a file imports, with dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def uses_in(path: Path) -> set[str]:
    """Return the private names of Textual that a file of ours uses."""
    if "textual" not in path.read_text(encoding="utf-8"):
        return set()
    text, tree = parsed(path)
    found = {match[0].strip() for match in _FLAGGED.finditer(text)}
    found |= {
        name
        for name in imported_in(tree)
        if name.startswith("textual.") and any(map(is_private, name.split(".")))
    }
    name = ".".join(path.with_suffix("").relative_to(TUI.parents[1]).parts)
    module = importlib.import_module(name.removesuffix(".__init__"))
    for body, kind in classes_in(tree, module):
        if taken := taken_from(kind):
            found |= {f"{kind.__name__}.{name}" for name in used_in(body) if name in taken}
    return found


def test_nothing_else_names_what_is_private_to_textual() -> None:
    named = {
        f"{path.relative_to(TUI)}: {use}"
        for path in TUI.rglob("*.py")
        if PATCHES not in path.parents
        for use in uses_in(path)
    }
    assert not named


def test_each_way_to_name_it_is_seen() -> None:
    assert uses_in(PATCHES / "app.py") > {
        *("PatchedApp._handle_exception", "PatchedApp._mouse_down_widget"),
        "textual._context.active_app",
    }
    assert "reportPrivateUsage" in " ".join(uses_in(PATCHES / "app.py"))
    assert uses_in(PATCHES / "terminal.py") > {
        *("PatchedDriver._run_input_thread", "PatchedDriver._file"),
        *("textual.keys._character_to_key", "textual._parser.ParseError"),
    }
