"""The least that a Textual app which talks to a model can hold: what the memory of the program is compared with."""

from __future__ import annotations

import openai
import pydantic

from bench.bare_prompt import BarePrompt

LOADED = (openai.AsyncOpenAI, pydantic.BaseModel)
"""The modules are named here, so that Python loads both of them and does not only find them."""

if __name__ == "__main__":
    BarePrompt().run()
