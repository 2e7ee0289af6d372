"""The least that a Textual app which talks to a model can hold: what the memory of the program is compared with."""

from __future__ import annotations

import openai
import pydantic

from bench.bare_prompt import BarePrompt

LOADED = (openai.AsyncOpenAI, pydantic.BaseModel)
"""Named, so that both are loaded and not only found."""

if __name__ == "__main__":
    BarePrompt().run()
