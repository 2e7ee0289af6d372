"""The options with which the app is started: those of the command line, and the settings that result from them and the configuration.

The app gets a `Launch`. Imports here delay the first paint.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

from kimi_tui.app_paths import config_file, expanded, kimi_cli_config_file, no_home_notice
from kimi_tui.config.file import read_config
from kimi_tui.config.kimi_cli_guards import not_run_notice
from kimi_tui.config.model_choice import (
    FolderModel,
    ModelChoice,
    NeedsChoice,
    Overrides,
    choose_model,
    folder_model_trouble,
    in_folder,
    read_folder_model,
)
from kimi_tui.config.settings import Config, ConfigError

if TYPE_CHECKING:
    from kimi_tui.demo import Demo
    from kimi_tui.headless.options import HeadlessOptions
    from kimi_tui.soul.approval import Mode

ONCE_ONLY = "KIMI_TUI_ONCE_ONLY"
"""The environment variable with which `kimi-tui serve` starts the app: each yes holds once."""
NEWEST = "newest"
"""The value of `Launch.resume` for the newest session of the folder."""
FORKED = "This is a fork (a copy of the session). The original session is unchanged."
"""The notice in a fork of a whole session."""


class Options(NamedTuple):
    """The arguments of the command line; the defaults apply if there are none."""

    newest: bool = False
    session: str | None = None
    picks: bool = False
    work_dir: str | None = None
    model: str | None = None
    base_url: str | None = None
    yolo: bool = False
    plan: bool = False
    no_sandbox: bool = False
    thinking: bool | None = None
    fork: bool = False
    demo: bool = False
    play: bool = False
    speed: float = 1.0
    replay: bool = False
    message: str = ""
    mode: "Mode | None" = None
    headless: "HeadlessOptions | None" = None
    added: tuple[str, ...] = ()
    external_agent: str | None = None
    agent_arguments: tuple[str, ...] = ()


class GivenValue(NamedTuple):
    """A setting, in words, that an argument or environment variable overrides, and the name of that argument or variable (`source`)."""

    value: str
    source: str


class Launch(NamedTuple):
    """The options with which the app, or a session in it, is started.

    `resume` is None for a new session, `newest` or a session's id. `notices` are shown once the screen is drawn. `in_demo` is
    the running demo, in which a fork continues. With `plays` the demo sends its messages itself. With `replay` the session is
    replayed instead of resumed. `work_dir_given` says that the command line named the work folder. With `picks` the user first chooses from the list of sessions. `prompt` is the initial text of
    the prompt. With `sandbox` commands run in a sandbox, where there is one. With `offers_files` the user is asked whether to
    restore files that differ from the end of the conversation. `given` are the settings that override the configuration file,
    by their keys. `kept_in` is the folder of the sessions if it is not the usual one. With `bare` the agent is not given the
    notes of projects and of the user, and runs no hooks. `max_tokens` (input and output) and `max_cost` are the budget of this run; 0 for any.
    `added` are folders beside the work folder that the agent may use as it may use that. With `once_only` no yes is offered that
    holds for the session or the project.
    """

    work_dir: Path
    config_path: Path
    config: Config = Config()
    choice: ModelChoice | NeedsChoice = NeedsChoice()
    resume: str | None = None
    picks: bool = False
    fork: bool = False
    mode: "Mode" = "ask"
    sandbox: bool = False
    demo: bool = False
    in_demo: "Demo | None" = None
    plays: bool = False
    speed: float = 1.0
    notices: tuple[str, ...] = ()
    replay: bool = False
    prompt: str = ""
    offers_files: bool = False
    given: Mapping[str, GivenValue] = MappingProxyType({})
    work_dir_given: bool = False
    kept_in: Path | None = None
    bare: bool = False
    max_tokens: int = 0
    max_cost: float = 0.0
    added: tuple[Path, ...] = ()
    once_only: bool = False
    external_agent: tuple[str, ...] = ()

    @property
    def continued(self) -> str | None:
        """The id of the session that is continued, empty for the newest of the folder; None for a new one, and for a fork, which
        does not exist before it is open.
        """
        if self.fork:
            return None
        return "" if self.resume == NEWEST else self.resume


def launch_of(options: Options) -> Launch:
    """Combine the options, the environment and the configuration file.

    Raises:
        ConfigError: the settings cannot be used; the message is one line for the user.
    """
    if options.fork and not (options.newest or options.session):
        raise ConfigError("--fork needs --continue or --session ID")
    if options.play and not options.demo:
        raise ConfigError("--play needs --demo")
    path = config_file()
    config = _config(path)
    work_dir = _work_dir(options.work_dir)
    here = read_folder_model(work_dir)
    choice = choose_model(
        in_folder(config, here),
        Overrides(options.model, options.base_url, options.thinking),
        os.environ,
    )
    has_model = isinstance(choice, ModelChoice)
    return Launch(
        work_dir=work_dir,
        config_path=path,
        config=config,
        choice=choice,
        resume=NEWEST if options.newest else options.session,
        picks=options.picks,
        fork=options.fork,
        mode=_mode(options, config),
        sandbox=not (options.demo or options.no_sandbox),
        demo=options.demo,
        plays=options.play,
        speed=options.speed,
        replay=options.replay,
        prompt=options.message,
        work_dir_given=options.work_dir is not None,
        added=tuple(map(_added, options.added)),
        once_only=bool(os.environ.get(ONCE_ONLY)),
        external_agent=_external_agent(options, config, work_dir, needed=not has_model),
        given=_given(
            options, choice, here if here and here.model in ("", *config.models) else None
        ),
        notices=(
            *config.notices,
            *(choice.remarks if isinstance(choice, ModelChoice) else ()),
            *([words] if (words := _lost_model(options, config, here, choice)) else []),
            *([words] if here is None and (words := folder_model_trouble(work_dir)) else []),
            *([words] if (words := no_home_notice()) else []),
            *([words] if not options.demo and (words := not_run_notice(path)) else []),
        ),
    )


def _external_agent(
    options: Options, config: Config, work_dir: Path, *, needed: bool
) -> tuple[str, ...]:
    """Return the name of the external agent with its further arguments; empty for none, or for that of the session.

    Args:
        options: the options.
        config: the configuration.
        work_dir: the work folder.
        needed: whether no model is configured, so that the user would be asked for one, unless the session has an external agent.

    Raises:
        ConfigError: it cannot be started here.
    """
    ours = _of_our_agent(options)
    if options.external_agent is None:
        is_stored = options.newest or options.session is not None
        stored = (
            _agent_of_session(options.session, work_dir) if is_stored and (needed or ours) else ()
        )
        if stored and ours:
            raise ConfigError(_not_theirs(ours, stored[0]))
        return stored if needed else ()
    if options.demo:
        raise ConfigError("--external-agent does not work with --demo")
    if ours:
        raise ConfigError(_not_theirs(ours, options.external_agent))
    from kimi_tui.external.agents import AgentMissing, agent_program, missing_package

    if words := missing_package():
        raise ConfigError(words)
    try:
        agent_program(
            options.external_agent,
            options.agent_arguments,
            config.external_agents,
            os.environ,
            work_dir,
        )
    except AgentMissing as missing:
        raise ConfigError(str(missing)) from missing
    return (options.external_agent, *options.agent_arguments)


def _of_our_agent(options: Options) -> str:
    """Return the first option of the command line that only our own agent can follow; empty if there is none."""
    headless = options.headless
    given = {
        "--model": options.model,
        "--base-url": options.base_url,
        "--thinking": options.thinking,
        "--no-thinking": options.thinking is False,
        "--add-dir": options.added,
        "--max-steps": headless is not None and headless.max_steps,
        "--max-tokens": headless is not None and headless.max_tokens,
        "--max-cost": headless is not None and headless.max_cost,
    }
    return next((name for name, value in given.items() if value), "")


def _not_theirs(option: str, agent: str) -> str:
    """Say that an external agent does not follow an option."""
    from kimi_tui.external.agents import title_of

    return (
        f"{option} works only with kimi-tui's own agent, and this session uses {title_of(agent)}. "
        "Give the agent options of its own after --, or change its settings with /external-agent."
    )


def _agent_of_session(session: str | None, work_dir: Path) -> tuple[str, ...]:
    """Return the external agent of a stored session (None for the newest of the folder); empty if it has none, or is not found."""
    from kimi_tui.app_paths import data_dir
    from kimi_tui.session.errors import SessionError
    from kimi_tui.session.metadata import read_state
    from kimi_tui.session.store import SessionStore

    store = SessionStore(data_dir())
    try:
        found = store.newest(work_dir) if session is None else store.find(session, work_dir)
    except (SessionError, OSError):
        return ()
    stored = "" if found is None else read_state(found.dir).external_agent
    return (stored,) if stored else ()


def _given(
    options: Options, choice: ModelChoice | NeedsChoice, here: FolderModel | None
) -> dict[str, GivenValue]:
    """Return the settings for which arguments, the environment and the choice for the folder override the configuration."""
    found: dict[str, GivenValue] = {}
    if here is not None:
        if here.model:
            found["default_model"] = GivenValue(here.model, "this folder")
        if here.thinking:
            found["default_thinking"] = GivenValue(here.thinking, "this folder")
    if options.yolo:
        found["mode"] = GivenValue("all", "--yolo")
    elif options.plan:
        found["mode"] = GivenValue("plan", "--plan")
    elif options.mode:
        found["mode"] = GivenValue(options.mode, "--mode")
    if options.no_sandbox:
        found["sandbox.enabled"] = GivenValue("off", "--no-sandbox")
    if options.thinking is not None:
        on = options.thinking
        found["default_thinking"] = GivenValue(
            *(("on", "--thinking") if on else ("off", "--no-thinking"))
        )
    variable = "KIMI_MODEL_NAME"
    if source := "--model" if options.model else variable if os.environ.get(variable) else "":
        found["default_model"] = GivenValue(choice.model, source)
    return found


def _lost_model(
    options: Options, config: Config, here: FolderModel | None, choice: ModelChoice | NeedsChoice
) -> str:
    """Say that the model of this folder is gone from the configuration; empty if it is there, or if another one is requested."""
    if here is None or here.model in ("", *config.models) or options.model or options.base_url:
        return ""
    if not isinstance(choice, ModelChoice) or os.environ.get("KIMI_MODEL_NAME"):
        return ""
    return f"{here.model[:80]}, which this folder uses, is no longer in the configuration. {choice.model} is used instead."


def _mode(options: Options, config: Config) -> "Mode":
    # There is no user to ask: the demo's folder is a temporary one, and its commands are known.
    if options.yolo or options.play:
        return "all"
    if options.plan:
        return "plan"
    if options.mode:
        return options.mode
    return "ask" if options.demo else cast("Mode", config.mode or "sandboxed")


def _config(path: Path) -> Config:
    """Read this program's configuration, or kimi-cli's if there is none."""
    if path.exists():
        return read_config(path)
    return read_config(kimi_cli_config_file())


FOLDER_GONE = "The current folder no longer exists."


def _added(given: str) -> Path:
    path = expanded(given).absolute()
    if not path.is_dir():
        raise ConfigError(f'--add-dir: there is no folder "{given}"')
    return path


def _work_dir(given: str | None) -> Path:
    try:
        path = expanded(given) if given else Path.cwd()
        resolved = path.resolve(strict=True)
    except FileNotFoundError as error:
        if not given:
            raise ConfigError(
                f"{FOLDER_GONE} Change to another folder with cd, or name one with --work-dir."
            ) from error
        raise ConfigError(f'--work-dir: there is no folder "{given}"') from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--work-dir: {given or '.'} cannot be opened: {error}") from error
    if not resolved.is_dir():
        raise ConfigError(f"--work-dir: {given} is not a folder")
    return resolved


class CannotOpen(Exception):
    """The requested session cannot be opened. `code` is the exit code if nothing else can be done."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DiskRefuses(CannotOpen):
    """The disk refuses to read or write data that the session needs; a retry may succeed."""


class NoModelNamed(CannotOpen):
    """A server was named without a model. `listed` is false if the server does not list its models either."""

    def __init__(self, message: str, code: int, *, listed: bool) -> None:
        super().__init__(message, code)
        self.listed = listed


class ModelRefused(CannotOpen):
    """The chosen model cannot be used as it is configured, for example because its key would cross a network unencrypted."""
