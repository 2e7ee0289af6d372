"""Commands about what runs in the background: list it, look at its output, stop it; and send there what is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_tui.tools.jobs import Job
    from kimi_tui.tui.main.screen import MainScreen

HOW_TO_USE = "/jobs output N shows what one printed, /jobs stop N ends it."
_OUTPUT_ROWS = 500


async def jobs(screen: MainScreen, argument: str) -> None:
    """List the jobs, stop one, or show what it printed last."""
    soul = await screen.conversation.opened()
    verb, _, number = argument.partition(" ")
    if verb not in ("", "stop", "output") or bool(verb) != number.strip().isdecimal():
        screen.tell(f"There is no /jobs {argument[:20]}: stop N or output N.", level="warning")
        return
    if not soul.jobs:
        screen.tell("Nothing runs in the background, and nothing did.")
        return
    from kimi_tui.tui.dialogs.statistics import StatisticsScreen

    if not verb:
        pairs = [(str(job.id), _words(job)) for job in soul.jobs]
        await screen.ask(StatisticsScreen("Jobs", HOW_TO_USE, pairs))
        return
    job = next((one for one in soul.jobs if one.id == int(number[:9])), None)
    if job is None:
        screen.tell(f"There is no job {number[:9]}.", level="warning")
    elif verb == "output":
        rows = job.tail.text.rstrip("\n").split("\n")[-_OUTPUT_ROWS:]
        await screen.ask(
            StatisticsScreen(f"Job {job.id}", _words(job), [("", row) for row in rows])
        )
    elif job.ended:
        screen.tell(f"Job {job.id} has ended already.")
    else:
        await soul.stop_job(job.id)


async def background(screen: MainScreen, argument: str) -> None:
    """Have the agent go on while the command that it waits for runs in the background."""
    soul = await screen.conversation.opened()
    if not soul.move_to_background():
        screen.tell("The agent waits for no command now.")


def _words(job: Job) -> str:
    from kimi_tui.foreign_text import one_line
    from kimi_tui.tui.formatting import duration

    outcome = job.outcome
    state = "runs for" if outcome is None else f"{outcome.brief} after"
    return f"{state} {duration(job.ran_s)}: {one_line(job.command)}"
