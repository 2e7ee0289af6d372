"""The one way on from a replay: a fork of the session up to the moment that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kimi_tui.config.choosing import Choice
from kimi_tui.launch import Launch

if TYPE_CHECKING:
    from kimi_tui.tui.replay.source import Told

NOTHING_YET = "Nothing has happened yet at this moment."
NO_MODEL = "No model is set up yet: start kimi-tui once to choose one."


def hindrance(launch: Launch, *, has_checkpoint: bool) -> str:
    """Why one cannot go on from a moment; empty where one can."""
    if not has_checkpoint:
        return NOTHING_YET
    if not isinstance(launch.choice, Choice) and not launch.demo:
        return NO_MODEL
    return ""


async def forked(launch: Launch, told: Told, uid: str, *, whole: bool) -> Launch:
    """Fork the session at a checkpoint; returns how to open the fork.

    Args:
        launch: how the app was started.
        told: the session that is played.
        uid: the checkpoint.
        whole: with what happened there; else up to before it.

    Raises:
        UnknownWorldLine: no line of the session has that checkpoint any more.
        StorageTrouble: the disk refused.
    """
    from kimi_tui.tui.replay.source import fork_at

    fork = await fork_at(told.session, uid, whole=whole)
    return launch._replace(
        work_dir=told.session.work_dir,
        resume=fork.id,
        fork=False,
        replay=False,
        notices=("This is a fork; the session that was played back is as it was.",),
    )
