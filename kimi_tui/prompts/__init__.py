"""The text that the model reads: Markdown files beside this module, and `prompt`, which fills in their places.

A place is written `${NAME}`; what is filled in is taken as it is and never read as a template again. Those texts by which
stored messages and results are known again stand here: who reads sessions need not read a file for them.
"""

from __future__ import annotations

import re
from functools import cache
from string import Template

CHECKPOINT_MARKER = re.compile(r"\s*<system>CHECKPOINT (\d{1,9})</system>\s*")
"""The whole text of a user message that names a checkpoint to the model; group 1 is the checkpoint's id."""

COMPACTION_START = (
    "<system>Previous context has been compacted. Here is the compaction output:</system>"
)
"""The beginning of the user message that stands for everything a compaction took."""

INTERRUPTED = "The user stopped this call before it ended. It may have taken effect in part: look before you rely on it."
"""The result of a tool call that the user stopped."""
NOT_BEGUN = "Not run: the user stopped the agent before this call began."
"""The result of a tool call that had not begun when the user stopped."""
CUT_OFF = "Not run: the answer broke off before this call began."
"""The result of a tool call in an answer that broke off."""
KILLED = "kimi-tui exited during the answer."
"""Why an answer broke off that was being written when the program was killed."""


@cache
def _template(name: str) -> Template:
    # This is imported with the first prompt: a list of sessions needs none.
    from importlib.resources import files

    return Template(files("kimi_tui.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))


def prompt(name: str, **values: str) -> str:
    """Return one prompt, ready to be sent.

    Args:
        name: the file's name without `.md`.
        values: the text for each place of the file.

    Returns:
        The text without blanks at its ends.

    Raises:
        KeyError: a place has no value: a mistake in the program.
    """
    return _template(name).substitute(values).strip()
