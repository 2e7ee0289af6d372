"""The literal beginnings by which the program's own words among the user messages are told from what somebody said.

Apart from the messages themselves, so that who only looks at records of a session need not wait for pydantic.
"""

from __future__ import annotations

import re

CHECKPOINT_MARKER = re.compile(r"\s*<system>CHECKPOINT (\d{1,9})</system>\s*")
"""The whole text of a user message that names a checkpoint to the model; group 1 is the checkpoint's id."""

COMPACTION_START = (
    "<system>Previous context has been compacted. Here is the compaction output:</system>"
)
"""How the user message begins that stands for everything a compaction took."""
