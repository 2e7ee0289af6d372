"""A search by the wheel `python-ripgrep`, run as a program of its own so that it can be stopped and its memory is bounded.

Reads one JSON object from standard input (see `grep_engine.py`) and writes what `rg --null --no-heading` would write.
Imports nothing of this package: it runs isolated, by its path.
"""

import json
import os
import re
import sys
import time
from typing import Any

_MEMORY_BYTES = 3 * 1024**3
_LINE_CHARS = 2000
_ODD_FILES_S = 1.0
_ODD_FILE_BYTES = 4 * 1024 * 1024


def main() -> int:
    """Search and write; 0 for done, 2 for a pattern that is no regular expression."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    except (ImportError, ValueError, OSError):
        pass
    from python_ripgrep import files, search

    asked: dict[str, Any] = json.load(sys.stdin)
    root: str = asked["root"]
    globs: list[str] | None = asked["globs"] or None
    try:
        results: list[str] = search(
            [asked["pattern"]],
            paths=[root],
            globs=globs,
            heading=True,
            line_number=True,
            before_context=asked["before"],
            after_context=asked["after"],
            max_count=1 if asked["mode"] == "files_with_matches" else asked["max_count"],
            multiline=asked["multiline"],
            separator_field_match=":",
            separator_field_context="-",
        )
    except ValueError as error:
        sys.stderr.write(str(error))
        return 2
    single = os.path.isfile(root)
    found: dict[str, list[str]] = {}
    for result in results:
        # Some results begin with the empty line that parts them from the file before.
        lines = result.lstrip("\n").split("\n")
        if lines and not lines[-1]:
            lines.pop()
        found[root if single else lines.pop(0)] = lines
    candidates = [root] if single else files([asked["pattern"]], paths=[root], globs=globs)
    odd = _odd_files(asked, candidates, found)
    for path in sorted({**found, **odd}):
        _write(path, found.get(path) or odd[path], asked["mode"])
    return 0


def _odd_files(
    asked: dict[str, Any], candidates: list[str], found: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Matches in files that are not UTF-8, which the wheel passes over; as many as a second allows."""
    flags = (re.IGNORECASE if asked["ignore_case"] else 0) | re.MULTILINE
    try:
        pattern = re.compile(asked["plain_pattern"], flags)
    except re.error:
        return {}
    deadline = time.monotonic() + _ODD_FILES_S
    odd: dict[str, list[str]] = {}
    for path in candidates:
        if time.monotonic() > deadline:
            break
        if path in found:
            continue
        try:
            with open(path, "rb") as file:
                data = file.read(_ODD_FILE_BYTES)
        except OSError:
            continue
        if data.isascii() or b"\0" in data:
            continue
        try:
            data.decode()
        except UnicodeDecodeError:
            lines = data.decode("utf-8", "replace").splitlines()
            hits = [f"{i}:{line}" for i, line in enumerate(lines, start=1) if pattern.search(line)]
            if hits:
                odd[path] = hits[: asked["max_count"]]
    return odd


def _write(path: str, lines: list[str], mode: str) -> None:
    out: list[str] = []
    if mode == "files_with_matches":
        out.append(f"{path}\0")
    elif mode == "count":
        n_matches = sum(1 for line in lines if re.match(r"\d+:", line))
        out.append(f"{path}\0{n_matches}\n")
    else:
        for line in lines:
            out.append("--\n" if line == "--" else f"{path}\0{line[:_LINE_CHARS]}\n")
        out.append("--\n")
    sys.stdout.buffer.write("".join(out).encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    sys.exit(main())
