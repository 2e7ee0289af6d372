"""`EditorSession`: one open session that an editor drives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from acp import RequestError, helpers, schema

from kimi_tui.acp import forms
from kimi_tui.acp.approvals import ChosenAnswer, answer_of, contents, options
from kimi_tui.acp.messages import BadPrompt, Block, prompt_of
from kimi_tui.acp.travel import COMMANDS, EditorCommand, EditorTravel
from kimi_tui.acp.updates import Update, Updates, remark
from kimi_tui.agent_parts import MODE_TITLES, UNASKED, Mode
from kimi_tui.app_paths import config_dir, data_dir, home_dir
from kimi_tui.base_url import origin_of
from kimi_tui.config.custom_commands import CustomCommand, custom_commands, were_shown
from kimi_tui.config.model_choice import ModelChoice, Overrides, choose_model
from kimi_tui.config.settings import ConfigError
from kimi_tui.display_names import sentences
from kimi_tui.foreign_text import one_line
from kimi_tui.images import Image
from kimi_tui.launch import CannotOpen
from kimi_tui.llm.dialects import DEFAULT
from kimi_tui.llm.errors import LLMError
from kimi_tui.soul.errors import BudgetSpent, MaxStepsReached, RunCancelled, SoulBusy
from kimi_tui.soul.kimisoul import TURN_ERRORS, KimiSoul
from kimi_tui.soul.opening import provider_of
from kimi_tui.soul.skills import folders_above
from kimi_tui.tools.sandbox.policy import NoSandbox
from kimi_tui.wire import events as ev

if TYPE_CHECKING:
    from pathlib import Path

    from acp import Client

    from kimi_tui.launch import Launch
    from kimi_tui.soul.model_slot import Spent
    from kimi_tui.soul.opening import Opened

log = logging.getLogger(__name__)

MODE, MODEL, THINKING = "mode", "model", "thinking"
"""The ids of the options that an editor can set."""
_FILE_PATIENCE_S = 2.0
"""Seconds for the editor to give the text of a file, before the file on the disk is read."""
_MOST_COMMANDS = 100


class EditorSession:
    """A session with its engine, an editor, and a task that tells the editor what happens.

    Args:
        client: the editor.
        launch: the options of the session.
        opened: the session.
        reads_files: whether the editor gives the text of files, which may not be saved.
        shows_forms: whether the editor shows forms.

    Attributes:
        soul: the engine.
    """

    def __init__(
        self,
        client: Client,
        launch: Launch,
        opened: Opened,
        *,
        reads_files: bool,
        shows_forms: bool = False,
    ) -> None:
        self.soul: KimiSoul = opened.soul
        self._client = client
        self._shows_forms = shows_forms
        self._launch = launch
        self._notices = opened.notices
        self._updates = Updates(str(opened.folder))
        self._work_dir = str(opened.folder)
        self._travel = EditorTravel(self.soul, self._choose)
        self._custom: dict[str, CustomCommand] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._seen = 0
        self._news = asyncio.Event()
        self._told: dict[str, object] = {}
        self._is_cancelled = False
        self._choosing: asyncio.Future[str] | None = None
        if reads_files:
            self.soul.use_unsaved(self._unsaved)
        self._following = asyncio.create_task(
            self._follow(self.soul.wire.subscribe()), name="tell the editor"
        )

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.soul.session.id

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said in it and nothing runs."""
        return not (self.soul.running or self.soul.session.context.n_checkpoints)

    # -- beginning ---------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Tell the editor the conversation of the current world line."""
        past = Updates(self._work_dir, past=True)
        # Rewound messages are on world lines; the agent does not have them, so the editor is not shown them either.
        for record in await self.soul.lines.read(0):
            for update in past.of(record.event):
                await self._send(update)

    def begin(self) -> None:
        """Tell the editor, after it has the answer to its request, what it can do here. Call it last."""
        self._begin(self._introduce())
        self._begin(self.soul.prepare_model())

    async def _introduce(self) -> None:
        self._custom = await asyncio.to_thread(self._find_custom, self.soul.session.work_dir)
        known = {
            **COMMANDS,
            **{one.name: EditorCommand(one.help, one.argument) for one in self._custom.values()},
        }
        await self._send(
            helpers.update_available_commands(
                schema.AvailableCommand(
                    name=name,
                    description=command.help or name,
                    input=schema.AvailableCommandInput(
                        root=schema.UnstructuredCommandInput(hint=command.hint)
                    )
                    if command.hint
                    else None,
                )
                for name, command in list(known.items())[:_MOST_COMMANDS]
            )
        )
        for words in self._notices:
            await self._send(remark(words))
        await self._tell_usage()

    @staticmethod
    def _find_custom(work_dir: Path) -> dict[str, CustomCommand]:
        """Return the person's own commands and skills, and those of the folder that they have allowed. It reads files."""
        allowed = set(were_shown(data_dir()))
        every = custom_commands(work_dir, config_dir(), home_dir(), folders_above(work_dir))
        return {
            one.name: one
            for one in every
            if one.for_user
            and one.name not in COMMANDS
            and (one.origin == "user" or one.digest in allowed)
        }

    # -- turns -------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[Block]) -> schema.PromptResponse:
        """Run a turn, or a command; a prompt during a turn goes into it.

        Raises:
            RequestError: the prompt cannot be sent, or the turn failed; the message is for the person.
        """
        try:
            said = await asyncio.to_thread(prompt_of, blocks, self._work_dir)
        except BadPrompt as bad:
            raise _refused(str(bad)) from bad
        self._is_cancelled = False
        text = said.text
        word, _, argument = text.partition(" ")
        if word.startswith("/") and not said.images:
            name = word[1:].strip()
            if name in COMMANDS:
                return await self._command(name, argument.strip())
            if name in self._custom:
                text = self._custom[name].with_arguments(argument.strip())
        if not (text or said.images or said.embedded):
            raise _refused("The message is empty.")
        before = self.soul.spent
        reason = await self._turn(text, said.images, said.embedded)
        await self._caught_up()
        await self._tell_usage()
        return schema.PromptResponse(
            stop_reason=reason, usage=_usage(self.soul.spent.since(before))
        )

    async def _turn(self, text: str, images: Sequence[Image], embedded: str) -> schema.StopReason:
        soul = self.soul
        try:
            if soul.running:
                # The answer belongs to the turn that takes the message in.
                soul.say(f"{text}\n\n{embedded}".strip(), images)
                while soul.running:
                    self._news.clear()
                    await self._news.wait()
                return "cancelled" if self._is_cancelled else "end_turn"
            await soul.run(text, images, piped=embedded, piped_as="attached in the editor")
        except RunCancelled:
            return "cancelled"
        except (MaxStepsReached, BudgetSpent) as limit:
            await self._caught_up()
            await self._send(remark(sentences(limit.message, limit.advice)))
            return "max_turn_requests"
        except TURN_ERRORS as error:
            if self._is_cancelled:
                return "cancelled"
            raise RequestError(-32603, sentences(error.message, error.advice)) from error
        except SoulBusy as busy:
            raise _refused(str(busy)) from busy
        return "end_turn"

    async def _command(self, name: str, argument: str) -> schema.PromptResponse:
        words = await self._travel.run(name, argument)
        await self._caught_up()
        if words:
            await self._send(helpers.update_agent_message_text(words))
        await self._tell_usage()
        stopped = self._is_cancelled
        return schema.PromptResponse(stop_reason="cancelled" if stopped else "end_turn")

    async def cancel(self) -> None:
        """Stop the turn, the command or the question under way; what is complete is kept."""
        self._is_cancelled = True
        if self._choosing is not None and not self._choosing.done():
            self._choosing.set_result("")
        await self.soul.interrupt()

    # -- options -----------------------------------------------------------------------------------

    def modes(self) -> schema.SessionModeState:
        """Return the modes, for editors without options."""
        return schema.SessionModeState(
            current_mode_id=self.soul.mode,
            available_modes=[
                schema.SessionMode(id=mode, name=title, description=UNASKED[mode])
                for mode, title in MODE_TITLES.items()
            ],
        )

    def options(self) -> list[Any]:
        """Return the options with their values: mode, model, and thinking where the model has a choice."""
        found = [
            schema.SessionConfigOptionSelect(
                type="select",
                id=MODE,
                name="Mode",
                description="What the agent may do without asking",
                category="mode",
                current_value=self.soul.mode,
                options=[
                    schema.SessionConfigSelectOption(
                        value=mode, name=title, description=UNASKED[mode]
                    )
                    for mode, title in MODE_TITLES.items()
                ],
            )
        ]
        models = self._models()
        found.append(
            schema.SessionConfigOptionSelect(
                type="select",
                id=MODEL,
                name="Model",
                category="model",
                current_value=self._model(),
                options=[
                    schema.SessionConfigSelectOption(value=value, name=name)
                    for value, name in models.items()
                ],
            )
        )
        facts = self.soul.model_facts
        if facts.choices:
            # Without a setting nothing is sent, and the model thinks or not by its own default.
            current = facts.setting or DEFAULT
            values = dict.fromkeys((DEFAULT, *facts.choices, current))
            found.append(
                schema.SessionConfigOptionSelect(
                    type="select",
                    id=THINKING,
                    name="Reasoning effort",
                    category="thought_level",
                    current_value=current,
                    options=[
                        schema.SessionConfigSelectOption(value=one, name=one) for one in values
                    ],
                )
            )
        return found

    def _models(self) -> dict[str, str]:
        """Return the configured models, and the one in use if it is none of them: their names by the values of the option."""
        found = {name: name for name in self._launch.config.models}
        return found if self._model() in found else {self._model(): self._model(), **found}

    def _model(self) -> str:
        in_use, choice = self.soul.model_name, self._launch.choice
        there = origin_of(choice.base_url) if isinstance(choice, ModelChoice) else ""
        config = self._launch.config
        default = config.default_model
        # Two servers can have a model of the same name.
        names = [
            name
            for name, model in config.models.items()
            if model.model == in_use
            and origin_of(config.providers[model.provider].base_url) == there
        ]
        return default if default in names else next(iter(names), in_use)

    async def set_option(self, name: str, value: str) -> None:
        """Set one option.

        Raises:
            RequestError: there is no such option or value, or it cannot be used now.
        """
        if name == MODE:
            await self.set_mode(value)
        elif name == MODEL:
            await self._use_model(value)
        elif name == THINKING:
            try:
                self.soul.set_thinking(value)
            except LLMError as error:
                raise _refused(sentences(error.message, error.advice)) from error
        else:
            raise _refused(f'There is no option "{one_line(name)[:40]}".')

    async def set_mode(self, value: str) -> None:
        """Set what the agent may do without asking.

        Raises:
            RequestError: there is no such mode, or no sandbox for it.
        """
        if value not in get_args(Mode):
            raise _refused(f'There is no mode "{one_line(value)[:40]}".')
        try:
            await self.soul.set_mode(cast("Mode", value))
        except NoSandbox as no:
            raise _refused(f"The mode was not changed. {no}") from no

    async def _use_model(self, name: str) -> None:
        if name == self._model():
            return
        if name not in self._launch.config.models:
            raise _refused(f'There is no model "{one_line(name)[:80]}" in the configuration.')
        try:
            # The variables of the environment were for the model of the start.
            choice = choose_model(self._launch.config, Overrides(model=name), {})
            if not isinstance(choice, ModelChoice):
                raise ConfigError(
                    f"There is no API key for {name}. Run kimi-tui in a terminal to add one."
                )
            launch = self._launch._replace(choice=choice)
            provider = await provider_of(launch, self.id)
        except (ConfigError, CannotOpen) as error:
            raise _refused(str(error)) from error
        except LLMError as error:
            raise _refused(sentences(error.message, error.advice)) from error
        self._launch = launch
        self.soul.set_provider(provider)
        self._begin(self.soul.prepare_model())

    # -- telling the editor ------------------------------------------------------------------------

    async def _follow(self, records: Any) -> None:
        try:
            async for record in records:
                if not record.source:
                    await self._tell(record.event)
                self._seen = record.seq
                self._news.set()
        except ConnectionError:
            # The editor is gone: nobody answers, and the turn must not run on unseen.
            await self.soul.interrupt()

    async def _tell(self, event: ev.Event) -> None:
        for update in self._updates.of(event):
            await self._send(update)
        match event:
            case ev.ApprovalRequest() as request:
                task = asyncio.create_task(self._ask(request), name="ask the editor")
                self._asking[request.id] = task
            case ev.ApprovalResolved(id=request_id) if request_id in self._asking:
                task = self._asking.pop(request_id)
                if not task.done() and self._is_cancelled:
                    task.cancel()
            case ev.ModeChanged(mode):
                await self._send(helpers.update_current_mode(mode))
                await self._tell_options()
            case ev.ModelChanged():
                await self._tell_options()
            case ev.StepBegin() | ev.TurnEnd() | ev.LineChanged():
                await self._tell_usage()
            case _:
                pass

    async def _tell_options(self) -> None:
        found = self.options()
        if self._told.get("options") != found:
            self._told["options"] = found
            await self._send(
                schema.ConfigOptionUpdate(
                    session_update="config_option_update", config_options=found
                )
            )

    async def _tell_usage(self) -> None:
        status, cost = self.soul.status, self.soul.cost
        if status.limit <= 0:
            return
        update = schema.UsageUpdate(
            session_update="usage_update",
            used=max(0, status.used),
            size=status.limit,
            cost=schema.Cost(amount=cost.amounts[0][1], currency=cost.amounts[0][0])
            if cost is not None and len(cost.amounts) == 1
            else None,
        )
        if self._told.get("usage") != update:
            self._told["usage"] = update
            await self._send(update)

    async def _send(self, update: Update) -> None:
        await self._client.session_update(self.id, update)

    async def _caught_up(self) -> None:
        """Wait until the editor was told everything that has happened."""
        newest = self.soul.wire.newest_seq
        while self._seen < newest and not self._following.done():
            self._news.clear()
            await self._news.wait()

    # -- questions ---------------------------------------------------------------------------------

    async def _ask(self, request: ev.ApprovalRequest) -> None:
        """Have the person answer a request; without an answer it is a no."""
        said = answer_of(request, "")
        call = request.key or f"question-{request.id}"
        try:
            if not self._updates.knows(call):
                who = f"{request.agent}: " if request.agent else ""
                title = one_line(f"{who}{request.question}")[:200]
                await self._send(helpers.start_tool_call(call, title, status="pending"))
            said = await self._answer(request, call)
            if not request.key:
                await self._send(helpers.update_tool_call(call, status="completed"))
        except (RequestError, ConnectionError) as error:
            log.warning("the editor did not answer a question: %s", type(error).__name__)
        finally:
            self.soul.answer(request.id, said.answer, said.feedback)

    async def _answer(self, request: ev.ApprovalRequest, call: str) -> ChosenAnswer:
        """Return the person's answer to a request: by a form where one choice cannot say it, if the editor shows forms."""
        if self._shows_forms and request.kind == "question":
            with contextlib.suppress(RequestError):
                content = await forms.filled(self._client, self.id, forms.question_form(request))
                if content is None:
                    return answer_of(request, "")
                return forms.question_answer(request, content)
        written = forms.written_options(request) if self._shows_forms else []
        offered = options(request)
        for name, words in written:
            is_no = name == "why"
            option = schema.PermissionOption(
                option_id=name, name=words, kind="reject_once" if is_no else "allow_once"
            )
            # Each yes comes before the no, as in the app.
            offered.insert(len(offered) if is_no else -1, option)
        found = await self._client.request_permission(
            session_id=self.id,
            tool_call=self._updates.asked(
                call,
                contents(request, self._work_dir),
                "" if request.kind == "tool" and request.key else one_line(request.question),
            ),
            options=offered,
        )
        if not isinstance(found.outcome, schema.AllowedOutcome):
            return answer_of(request, "")
        chosen = found.outcome.option_id
        for name, _ in written:
            if name == chosen:
                form = forms.written_form(request, name)
                return forms.written_answer(name, await forms.filled(self._client, self.id, form))
        return answer_of(request, chosen)

    async def _choose(self, title: str, text: str, answers: Sequence[tuple[str, str]]) -> str:
        """Ask the person which of these to do; return its value, empty for none of them or a cancelled command."""
        call = f"command-{self.soul.wire.newest_seq}"
        await self._send(helpers.start_tool_call(call, title, kind="other", status="pending"))
        permission = asyncio.create_task(
            self._client.request_permission(
                session_id=self.id,
                tool_call=schema.ToolCallUpdate(
                    tool_call_id=call,
                    title=title,
                    content=[helpers.tool_content(helpers.text_block(text))],
                ),
                options=[
                    *(
                        schema.PermissionOption(option_id=value, name=words, kind="allow_once")
                        for value, words in answers
                    ),
                    schema.PermissionOption(
                        option_id="no", name="Change nothing", kind="reject_once"
                    ),
                ],
            )
        )
        cancelled = self._choosing = asyncio.get_running_loop().create_future()
        chosen = ""
        try:
            await asyncio.wait({permission, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if permission.done() and not self._is_cancelled:
                outcome = permission.result().outcome
                chosen = outcome.option_id if isinstance(outcome, schema.AllowedOutcome) else ""
        except (RequestError, ConnectionError) as error:
            log.warning("the editor did not answer a question: %s", type(error).__name__)
        finally:
            permission.cancel()
            self._choosing = None
        is_done = chosen not in ("", "no")
        await self._send(
            helpers.update_tool_call(call, status="completed" if is_done else "failed")
        )
        return chosen if is_done else ""

    async def _unsaved(self, path: str) -> str | None:
        """Return the text of a file in the editor; None if it does not say."""
        with contextlib.suppress(RequestError, ConnectionError, TimeoutError):
            async with asyncio.timeout(_FILE_PATIENCE_S):
                found = await self._client.read_text_file(session_id=self.id, path=path)
            return found.content
        return None

    # -- end ---------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        async def guarded() -> None:
            with contextlib.suppress(ConnectionError):
                await work

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop what runs, save, and close the session."""
        for task in (*self._asking.values(), *self._tasks):
            task.cancel()
        await self.soul.aclose()
        await self._following


def _refused(words: str) -> RequestError:
    """Return the error for a request that cannot be carried out, with a sentence for the person."""
    return RequestError(-32602, words)


def _usage(spent: Spent) -> schema.Usage:
    return schema.Usage(
        total_tokens=spent.tokens,
        input_tokens=spent.input - spent.cached,
        output_tokens=spent.output,
        cached_read_tokens=spent.cached,
    )
