"""Events to the JSON of `wire.jsonl` and back: the two halves under one name.

The shapes are kimi-cli's where it has them; `encoder` says which, `decoder` reads both.
"""

from __future__ import annotations

from kimi_tui.wire.decoder import Decoder
from kimi_tui.wire.encoder import encode, encode_record

__all__ = ["Decoder", "encode", "encode_record"]
