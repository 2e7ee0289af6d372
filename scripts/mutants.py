"""Changes one place of the program at a time, and checks whether the tests of that module notice.

usage: scripts/mutants.py [--minutes 60] [--jobs CORES] [--seed 1] [--skip N] [--most N] [--only kimi_tui/session] [--marks MARKS] [--report FILE]

cosmic-ray makes the changes: to a comparison, a number, a condition, an exception, a loop, a decorator. The sample takes a mutant of each
of `PACKAGES` in turn, until the time is over. Every mutant is made in a copy of the checkout, and is tested with the tests that mirror
its module, or those that `TESTS` names for it. The report lists the mutants that survived.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "kimi_tui/soul",
    "kimi_tui/session",
    "kimi_tui/workspace",
    "kimi_tui/llm",
    "kimi_tui/tools/sandbox",
    "kimi_tui/tools",
    "kimi_tui/futures",
    "kimi_tui/external",
)
"""A module belongs to the first of these in which it is."""
# `test_escapes.py` of the sandbox is left out: if a mutant breaks the sandbox, its attempts get out.
TESTS = {
    "external/agents.py": "external/test_ourselves.py external/test_turns.py",
    "external/connection.py": "external/test_turns.py external/test_beside_turns.py",
    "external/host.py": "external/test_turns.py external/test_beside_turns.py",
    "external/looks.py": "external/test_looks.py external/test_turns.py external/test_beside_turns.py",
    "external/model.py": "external/test_turns.py external/test_beside_turns.py",
    "external/pipe.py": "external/test_pipe.py external/test_turns.py",
    "external/places.py": "external/test_turns.py external/test_beside_turns.py",
    "external/reading.py": "external/test_turns.py external/test_beside_turns.py",
    "external/servers.py": "external/test_looks.py external/test_turns.py external/test_beside_turns.py",
    "external/serving.py": "external/test_turns.py external/test_beside_turns.py",
    "external/soul.py": "external/test_turns.py external/test_beside_turns.py",
    "external/turns.py": "external/test_turns.py external/test_beside_turns.py",
    "futures/__init__.py": "futures/test_running.py",
    "futures/agent_child.py": "futures/test_agent_lines.py futures/test_agents.py",
    "futures/agent_copies.py": "futures/test_agent_lines.py futures/test_agents.py",
    "futures/child.py": "futures/test_child.py futures/test_running.py futures/test_turns.py futures/test_faults.py",
    "futures/comparing.py": "futures/test_running.py commands/test_futures.py",
    "futures/leftovers.py": "futures/test_running.py commands/test_futures.py",
    "futures/orders.py": "futures/test_*.py",
    "futures/planning.py": "futures/test_planning.py futures/test_running.py commands/test_futures.py",
    "futures/process.py": "futures/test_running.py futures/test_agents.py",
    "futures/set_files.py": "futures/test_running.py futures/test_agents.py",
    "futures/start_server.py": "futures/test_running.py futures/test_agents.py",
    "futures/values.py": "futures/test_running.py commands/test_futures.py",
    "futures/world_line.py": "futures/test_running.py",
    "llm/openai_compatible.py": "llm/test_openai_compatible_*.py llm/test_dialects*.py",
    "llm/stream.py": "llm/test_stream_*.py llm/test_waiting.py llm/test_tool_call_pieces.py llm/test_openai_compatible_faults.py",
    "llm/transport.py": "llm/test_transport.py llm/test_openai_compatible_faults.py",
    "session/aside.py": "session/test_store.py soul/test_opening.py",
    "session/context.py": "session/test_context*.py session/test_undo.py session/test_rotation_prefetch.py",
    "session/context_file.py": "session/test_context*.py session/test_world_lines.py",
    "session/context_index.py": "session/test_context*.py session/test_world_lines.py session/test_undo.py",
    "session/errors.py": "session/test_store*.py session/test_lock.py",
    "session/fork.py": "commands/test_sessions.py soul/test_opening.py soul/test_images.py",
    "session/images.py": "soul/test_images.py soul/test_token_meter.py",
    "session/journal.py": "session/test_undo.py session/test_world_lines.py session/test_store.py",
    "session/listing.py": "session/test_listing.py session/test_store*.py session/test_metadata*.py commands/test_sessions.py",
    "session/metadata.py": "session/test_metadata*.py session/test_store.py session/test_moved_folder.py",
    "session/prompt_history.py": "tui/prompt/test_prompt.py test_app_paths.py",
    "session/rotation.py": "session/test_rotation*.py session/test_undo.py session/test_world_lines.py",
    "session/schema.py": "session/test_context*.py session/test_undo.py session/test_world_lines.py",
    "session/session.py": "session/test_session*.py session/test_store*.py session/test_lock.py session/test_moved_folder.py",
    "session/unsent.py": "soul/test_inbox.py",
    "soul/agent_copies.py": "soul/test_agents_in_copies.py",
    "soul/agent_engine.py": "soul/test_subagents.py soul/test_agents_in_copies.py soul/test_agent_kinds.py",
    "soul/agents_part.py": "soul/test_subagents.py",
    "soul/approval.py": "soul/test_approval.py soul/test_standing_yes.py tui/approval/test_plan.py",
    "soul/assembly.py": "soul/test_kimisoul*.py soul/test_sandboxed.py",
    "soul/attachments.py": "soul/test_attachments.py tui/main/test_mcp.py",
    "soul/bisect.py": "commands/test_bisect.py tools/test_past_command.py",
    "soul/blame.py": "commands/test_blame.py",
    "soul/bookmarks.py": "soul/test_bookmarks.py soul/test_history_compaction.py",
    "soul/checkpoint_table.py": "soul/test_checkpoint_table.py soul/test_one_figure.py",
    "soul/compaction.py": "soul/test_compaction*.py soul/test_history_compaction.py soul/test_bookmarks.py",
    "soul/configured_tools.py": "soul/test_skills.py soul/test_agent_kinds.py",
    "soul/conversation.py": "soul/test_conversation*.py soul/test_kimisoul*.py",
    "soul/errors.py": "soul/test_headless.py soul/test_operations.py soul/test_compaction.py",
    "soul/folder_snapshots.py": "soul/test_file_history.py",
    "soul/git_changes.py": "soul/test_changes.py",
    "soul/git_commits.py": "commands/test_to_git.py",
    "soul/history.py": "soul/test_history*.py soul/test_rebuilt_history.py",
    "soul/hook_events.py": "soul/test_hooks.py",
    "soul/kimisoul.py": "soul/test_kimisoul*.py soul/test_headless.py soul/test_inbox.py soul/test_operations.py soul/test_model_slot.py",
    "soul/loop.py": "soul/test_loop*.py soul/test_kimisoul_turns.py soul/test_odd_streams.py soul/test_waits.py soul/test_added_folders.py soul/test_dmail_rules.py soul/test_hooks.py soul/test_compaction.py",
    "soul/mcp_host.py": "mcp/test_session.py mcp/test_servers.py",
    "soul/opening.py": "soul/test_opening.py soul/test_moved_folder.py session/test_moved_folder.py tui/main/test_opening.py",
    "soul/operations.py": "soul/test_operations.py soul/test_rewind_preview.py soul/test_subagents.py",
    "soul/parts.py": "soul/test_operations.py soul/test_kimisoul*.py",
    "soul/past_search.py": "commands/test_bisect.py",
    "soul/patches.py": "commands/test_diff.py commands/test_to_git.py soul/test_changes.py",
    "soul/rebuilt_history.py": "soul/test_rebuilt_history*.py soul/test_history_*.py soul/test_tool_calls_user_command.py",
    "soul/rewind_preview.py": "soul/test_rewind_preview.py soul/test_kimisoul_time_travel.py soul/test_one_figure.py",
    "soul/rewind_values.py": "soul/test_operations.py soul/test_rewind_preview.py",
    "soul/session_title.py": "soul/test_model_slot.py soul/test_conversation*.py",
    "soul/soul.py": "soul/test_headless.py",
    "soul/subagents.py": "soul/test_subagents.py soul/test_agents_in_copies.py",
    "soul/system_prompt.py": "soul/test_system_prompt*.py soul/test_request_form.py",
    "soul/token_meter.py": "soul/test_token_meter*.py soul/test_one_figure.py",
    "soul/tool_calls.py": "soul/test_tool_calls*.py soul/test_kimisoul_interrupt.py soul/test_agents_in_copies.py soul/test_hooks.py",
    "soul/world_line_reader.py": "soul/test_usage.py soul/test_operations.py tui/compare/test_layout.py",
    "tools/added_folders.py": "soul/test_added_folders.py",
    "tools/agent.py": "soul/test_subagents.py soul/test_agent_kinds.py",
    "tools/agent_kind.py": "soul/test_agent_kinds.py soul/test_subagents.py",
    "tools/arguments.py": "tools/test_[fgr]*.py tools/test_toolset.py soul/test_tool_calls.py",
    "tools/base.py": "tools/test_toolset.py tools/test_[fr]*.py soul/test_tool_calls.py",
    "tools/files.py": "tools/test_[fr]*.py",
    "tools/outcome.py": "soul/test_tool_results*.py soul/test_tool_calls.py",
    "tools/paths.py": "tools/test_paths.py tools/test_[fgr]*.py soul/test_dmail.py",
    "tools/process.py": "tools/test_process_output.py tools/test_shell.py tools/test_supervised.py",
    "tools/sandbox/confine.py": "tools/sandbox/test_[fhlps]*.py tools/sandbox/test_ahead.py",
    "tools/sandbox/git_levers.py": "tools/sandbox/test_git_watch.py",
    "tools/sandbox/layers.py": "tools/sandbox/test_*layers.py",
    "tools/sandbox/redacted.py": "tools/sandbox/test_home.py",
    "tools/sandbox/refusals.py": "tools/sandbox/test_home.py",
    "tools/sandbox/sandbox.py": "tools/sandbox/test_[ps]*.py soul/test_sandboxed.py",
    "tools/sandbox/view.py": "tools/sandbox/test_view.py tools/test_past_command.py",
    "tools/session_tools.py": "soul/test_dmail.py soul/test_tool_calls.py soul/test_request_form.py",
    "tools/skill.py": "soul/test_skills.py",
    "tools/supervisor.py": "tools/test_supervis*.py tools/test_prepared.py",
    "tools/text.py": "tools/test_read_file.py tools/test_file_edit.py tools/test_grep.py",
    "workspace/base.py": "tools/test_past_command.py workspace/test_diff.py",
    "workspace/common_lines.py": "workspace/test_common_lines.py workspace/test_blame.py workspace/test_patch.py",
    "workspace/folder_watch.py": "soul/test_file_history.py",
    "workspace/inotify.py": "workspace/test_told_changes.py",
    "workspace/manifest.py": "workspace/test_*.py",
    "workspace/scan.py": "workspace/test_scan.py workspace/test_ignore.py",
    "workspace/snapshots.py": "workspace/test_scan.py workspace/test_restore.py workspace/test_diff.py",
    "workspace/store.py": "workspace/test_store.py workspace/test_diff.py commands/test_diff.py",
    "workspace/tracker.py": "workspace/test_*.py soul/test_file_history.py",
    "workspace/tree_watch.py": "workspace/test_told_changes.py workspace/test_file_table.py",
    "workspace/worktree.py": "tools/test_past_command.py commands/test_bisect.py",
}
"""The tests of modules that no test file mirrors, or whose mirror tests only a part of them; below `tests/`."""
# Each operator makes only one change: most others give no program that anybody would write, or change nothing.
REPLACED = {
    "ReplaceComparisonOperator": "Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is In_NotIn NotIn_In Lt_LtE LtE_Lt Gt_GtE GtE_Gt",
    "ReplaceBinaryOperator": "Add_Sub Sub_Add Mul_FloorDiv Div_Mul FloorDiv_Mul Mod_Mul BitOr_BitAnd BitAnd_BitOr LShift_RShift",
    "ReplaceUnaryOperator": "USub_UAdd Delete_Not",
}
MEMORY_KB = 6_000_000
LONGEST_S = 300
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """The `occurrence`th place of a module at which the operator changes something."""

    module: Path
    operator: str
    occurrence: int
    line: int

    @property
    def package(self) -> str:
        """The package of the module, or the module if that was chosen alone."""
        return package_of(self.module)

    def change(self, source: str) -> str | None:
        """Return the changed text of the module; None if the place no longer exists, or cannot be changed."""
        try:
            return mutate_code(source, get_operator(self.operator)(), self.occurrence)
        except AttributeError:
            # cosmic-ray cannot replace an exception of a tuple that is named with its module.
            return None


def package_of(module: Path) -> str:
    """Return which of `PACKAGES` a module belongs to."""
    return next(one for one in PACKAGES if module.as_posix().startswith(one))


def is_sensible(operator: str) -> bool:
    """Return whether mutants of a cosmic-ray operator can be informative."""
    kind, _, change = operator.rpartition("/")[2].partition("_")
    return (
        change in REPLACED.get(kind, "").split()
        if change
        else not get_operator(operator).arguments()
    )


def idle_lines(source: str) -> set[int]:
    """Return the lines where a change has no effect, or fails at once: annotations, decorators, bounds of a module."""
    lines = set[int]()
    tree = ast.parse(source)
    bounds = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    for node in chain(bounds, ast.walk(tree)):
        idle: list[ast.expr | ast.stmt | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            everyone = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            idle = [node.returns, *(one.annotation for one in everyone), *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            idle = [*node.decorator_list]
        elif isinstance(node, ast.AnnAssign):
            idle = [node.annotation]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            idle = [node]
        if node in bounds:
            idle.append(node)
        for one in idle:
            if one is not None:
                lines |= {*range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    return lines


def mutants_of(module: Path, chance: random.Random) -> list[Mutant]:
    """Return a mutant for each place of a module that can be changed, in a random order."""
    source = (ROOT / module).read_text()
    nodes, idle = [*ast_nodes(get_ast(source))], idle_lines(source)
    places: dict[tuple[int, int], list[Mutant]] = {}
    for name in filter(is_sensible, operator_names()):
        operator = get_operator(name)()
        found = ((node, place) for node in nodes for place in operator.mutation_positions(node))
        for occurrence, (node, (start, _)) in enumerate(found):
            # `A | B` of two classes is a type, which a change leaves without effect.
            if start[0] not in idle and not (
                "_BitOr_" in name and node.get_next_leaf().value[0].isupper()
            ):
                places.setdefault(start, []).append(Mutant(module, name, occurrence, start[0]))
    chosen = [chance.choice(mutants) for mutants in places.values()]
    chance.shuffle(chosen)
    return chosen


def sample(only: str, chance: random.Random) -> list[Mutant]:
    """Return all mutants of the chosen modules: one of each package in turn, each at a random place of it."""
    columns: list[list[Mutant]] = []
    for package in PACKAGES:
        there = ROOT / package
        modules = [there] if there.is_file() else sorted(there.rglob("*.py"))
        names = [one.relative_to(ROOT) for one in modules]
        chosen = [
            one for one in names if package_of(one) == package and one.as_posix().startswith(only)
        ]
        column = [mutant for module in chosen for mutant in mutants_of(module, chance)]
        chance.shuffle(column)
        columns.append(column)
    return [one for one in chain.from_iterable(zip_longest(*columns)) if one is not None]


def tests_of(module: Path) -> tuple[str, ...]:
    """Return the test files that a mutant of a module is tested with."""
    name = module.relative_to("kimi_tui")
    patterns = TESTS.get(name.as_posix(), f"{name.parent}/test_{name.stem}*.py")
    tests = ROOT / "tests"
    return tuple(
        f"tests/{file.relative_to(tests)}"
        for one in patterns.split()
        for file in sorted(tests.glob(one))
    )


class Copies:
    """Copies of the checkout, one for each mutant that is tried at the same time."""

    def __init__(self, base: Path, n: int, marks: str) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
        # The copies include compiled files, which are valid for all modules but the changed one: its modification time differs.
        compiled = (file for name in ("kimi_tui", "tests") for file in (ROOT / name).rglob("*.pyc"))
        files = [*map(Path, names), *(file.relative_to(ROOT) for file in compiled)]
        self._free = [base / str(number) for number in range(n)]
        for copy in self._free:
            for name in files:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        self._marks = marks
        self._sound = set[str]()
        """The test files and tests that were seen to pass: with a mutant that survived, or without a change after they had failed."""

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """Return the outcome of a mutant (killed, timeout, survived, untested), and its diff."""
        tests = tests_of(mutant.module)
        copy = self._free.pop()
        try:
            return self._tried(mutant, tests, copy)
        finally:
            self._free.append(copy)

    def _tried(self, mutant: Mutant, tests: Sequence[str], copy: Path) -> tuple[str, str]:
        changed = copy / mutant.module
        source, times = changed.read_text(), changed.stat()
        text = mutant.change(source)
        if text is None or not tests:
            return "untested", ""
        lines = difflib.unified_diff(source.splitlines(), text.splitlines(), n=2, lineterm="")
        diff = "\n".join([*lines][3:])
        changed.write_text(text)
        ended, output = run_tests(command(copy, tests, self._marks), LONGEST_S)
        changed.write_text(source)
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
        if ended is TestOutcome.SURVIVED:
            self._sound.update(tests)
            return "survived", diff
        if output == "timeout":
            return "timeout", diff
        failed = FAILED.search(output)
        if failed is None:
            # A program that ended at once killed the mutant, unless all tests were deselected by their marks.
            return ("untested" if "deselected in" in output else "killed"), diff
        file, test = failed[1].partition("::")[0], failed[1]
        is_sound = not self._sound.isdisjoint((file, test)) or self._passes(copy, test)
        return ("killed" if is_sound else "untested"), diff

    def _passes(self, copy: Path, test: str) -> bool:
        """Return whether a test passes in a copy without a change."""
        ended, _ = run_tests(command(copy, [test], self._marks), LONGEST_S)
        if ended is TestOutcome.SURVIVED:
            self._sound.add(test)
        return ended is TestOutcome.SURVIVED


def command(copy: Path, tests: Sequence[str], marks: str) -> str:
    """Return the shell command that runs tests in a copy; its package is found before the installed one, also by child processes."""
    options = "-x -p no:cacheprovider --hypothesis-profile=quick"
    options += f" -m {shlex.quote(marks)}"
    script = (
        f"cd {shlex.quote(str(copy))}; ulimit -v {MEMORY_KB} 2> /dev/null; "
        f"PYTHONPATH=$PWD exec {shlex.quote(sys.executable)} -m pytest {options} {shlex.join(tests)}"
    )
    return shlex.join(["sh", "-c", script])


def report(fared: list[tuple[Mutant, str, str]], seed: int) -> Iterator[str]:
    """Yield the lines of the report: a table, and each mutant that survived with its diff."""
    kinds = ("killed", "timeout", "survived", "untested")
    yield f"seed {seed}"
    yield "| package | mutants | " + " | ".join(kinds) + " |"
    yield "|---|---|---|---|---|---|"
    for package in PACKAGES:
        counts = Counter(kind for mutant, kind, _ in fared if mutant.package == package)
        yield (
            f"| {package} | {counts.total()} | "
            + " | ".join(str(counts[one]) for one in kinds)
            + " |"
        )
    for mutant, kind, diff in sorted(fared, key=lambda one: (one[0].module, one[0].line)):
        if kind in ("survived", "untested"):
            yield f"\n{mutant.module}:{mutant.line} {kind} {mutant.operator}"
            yield diff


def main() -> None:
    """Try the sample, and write the report after each mutant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--marks", default="not exhaustive")
    parser.add_argument("--report", type=Path, default=ROOT / "build/mutants.txt")
    options = parser.parse_args()
    mutants = sample(options.only, random.Random(options.seed))
    if not mutants:
        raise SystemExit(
            f"No mutant is below {options.only!r}. Name a part of: {', '.join(PACKAGES)}"
        )
    if untested := {one.module.as_posix() for one in mutants if not tests_of(one.module)}:
        raise SystemExit(f"TESTS of {__file__} names no tests for {', '.join(sorted(untested))}.")
    print(f"{len(mutants)} places, {options.minutes:g} minutes", flush=True)
    fared: list[tuple[Mutant, str, str]] = []
    options.report.parent.mkdir(exist_ok=True)
    # The copies are below the checkout, since the sandbox covers folders of all users, where tests' programs could not be read.
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=options.report.parent) as base:
        # Tests of the sandbox run commands as another user, who has to reach the copies.
        os.chmod(base, 0o755)
        copies = Copies(Path(base), options.jobs, options.marks)
        until = time.monotonic() + options.minutes * 60

        def attempt(mutant: Mutant) -> None:
            if time.monotonic() > until:
                return
            kind, diff = copies.outcome(mutant)
            fared.append((mutant, kind, diff))
            print(f"{kind:9} {mutant.module}:{mutant.line} {mutant.operator}", flush=True)
            options.report.write_text("\n".join(report([*fared], options.seed)) + "\n")

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(attempt, mutants[options.skip :][: options.most]))
    if not fared:
        raise SystemExit("The time was over before the first mutant was tested.")
    print(options.report.read_text())


if __name__ == "__main__":
    main()
