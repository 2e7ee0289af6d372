"""The paths of the work folder, newest first, for completion: `rg` lists them, `frizbee` matches the typed text.

Paths that `.gitignore` excludes and names that cannot be typed are omitted. The list is kept until the next scan, which runs
in slices of a few milliseconds on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import unicodedata
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from frizbee import Haystacks, Matcher

from kimi_tui.foreign_text import one_line
from kimi_tui.tools.grep import rg_options, rg_program, write_rules
from kimi_tui.tools.outcome import ToolProblem
from kimi_tui.tools.process import child_environment
from kimi_tui.tools.sandbox.sandbox import Sandbox
from kimi_tui.tools.sandbox.search import Searched, confined_search, shut_below

MOST = 100_000
"""The largest number of paths that are kept; the newest ones of a larger folder."""
MOST_CHARS = 16_000_000
"""The largest number of characters of all paths together: a hundred thousand paths may have four thousand letters each."""
LIMIT_S = 20.0
NEWEST = 40_000
"""A query of a few letters, which matches nearly every path, searches only this number of newest paths."""
_FEW_LETTERS = 3
_CHUNK_BYTES = 16 * 1024
_LIKELY = 200
"""This many of the best matches are also ranked by their last name."""
_LONGEST_QUERY = 200


class FileList:
    """The files and folders of a work folder; a folder ends with `/`.

    Args:
        work_dir: the work folder.
        environ: the environment variables, for finding `rg`.
        sandbox: the sandbox of `rg`; None for none.

    Attributes:
        paths: relative to the work folder, newest first; a folder is as new as the newest file below it.
    """

    def __init__(
        self, work_dir: Path, environ: Mapping[str, str], sandbox: Sandbox | None = None
    ) -> None:
        self._work_dir = work_dir
        self._environ = environ
        self._sandbox = sandbox
        self.paths: list[str] = []
        self._haystacks = self._newest = Haystacks()
        self._last: tuple[str, int, list[str]] = ("", 0, [])
        """The last query with its number of results, and the answer: the same query comes again when the cursor moves."""

    async def scan(self) -> None:
        """Scan the folder anew; if that fails or takes too long, the known paths stay."""
        try:
            with tempfile.TemporaryFile() as rules:
                argv = await asyncio.to_thread(self._prepared, rules.fileno())
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=DEVNULL,
                    cwd=self._work_dir,
                    env=child_environment(self._environ),
                    limit=_CHUNK_BYTES,
                    pass_fds=(rules.fileno(),),
                )
        except (ToolProblem, OSError):
            return
        paths: list[str] = []
        haystacks, newest = Haystacks(), Haystacks()
        try:
            async with asyncio.timeout(LIMIT_S):
                async for found in _listed(process):
                    if len(paths) < NEWEST:
                        newest.extend(found)
                    haystacks.extend(found)
                    paths += found
                if process.stdout is not None and process.stdout.at_eof():
                    await process.wait()
        except TimeoutError:
            return
        finally:
            # Killing a process that ends by itself would take its exit code from the thread that waits for it, which warns then.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            # Unread output would keep the process from being reaped.
            while process.stdout is not None and await process.stdout.read(_CHUNK_BYTES):
                pass
            await process.wait()
        if not paths and process.returncode not in (0, 1, 2):
            return
        self.paths, self._haystacks, self._newest = paths, haystacks, newest
        self._last = ("", 0, [])

    def _prepared(self, rules: int) -> list[str]:
        """Return the arguments of `rg`; the file of this descriptor is filled with rules."""
        argv = rg_options(rg_program(self._environ, self._work_dir), rules)
        argv += ["--files", "--hidden", "--glob=!.git", "--sortr=modified"]
        write_rules(rules, (), self._environ)
        if self._sandbox is None:
            return argv
        folder = self._work_dir.resolve()
        shut = shut_below(folder, self._environ)
        return confined_search(self._sandbox, argv, Searched(str(folder), ".", rules, shut))

    def matching(self, query: str, count: int) -> list[str]:
        """Return the most likely paths for a query, best first; of equal ones the newest first."""
        if not query:
            return self.paths[:count]
        query = _composed(query[:_LONGEST_QUERY])
        if (query, count) == self._last[:2]:
            return self._last[2]
        among = self._newest if len(query) <= _FEW_LETTERS else self._haystacks
        # One pass in native code takes a few milliseconds, depending on the number of matches.
        found = Matcher(query, max_items=_LIKELY).match_list(among)
        likely = [self.paths[match.index] for match in found]
        names = [path.removesuffix("/").rpartition("/")[2] for path in likely]
        by_name = {match.index: match.score for match in Matcher(query).match_list(names)}
        scores = [match.score + by_name.get(place, 0) for place, match in enumerate(found)]
        best = sorted(range(len(likely)), key=lambda place: (-scores[place], found[place].index))
        found_paths = [likely[place] for place in best[:count]]
        self._last = (query, count, found_paths)
        return found_paths


async def _listed(process: asyncio.subprocess.Process) -> AsyncIterator[list[str]]:
    """Yield the paths in pieces as they come; a folder comes after the first file in it."""
    assert process.stdout is not None
    folders: set[str] = set()
    n_found = n_chars = 0
    rest = b""
    while (
        n_found < MOST
        and n_chars < MOST_CHARS
        and (chunk := await process.stdout.read(_CHUNK_BYTES))
    ):
        *names, rest = (rest + chunk).split(b"\0")
        new: list[str] = []
        for name in names:
            with contextlib.suppress(UnicodeDecodeError):
                path = _composed(name.decode())
                if path.isprintable() or path == one_line(path):
                    new.append(path)
                    _add_folders(path, folders, new)
        yield new
        n_found += len(new)
        n_chars += sum(map(len, new))
        # Without this pause, reading buffered data would never let the event loop run.
        await asyncio.sleep(0)


def _composed(text: str) -> str:
    """Return the text in composed form, as it is typed: macOS writes names decomposed. `locate` finds either form."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _add_folders(path: str, folders: set[str], new: list[str]) -> None:
    above = path.rpartition("/")[0]
    while above and above not in folders:
        folders.add(above)
        new.append(f"{above}/")
        above = above.rpartition("/")[0]
