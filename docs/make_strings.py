"""Lists the texts that a person can meet, file by file: `python docs/make_strings.py`.

The page `docs/strings.md` is made from the literals in `kimi_tui/`, so that a reader can go through all words in one place
and see which of them cannot be understood alone. A name in braces is filled in while the program runs. Docstrings,
annotations, log lines, patterns and the messages of programming errors are left out: nobody meets these.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "strings.md"
_HEAD = (
    "# Texts of the program\n\n"
    "Made by `python docs/make_strings.py` from the code; do not edit. A name in braces is filled in while the program\n"
    "runs, `⏎` is a line break.\n"
)
_UNSEEN_CALLS = frozenset(
    [
        "Binding",
        "Literal",
        "NewType",
        "TypeVar",
        "add_class",
        "cast",
        "compile",
        "count",
        "debug",
        "encode",
        "endswith",
        "environ",
        "exception",
        "field_validator",
        "find",
        "getLogger",
        "getattr",
        "getenv",
        "has_class",
        "has_pseudo_class",
        "hasattr",
        "import_module",
        "index",
        "info",
        "log",
        "lstrip",
        "match",
        "model_validator",
        "partition",
        "query",
        "query_one",
        "remove_class",
        "removeprefix",
        "removesuffix",
        "replace",
        "rpartition",
        "rstrip",
        "run_worker",
        "search",
        "set_class",
        "setattr",
        "split",
        "startswith",
        "strip",
    ]
)
"""Calls whose arguments are names, patterns or lines of the log."""
_OWN_FAULTS = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "KeyError",
        "NotImplementedError",
        "RuntimeError",
        "TypeError",
    }
)
"""Errors that are raised for a mistake in the program, which a person only meets in the log file."""
_WORDLESS = (ast.Name, ast.Pass, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""Nodes with no text below them: half of all."""
_MARKUP = re.compile(r"^\s*<[a-z/!]|</[a-z]")
"""Tags of a page, around words that are listed by themselves."""
_CODE = re.compile(
    r"\\[dSbsw]|\(\?[:=!]|\.\{0,|^\((?:allow|deny|version|literal|global-name) |^(?:SELECT|PRAGMA) |^\s*import |-src 'none'"
)
"""Patterns, profiles of a sandbox, queries and programs."""
_WORDS = re.compile(r"[A-Za-z]{2,}[^A-Za-z_]{0,8} [^ ]|^[A-Z][a-z]+[…,.:;!?]?$")


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def page(parsed: Callable[[Path], ast.Module] = _parsed) -> str:
    """Return the whole page: a heading for each file of `kimi_tui/`, and below it each text once, in the order of the code.

    Args:
        parsed: returns the syntax tree of a file.
    """
    lines = [_HEAD]
    for path in sorted((ROOT / "kimi_tui").rglob("*.py")):
        tree = parsed(path)
        found = dict.fromkeys(
            text.replace("\r", "").replace("\n", "⏎") for _, text in sorted(texts(tree))
        )
        if found:
            lines.append(f"\n## {path.relative_to(ROOT).as_posix()}\n\n")
            lines += [f"- {text}\n" for text in found]
    return "".join(lines)


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each literal that reads as words, in no order."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.JoinedStr):
            text = "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            text = ""
        left += _seen(node)
        if (
            isinstance(node, ast.expr)
            and _WORDS.search(text)
            and not _MARKUP.search(text)
            and not _CODE.search(text)
        ):
            yield node.lineno, text


def _part(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    assert isinstance(value, ast.FormattedValue)
    return "{" + ast.unparse(value.value) + "}"


def _seen(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes right below one that are listed: without texts nobody meets, and without the pieces of f-strings."""
    if isinstance(node, ast.Call) and _is_unseen(node.func):
        return
    for name in node._fields:
        if name in {"annotation", "returns", "ctx"}:
            continue
        value = getattr(node, name, None)
        for below in value if isinstance(value, list) else [value]:
            if not isinstance(below, ast.AST) or isinstance(below, _WORDLESS):
                continue
            is_docstring = isinstance(node, ast.Expr) and isinstance(below, ast.Constant)
            is_piece = isinstance(node, ast.JoinedStr) and isinstance(below, ast.Constant)
            if not is_docstring and not is_piece:
                yield below


def _is_unseen(called: ast.expr) -> bool:
    if isinstance(called, ast.Attribute):
        owner = called.value
        own_log = isinstance(owner, ast.Name) and owner.id in {"log", "logger", "re"}
        return own_log or called.attr in _UNSEEN_CALLS
    return isinstance(called, ast.Name) and called.id in _UNSEEN_CALLS | _OWN_FAULTS


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
