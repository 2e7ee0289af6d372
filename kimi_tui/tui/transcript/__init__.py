"""The transcript: the conversation as one widget that draws only what is visible, over the blocks of `projection`."""

from __future__ import annotations
