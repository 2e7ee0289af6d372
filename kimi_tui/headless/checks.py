"""Checks of the options of a run without a screen, before anything is sent, and the launch that they give."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from kimi_tui.config.settings import ConfigError
from kimi_tui.headless.options import HeadlessOptions
from kimi_tui.launch import Launch, Options


def with_options(launch: Launch, options: HeadlessOptions) -> Launch:
    """Return the launch with the options of a run without a screen."""
    config = launch.config
    if options.max_steps is not None:
        control = config.loop_control._replace(max_steps_per_turn=options.max_steps)
        config = config._replace(loop_control=control)
    return launch._replace(
        config=config, bare=options.bare, max_tokens=options.max_tokens, max_cost=options.max_cost
    )


@asynccontextmanager
async def ephemeral(launch: Launch, *, wanted: bool) -> AsyncGenerator[Launch]:
    """Yield the launch with a folder for its session that is removed at the end; if that is not wanted, the launch as it is."""
    if not wanted:
        yield launch
        return
    from kimi_tui.temporary_folders import TemporaryFolder

    folder = await asyncio.to_thread(TemporaryFolder, "session")
    try:
        yield launch._replace(kept_in=Path(folder.path))
    finally:
        await asyncio.to_thread(folder.remove)


def check(options: Options, headless: HeadlessOptions) -> None:
    """Check that the options fit together.

    Raises:
        ConfigError: they do not; the message is one line.
    """
    if options.demo or options.replay or options.picks:
        name = "--demo" if options.demo else "replay" if options.replay else "--resume"
        raise ConfigError(f"{name} cannot be used together with -p or a piped prompt")
    if headless.deltas and headless.output != "stream-json":
        raise ConfigError("--deltas needs --output-format stream-json")
    if headless.lines:
        if headless.output != "stream-json":
            raise ConfigError("--input-format stream-json needs --output-format stream-json")
        if headless.schema:
            raise ConfigError("--json-schema cannot be used with --input-format stream-json")
        if headless.output_file:
            raise ConfigError("--output-file cannot be used with --input-format stream-json")
        if options.message:
            raise ConfigError(
                "--input-format stream-json reads every message from standard input: "
                "send the prompt there as a line of type user"
            )
    if headless.ephemeral and (options.newest or options.session):
        raise ConfigError("--ephemeral cannot be used with --continue or --session")
    if headless.output_file == "-":
        raise ConfigError(
            "--output-file needs the name of a file; the answer is always written to standard output as well"
        )
    if headless.output_file:
        folder = Path(headless.output_file).expanduser().absolute().parent
        if not folder.is_dir():
            raise ConfigError(f'--output-file: there is no folder "{folder}"')
        if Path(headless.output_file).expanduser().is_dir():
            raise ConfigError(f'--output-file: "{headless.output_file}" is a folder')


def check_prices(launch: Launch, prices: Mapping[str, object], model: str) -> None:
    """Check that a cost can be limited.

    Raises:
        ConfigError: the prices of the model are not known.
    """
    if launch.max_cost and model not in prices:
        raise ConfigError(
            f'--max-cost: the prices of "{model}" are not configured. '
            "Add [models.NAME.prices] to config.toml, or use --max-tokens"
        )
