"""How a file tool changes a file: read, check that the agent knows this version, compute, ask, write in one step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kimi_tui.tools import text as texts
from kimi_tui.tools.base import FileEdit, ToolEnv
from kimi_tui.tools.files import HASHED_LIMIT_BYTES, Content, read_whole
from kimi_tui.tools.permission import ask_to_change, told_like_reading
from kimi_tui.tools.place import Place, locate
from kimi_tui.tools.problem import ToolProblem
from kimi_tui.tools.replacing import replace_file
from kimi_tui.tools.settle import settled

Compute = Callable[[Place, Content | None], str]
"""From what is on disk (None: nothing) to the whole new text; raises `ToolProblem`. Runs in a thread."""


async def change_file(path: str, compute: Compute, env: ToolEnv) -> FileEdit:
    """Change one file, with the person's yes.

    Raises:
        ToolProblem: it cannot be done; nothing was written.
        ToolRejected: the person said no.
    """
    place = await asyncio.to_thread(locate, path, env.work_dir, env.environ)
    async with told_like_reading(place, env):
        content, edit, data = await asyncio.to_thread(_planned, place, compute, env)
    await ask_to_change(place, edit, env, n_links=content.stat.st_nlink if content else 1)
    again = await asyncio.to_thread(locate, path, env.work_dir, env.environ)
    if again.real != place.real:
        raise ToolProblem(
            f"{path} leads somewhere else than when it was asked for. Nothing was written.",
            brief="path changed",
        )
    await settled(_write, place, data, content, env)
    return edit


def _write(place: Place, data: bytes, content: Content | None, env: ToolEnv) -> None:
    version = replace_file(place, data, content)
    # Told in here, because a cancelled caller gets no further, and the agent's own write is no foreign change.
    env.versions.saw(place.real, version)


def _check_known(place: Place, content: Content | None, env: ToolEnv) -> None:
    seen = env.versions.seen(place.real)
    if seen is not None and content is not None and content.version != seen:
        raise ToolProblem(
            f"{place.asked} changed on disk since you last read it. Nothing was written: read it again, "
            "then make the change against what it holds now.",
            brief="changed on disk",
        )


def _planned(
    place: Place, compute: Compute, env: ToolEnv
) -> tuple[Content | None, FileEdit, bytes]:
    content = read_whole(place)
    _check_known(place, content, env)
    after = compute(place, content)
    data = texts.encode(after)
    if content is not None and data == content.data:
        raise ToolProblem(
            f"{place.asked} already holds exactly this; nothing was written.", brief="no change"
        )
    before = None if content is None else _shown_before(content)
    return content, FileEdit(place.shown, before, texts.for_people(after)), data


def _shown_before(content: Content) -> str:
    size = texts.size_in_words(content.stat.st_size)
    if content.stat.st_size > HASHED_LIMIT_BYTES:
        return f"({size}, not shown)\n"
    if kind := texts.binary_kind(content.data[: texts.PROBE_BYTES]):
        return f"({kind}, {size})\n"
    return texts.for_people(texts.decode(content.data))
