"""What the result of a tool call says that the user stopped.

Apart from the results themselves, so that who only reads the record of a session need not wait for pydantic.
"""

from __future__ import annotations

INTERRUPTED = "The user stopped this call before it ended. It may have taken effect in part: look before you rely on it."
NOT_BEGUN = "Not run: the user stopped the agent before this call began."
