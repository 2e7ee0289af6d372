"""Running a search in a child process: `rg` where it is on the path, else the wheel `python-ripgrep`.

Both answer in the same form; the wheel runs in a process of its own because a search in a thread could not be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kimi_tui.tools.child_env import child_environment, find_program
from kimi_tui.tools.problem import ToolProblem

LIMIT_S = 20.0
OUTPUT_BYTES = 20 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_ERROR_BYTES = 4096
_CHILD = Path(__file__).with_name("grep_child.py")

Mode = Literal["content", "files_with_matches", "count"]

FILE_TYPES: Mapping[str, tuple[str, ...]] = {
    "c": ("*.c", "*.h"),
    "cpp": ("*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.hxx", "*.h"),
    "cs": ("*.cs",),
    "css": ("*.css", "*.scss", "*.sass", "*.less"),
    "go": ("*.go",),
    "html": ("*.html", "*.htm"),
    "java": ("*.java",),
    "js": ("*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"),
    "json": ("*.json", "*.jsonl"),
    "kotlin": ("*.kt", "*.kts"),
    "lua": ("*.lua",),
    "md": ("*.md", "*.markdown", "*.mdx"),
    "php": ("*.php",),
    "py": ("*.py", "*.pyi"),
    "ruby": ("*.rb", "*.gemspec", "Rakefile", "Gemfile"),
    "rust": ("*.rs",),
    "sh": ("*.sh", "*.bash", "*.zsh"),
    "sql": ("*.sql",),
    "swift": ("*.swift",),
    "toml": ("*.toml",),
    "ts": ("*.ts", "*.tsx", "*.mts", "*.cts"),
    "txt": ("*.txt",),
    "xml": ("*.xml", "*.xsd", "*.svg"),
    "yaml": ("*.yaml", "*.yml"),
}
"""Names of file types, the same for both engines."""


@dataclass(frozen=True, slots=True)
class Query:
    """One search. `root` is the file or folder as the engine is told it, from `cwd` or absolute."""

    pattern: str
    root: str
    cwd: Path
    mode: Mode
    globs: tuple[str, ...] = ()
    ignore_case: bool = False
    multiline: bool = False
    before: int = 0
    after: int = 0
    max_count: int = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """What the engine wrote: `path NUL line` by line (`path NUL` where only paths were asked for)."""

    output: bytes
    out_of_time: bool = False
    too_much: bool = False


async def search(query: Query, environ: Mapping[str, str]) -> Found:
    """Search for at most `LIMIT_S`.

    Raises:
        ToolProblem: the pattern is wrong, or the engine failed.
    """
    rg = await asyncio.to_thread(find_program, "rg", environ, query.cwd)
    argv, told = _rg(rg, query) if rg else _wheel(query)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=PIPE if told else DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=query.cwd,
        env=child_environment(environ),
        start_new_session=True,
        limit=_CHUNK_BYTES,
    )
    output = bytearray()
    errors = asyncio.create_task(_errors(process))
    out_of_time = False
    try:
        try:
            async with asyncio.timeout(LIMIT_S):
                await _tell(process, told)
                await _collect(process, output)
                if len(output) <= OUTPUT_BYTES:
                    await process.wait()
        except TimeoutError:
            out_of_time = True
    finally:
        # However the search ended, also by a cancel: nothing of it goes on running.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        message = await errors
        await process.wait()
    too_much = len(output) > OUTPUT_BYTES
    if not out_of_time and not too_much:
        _check(process.returncode, message)
    return Found(bytes(output), out_of_time, too_much)


def _rg(program: str, query: Query) -> tuple[list[str], bytes]:
    argv = [program, "--no-config", "--no-messages", "--color=never", "--no-require-git"]
    argv += ["--sort=path", "--null", "--no-heading", "--with-filename", "--line-number"]
    argv += ["--max-columns=2000", "--max-columns-preview", f"--max-count={query.max_count}"]
    if query.mode == "files_with_matches":
        argv.append("--files-with-matches")
    elif query.mode == "count":
        argv.append("--count")
    else:
        argv += [f"--before-context={query.before}", f"--after-context={query.after}"]
    if query.ignore_case:
        argv.append("--ignore-case")
    if query.multiline:
        argv += ["--multiline", "--multiline-dotall"]
    argv += [f"--glob={glob}" for glob in query.globs]
    return [*argv, f"--regexp={query.pattern}", "--", query.root], b""


def _wheel(query: Query) -> tuple[list[str], bytes]:
    flags = ("i" if query.ignore_case else "") + ("s" if query.multiline else "")
    pattern = f"(?{flags}:{query.pattern})" if flags else query.pattern
    asked = {
        "pattern": pattern,
        "plain_pattern": query.pattern,
        "ignore_case": query.ignore_case,
        "root": query.root,
        "mode": query.mode,
        "globs": list(query.globs),
        "multiline": query.multiline,
        "before": query.before if query.mode == "content" else 0,
        "after": query.after if query.mode == "content" else 0,
        "max_count": query.max_count,
    }
    return [sys.executable, "-I", str(_CHILD)], json.dumps(asked).encode()


async def _tell(process: Process, told: bytes) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(told)
        await process.stdin.drain()
        process.stdin.close()


async def _collect(process: Process, output: bytearray) -> None:
    assert process.stdout is not None
    while len(output) <= OUTPUT_BYTES:
        chunk = await process.stdout.read(_CHUNK_BYTES)
        if not chunk:
            return
        output += chunk


async def _errors(process: Process) -> str:
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        kept = (kept + chunk)[:_ERROR_BYTES]
    return kept.decode("utf-8", "replace").strip()


def _check(code: int | None, message: str) -> None:
    # rg says 1 where nothing matched, and 2 also where a file could not be read (then without a message).
    if code in (0, 1) or (code == 2 and not message):
        return
    if code == 2:
        raise ToolProblem(
            f"The search was refused: {message}\nTo search for the text as it is, escape ( ) [ ] {{ }} . * + ? | ^ $ \\",
            brief="bad pattern",
        )
    raise ToolProblem(
        "The search ended badly, probably for lack of memory: narrow the path, the glob or the pattern.",
        brief="search failed",
    )
