"""Results of calls that the user refused or stopped are known again, also as older versions stored them."""

from __future__ import annotations

import pytest

from kimi_tui.soul.tool_results import (
    INTERRUPTED,
    NOT_BEGUN,
    NOT_RUN,
    REJECTED,
    never_ran,
    outcome_of,
    rejection,
    tool_message,
    was_stopped,
)
from kimi_tui.tools.base import ToolOutcome
from kimi_tui.tools.shell import command_that_ran


@pytest.mark.parametrize("user", ["user", "person"])
def test_what_the_user_did_to_a_call_is_read_back(user: str) -> None:
    def read(text: str) -> ToolOutcome:
        stored = ToolOutcome(message=text.replace("user", user), is_error=True)
        return outcome_of(tool_message("c", stored))

    refused = [REJECTED, rejection("no").message, NOT_RUN]
    assert [(never_ran(read(one)), was_stopped(read(one))) for one in refused] == [
        (True, False)
    ] * 3
    assert (never_ran(read(NOT_BEGUN)), was_stopped(read(NOT_BEGUN))) == (True, True)
    assert (never_ran(read(INTERRUPTED)), was_stopped(read(INTERRUPTED))) == (False, True)
    said = f"Exit 0.\nThe {user} changed the command before it ran. What ran is:\nls -a"
    assert command_that_ran("ls", said) == "ls -a"
    assert command_that_ran("ls", "Exit 0.") == "ls"
