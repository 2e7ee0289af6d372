"""The text that the model reads: Markdown files beside this module, and `prompt`, which fills in their places.

A place is written `${NAME}`; what is filled in is taken as it is and never read as a template again.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


@cache
def _template(name: str) -> Template:
    return Template(files("kimi_tui.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))


def prompt(name: str, **values: str) -> str:
    """One prompt, ready to be sent.

    Args:
        name: the file's name without `.md`.
        values: what stands in each place of the file.

    Returns:
        The text without blanks at its ends.

    Raises:
        KeyError: a place has no value: a mistake in the program.
    """
    return _template(name).substitute(values).strip()
