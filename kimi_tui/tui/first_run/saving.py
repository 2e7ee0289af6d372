"""From a chosen model to a way to start: saved where that is possible, used in any case."""

from __future__ import annotations

import asyncio

from kimi_tui.config.choosing import Choice
from kimi_tui.config.model import Config, ConfigError
from kimi_tui.launch import Launch


async def save(launch: Launch, choice: Choice) -> Launch:
    """Save the choice and say how to start with it; a disk that refuses becomes a notice."""
    notices = launch.notices
    config: Config = launch.config
    try:
        config = await asyncio.to_thread(_save, launch, choice)
    except ConfigError as error:
        notices = (*notices, f"{error}. It is used for now.")
    except OSError as error:
        reason = error.strerror or str(error)
        notices = (*notices, f"The choice could not be saved: {reason}. It is used for now.")
    return launch._replace(choice=choice, config=config, notices=notices)


def _save(launch: Launch, choice: Choice) -> Config:
    from kimi_tui.config.saving import save_choice

    return save_choice(launch.config_path, choice)
