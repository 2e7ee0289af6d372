"""Builds requests: turns stored messages into messages that the server accepts, and makes the body of one request.

The stored messages are not changed; the messages to send are valid for every server: one system message first, no two
messages of one role in a row, no call without result and no result without call, nothing null, nothing empty, no lone
surrogate. Reasoning goes back only to the family of models that wrote it, in the field that the dialect names. Schemas of
tools have one plain form that every provider takes (some servers refuse references, a type beside a union, tuples or `const`,
and titles only cost tokens), or the flavour that a dialect wants. The body is the smallest that a server takes, plus what its
dialect requires.

The functions are pure, and a `RequestBuilder` makes the same as they do, but for a conversation that grows only what is new of it.
They take milliseconds for a long conversation, so call them in a thread.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any, cast

from kimi_tui import lenient_json
from kimi_tui.lenient_json import without_surrogates
from kimi_tui.llm import tokens
from kimi_tui.llm.dialects import REASONING_FIELDS, UNSET, Dialect, family
from kimi_tui.llm.message import (
    ImagePart,
    Message,
    TextPart,
    ThinkPart,
)
from kimi_tui.llm.provider import ToolSpec
from kimi_tui.prompts import CHECKPOINT_MARKER, COMPACTION_START

if TYPE_CHECKING:
    from kimi_tui.llm.message import ContentPart, ToolCall


def _reasoning_fields(
    message: Message, dialect: Dialect, provider: str, model: str
) -> dict[str, Any]:
    """Return the fields to add to a sent assistant message. A field named "" holds a prefix of its text (think tags)."""
    if dialect.reasoning == "never":
        return {}
    # A server has no use for an interrupted thought, whose signature is missing.
    parts = [] if message.interrupted else _own(message, dialect, provider, model)
    if dialect.reasoning == "reasoning_details":
        details = [entry for part in parts for entry in part.details or ()]
        if details:
            return {"reasoning_details": details}
    words = without_surrogates("".join(part.think for part in parts))
    if words or (parts and dialect.reasoning_missing is None):
        name = _field(parts, dialect)
        if name == "think_tag":
            return {"": f"<think>\n{words.strip()}\n</think>\n\n"} if words.strip() else {}
        return {name: words}
    if dialect.reasoning_missing is None:
        return {}
    if not message.tool_calls and not dialect.reasoning_missing_everywhere:
        return {}
    name = dialect.reasoning if dialect.reasoning != "as_came" else "reasoning_content"
    return {name: dialect.reasoning_missing}


def _own(message: Message, dialect: Dialect, provider: str, model: str) -> list[ThinkPart]:
    """Return the parts of reasoning that this provider's family of models wrote."""
    own: list[ThinkPart] = []
    for part in message.parts:
        if not isinstance(part, ThinkPart):
            continue
        if part.provider is None:
            # Sessions of kimi-cli do not say which model wrote the reasoning; mostly it was one of Moonshot's.
            if dialect.name == "moonshot":
                own.append(part)
        elif part.provider == provider and family(part.model or "") == family(model):
            own.append(part)
    return own


def _field(parts: list[ThinkPart], dialect: Dialect) -> str:
    came = next((part.field for part in parts if part.field), None) or "reasoning_content"
    if dialect.reasoning == "as_came":
        return "reasoning" if came in {"reasoning_details", "thinking"} else came
    if dialect.reasoning == "reasoning_details":
        return "reasoning"
    return dialect.reasoning


Sent = dict[str, Any]

INTERRUPTED_RESULT = "The call was interrupted; there is no result."
_NO_OUTPUT = "(no output)"
BRIDGE = "I see the results."
GO_ON = "Please go on."
SUMMARY_READ = "I have read the summary."
ANSWERED = "I have answered this; what came of it is in the summary."
_IMAGES_OF_RESULTS = "Images of the results above:"
_MAX_ID = 40
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Recipient:
    """The model to which the messages are sent: it gets back only reasoning of its own provider and family."""

    provider: str
    model: str
    image_in: bool = True


@dataclass(slots=True)
class _Step:
    """One assistant message with its calls, their results, and the user messages between the results."""

    message: Message
    number: int
    results: list[Message] = field(default_factory=list[Message])
    said_after: list[Message] = field(default_factory=list[Message])


def sent_messages(
    system: str, history: Sequence[Message], dialect: Dialect, recipient: Recipient
) -> list[Sent]:
    """Return the messages to send for this history.

    Args:
        system: the system prompt; empty for none.
        history: the stored messages in order.
        dialect: the server's dialect, with learned quirks applied.
        recipient: the provider and model that get the messages.
    """
    sent: list[Sent] = []
    writer = _Writer(sent, dialect, recipient)
    writer.system(system, history)
    for item in _steps(history):
        if isinstance(item, _Step):
            writer.step(item)
        else:
            writer.user(item)
    writer.end()
    return sent


def _steps(history: Sequence[Message], first: int = 0) -> Iterator[_Step | Message]:
    """Yield user messages unchanged, and assistant messages together with the results of their calls, from a message on."""
    step: _Step | None = None
    for number, message in enumerate(islice(history, first, None), first):
        if message.role == "assistant":
            if step is not None:
                yield from _closed(step)
            step = _Step(message, number)
        elif message.role == "tool":
            # A result that follows no call cannot be sent.
            if step is not None:
                step.results.append(message)
        elif message.role == "user":
            if step is None:
                yield message
            else:
                step.said_after.append(message)
    if step is not None:
        yield from _closed(step)


def _closed(step: _Step) -> Iterator[_Step | Message]:
    yield step
    yield from step.said_after


class _Writer:
    """Appends to the sent messages one by one, and joins neighbours of the same role."""

    def __init__(
        self, sent: list[Sent], dialect: Dialect, recipient: Recipient, reply: str = ""
    ) -> None:
        self._sent = sent
        self._dialect = dialect
        self._recipient = recipient
        self.reply = reply
        """The agent's answer to the newest message of the user, if another one follows."""

    def system(self, system: str, history: Sequence[Message]) -> None:
        """Write the one system message, with the texts of all that are stored."""
        systems = [system, *(message.text for message in history if message.role == "system")]
        if head := "\n\n".join(text for text in systems if text.strip()):
            self._sent.append({"role": "system", "content": without_surrogates(head)})

    # The user's messages, and those that the program wrote in the user's place.

    def user(self, message: Message) -> None:
        parts = self._user_parts(message)
        if not parts:
            return
        last = self._sent[-1] if self._sent else None
        role = last["role"] if last is not None else ""
        if last is not None and role == "tool" and _is_aside(message):
            last["content"] += "\n\n" + without_surrogates(message.text.strip())
            return
        if role == "user" and self.reply and not _is_aside(message):
            # The user's text must not be joined to a summary or to a message that is answered already, so an assistant
            # message separates them.
            self.step(_Step(Message(role="assistant", content=self.reply), 0))
            last, role = None, "assistant"
        self.reply = _reply_to(message) or (self.reply if _is_aside(message) else "")
        if last is not None and role == "user":
            last["content"] = _joined(last["content"], parts)
            return
        if role == "tool" and self._dialect.bridge:
            self._sent.append({"role": "assistant", "content": BRIDGE})
        self._sent.append({"role": "user", "content": _joined("", parts)})

    def _user_parts(self, message: Message) -> list[Sent]:
        found: list[Sent] = []
        for part in message.parts:
            sendable = self._sendable(part)
            if sendable is not None:
                found.append(sendable)
        return found

    def _sendable(self, part: ContentPart) -> Sent | None:
        if isinstance(part, TextPart):
            text = without_surrogates(part.text)
            return {"type": "text", "text": text} if text.strip() else None
        if isinstance(part, ImagePart):
            url = part.image_url.url
            if not self._recipient.image_in or not self._dialect.images:
                return {"type": "text", "text": "[an image that this model cannot see]"}
            if not url.startswith("data:"):
                return {"type": "text", "text": "[an image whose file is missing]"}
            return {"type": "image_url", "image_url": {"url": url}}
        return None

    # The model's messages, and the results of its tools.

    def step(self, step: _Step) -> None:
        self.reply = ""
        message = step.message
        calls = message.tool_calls or []
        ids = self._ids(calls, step.number)
        entry: Sent = {"role": "assistant"}
        text = without_surrogates(message.text)
        fields = _reasoning_fields(
            message, self._dialect, self._recipient.provider, self._recipient.model
        )
        text = fields.pop("", "") + text
        if text.strip():
            entry["content"] = text
        entry.update(fields)
        if calls:
            entry["tool_calls"] = [
                self._call(call, call_id, position)
                for position, (call, call_id) in enumerate(zip(calls, ids, strict=True))
            ]
        elif "content" not in entry:
            return  # an unfinished or failed turn without text leaves no empty message
        results, images = self._results(calls, ids, step.results)
        if self._dialect.single_calls and len(calls) > 1:
            self._one_by_one(entry, results)
        else:
            self._append_assistant(entry)
            self._sent += results
        self._show(images)

    def _one_by_one(self, entry: Sent, results: Sequence[Sent]) -> None:
        """Write a step of several calls as pairs of one call and its result; the text goes with the first call."""
        missing = self._dialect.reasoning_missing
        for position, (call, result) in enumerate(zip(entry["tool_calls"], results, strict=True)):
            one: Sent = {**entry} if position == 0 else {"role": "assistant"}
            if position and missing is not None:
                field = self._dialect.reasoning
                one["reasoning_content" if field == "as_came" else field] = missing
            self._append_assistant({**one, "tool_calls": [call]})
            self._sent.append(result)

    def _append_assistant(self, entry: Sent) -> None:
        last = self._sent[-1]["role"] if self._sent else "system"
        if last in {"system", "assistant"}:
            # Strict templates require a user message first, and between two answers. `end` sent the same text when the second
            # answer was asked for, so prompt caches still hit.
            self._sent.append({"role": "user", "content": GO_ON})
        self._sent.append(entry)

    def _call(self, call: ToolCall, call_id: str, position: int) -> Sent:
        arguments = without_surrogates(call.function.arguments or "")
        if not lenient_json.is_object(arguments):
            lost = arguments.strip()
            is_nothing = lost in ("", "null")
            arguments = "{}" if is_nothing else json.dumps({"not_json": lost}, ensure_ascii=False)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", call.function.name[:64]) or "unknown"
        sent: Sent = {
            "type": "function",
            "id": call_id,
            "function": {"name": name, "arguments": arguments},
        }
        if self._dialect.extra_content:
            extra = (call.extras or {}).get("extra_content")
            if extra:
                sent["extra_content"] = extra
            elif position == 0:
                # Gemini uses this signature for calls that another model made; only the first call of each step needs it.
                signature = {"thought_signature": "skip_thought_signature_validator"}
                sent["extra_content"] = {"google": signature}
        return sent

    def _ids(self, calls: Sequence[ToolCall], number: int) -> list[str]:
        """Return the ids of the calls, as stored if they can be sent so; they may repeat across steps but not within one."""
        ids: list[str] = []
        came: set[str] = set()
        for position, call in enumerate(calls):
            call_id = without_surrogates(call.id)
            if not call_id or call_id in came:
                call_id = f"call_{number}_{position}"
            came.add(call_id)
            if self._dialect.short_ids:
                call_id = _short_id(f"{number}/{position}/{call_id}")
            elif len(call_id) > _MAX_ID or call_id in ids:
                digest = hashlib.sha256(f"{number}/{position}/{call_id}".encode()).hexdigest()
                call_id = f"call_{digest[:32]}"
            ids.append(call_id)
        return ids

    def _results(
        self, calls: Sequence[ToolCall], ids: Sequence[str], results: Sequence[Message]
    ) -> tuple[list[Sent], list[Sent]]:
        """Return a result for each call in order (matched by id if ids are unique, else by position), and the images of the results."""
        left = list(results)
        chosen: list[Message | None] = [None] * len(calls)
        for position, call in enumerate(calls):
            found = next((one for one in left if call.id and one.tool_call_id == call.id), None)
            if found is not None:
                chosen[position] = found
                left.remove(found)
        known = {call.id for call in calls if call.id}
        for position, message in enumerate(chosen):
            strays = [one for one in left if one.tool_call_id not in known]
            if message is None and strays:
                chosen[position] = strays[0]
                left.remove(strays[0])
        sent: list[Sent] = []
        images: list[Sent] = []
        for call_id, message in zip(ids, chosen, strict=True):
            text = INTERRUPTED_RESULT
            if message is not None:
                parts = self._user_parts(message)
                text = (
                    "\n".join(one["text"] for one in parts if one["type"] == "text") or _NO_OUTPUT
                )
                images += [one for one in parts if one["type"] == "image_url"]
            sent.append({"role": "tool", "tool_call_id": call_id, "content": text})
        return sent, images

    def _show(self, images: list[Sent]) -> None:
        """Write the images of tool results as a user message, as tool messages accept none."""
        if images:
            if self._dialect.bridge:
                self._sent.append({"role": "assistant", "content": BRIDGE})
            shown: list[Sent] = [{"type": "text", "text": _IMAGES_OF_RESULTS}, *images]
            self._sent.append({"role": "user", "content": shown})

    def end(self) -> None:
        """Ensure that a user message or a tool result comes last: some servers would continue the last answer."""
        if self._sent and self._sent[-1]["role"] in {"assistant", "system"}:
            self._sent.append({"role": "user", "content": GO_ON})


def _is_aside(message: Message) -> bool:
    """Return whether the program wrote this message, and not the user with the same text."""
    if (message.model_extra or {}).get("by") == "person":
        return False
    text = message.text.strip()
    is_reminder = text.startswith("<system-reminder>") and text.endswith("</system-reminder>")
    return is_reminder or bool(CHECKPOINT_MARKER.fullmatch(text))


def _reply_to(message: Message) -> str:
    """Return the assistant message to send between this message and a following user message; empty for most messages."""
    extra = message.model_extra or {}
    if extra.get("answered") is True:
        return ANSWERED
    is_summary = message.text.startswith(COMPACTION_START) and extra.get("by") != "person"
    return SUMMARY_READ if is_summary else ""


def _joined(before: str | list[Sent], parts: list[Sent]) -> str | list[Sent]:
    """Return the content with these parts added: a plain string as long as all parts are text."""
    if isinstance(before, str) and all(part["type"] == "text" for part in parts):
        texts = [before, *(part["text"] for part in parts)]
        return "\n\n".join(text for text in texts if text)
    start: list[Sent] = before if isinstance(before, list) else []
    if isinstance(before, str) and before:
        start = [{"type": "text", "text": before}]
    return [*start, *parts]


def _short_id(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters: list[str] = []
    for _ in range(9):
        number, rest = divmod(number, 62)
        letters.append(_BASE62[rest])
    return "".join(letters)


_BASE64 = f"{_BASE62}+/=".encode()
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_COUNTED_CHARS = 200_000
_CHARS_A_TOKEN = 4
_MOST_OF_IMAGE = 50_000
"""Tokens: more than any server counts for one image."""
_MAX_SCHEMA_DEPTH = 40
_MOST_KEPT_BYTES = 8 << 20
_A_PART = 200
"""The number of characters that take as long to encode as one part or call of a message does besides its text."""
_MOST_AT_ONCE_BYTES = 1 << 20
"""Bytes of a request that are joined on the event loop, and of its new messages (in characters) a sixty-fourth of that."""
"""Bytes of an encoded conversation that are kept for the next request; there are more only with many images."""
_ALWAYS_SENT = {"model", "messages", "stream", "tools"}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request, before it is encoded for a dialect."""

    system: str
    tools: tuple[ToolSpec, ...]
    history: Sequence[Message]
    recipient: Recipient
    thinking: str = UNSET
    """The thinking setting: `on`, `off`, an effort, or `UNSET`."""
    session_id: str = ""
    most_tokens: int = 0
    """The limit of the answer in tokens; 0 for none."""


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request as bytes.

    Attributes:
        data: the JSON body.
        optional: the names of the fields that a server might refuse, those inside messages included.
        estimated_tokens: the estimated tokens of the messages.
        most_tokens: an upper bound of the request's tokens: no tokenizer makes two tokens of a byte.
    """

    data: bytes
    optional: frozenset[str]
    estimated_tokens: int
    most_tokens: int


def build_request(
    request: ChatRequest, dialect: Dialect, dropped: frozenset[str] = frozenset()
) -> EncodedRequest:
    """Return the body for this dialect (learned quirks applied); top-level fields in `dropped` are left out.

    Call it in a thread: most of a long history has yet to be read from the disk.
    """
    return RequestBuilder().build(request, dialect, dropped)


@dataclass(slots=True)
class _Settled:
    """The beginning of a conversation, as it was encoded for a request: all before the last step, which may still grow.

    Attributes:
        form: what else decides how messages are sent.
        history: the stored messages of the beginning, which never change.
        data: the JSON of the sent messages but the last, with a comma after each.
        last: the last sent message, to which later text may be joined; None if there is none.
        reply: the state of the writer.
        facts: the facts about the messages in `data`.
        n_counted: the number of messages in `history` from the first on whose tokens are in `said_tokens`.
    """

    form: tuple[str, Dialect, Recipient]
    history: tuple[Message, ...]
    data: bytearray
    last: Sent | None
    reply: str
    facts: _Facts
    n_counted: int = 0
    said_tokens: int = 0


@dataclass(slots=True)
class _Facts:
    """The facts about sent messages that a request tells besides its bytes.

    Attributes:
        optional: the names of fields in them that a server might refuse.
        n_images: the number of images; `image_chars` are the characters of all of them.
        thought_tokens: the estimated tokens of reasoning.
    """

    optional: set[str] = field(default_factory=set[str])
    n_images: int = 0
    image_chars: int = 0
    thought_tokens: int = 0

    def copy(self) -> _Facts:
        """Return facts that can be added to."""
        return replace(self, optional={*self.optional})

    def add(self, message: Sent) -> None:
        """Add those about one more message."""
        for name in REASONING_FIELDS:
            if name in message:
                self.optional.add(name)
        for name in ("reasoning_content", "reasoning"):
            self.thought_tokens += len(message.get(name) or "") // _CHARS_A_TOKEN
        if any("extra_content" in call for call in message.get("tool_calls", ())):
            self.optional.add("extra_content")
        content = message.get("content")
        if not isinstance(content, list):
            return
        self.optional.add("image_url")
        for part in cast("list[Sent]", content):
            if part["type"] == "image_url":
                self.n_images += 1
                self.image_chars += len(part["image_url"]["url"])


class RequestBuilder:
    """Builds the requests of a conversation: what was sent before is not made and encoded anew, as long as it is the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: _Settled | None = None
        self._tools: tuple[tuple[ToolSpec, ...], str, bytes] = ((), "", b"")

    def build(
        self, request: ChatRequest, dialect: Dialect, dropped: frozenset[str] = frozenset()
    ) -> EncodedRequest:
        """Return the body of a request, see `build_request`. Call it in a thread."""
        request = replace(request, history=tuple(request.history))
        with self._lock:
            return self._built(request, dialect, dropped)

    def build_soon(
        self, request: ChatRequest, dialect: Dialect, dropped: frozenset[str] = frozenset()
    ) -> EncodedRequest | None:
        """Return the body of a request of which so little is new that a thread would answer later than it is built.

        Returns:
            None where more of it is new, or another one is being built: then `build` it in a thread.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            settled = self._settled
            if (
                settled is None
                or len(settled.data) > _MOST_AT_ONCE_BYTES
                or settled.form != (request.system, dialect, request.recipient)
                or len(settled.history) > len(request.history)
            ):
                return None
            # A long conversation is gone through once, and no further than it is the same: a message may have to be read.
            coming = iter(request.history)
            if not all(map(is_, settled.history, coming)):
                return None
            history = [*settled.history]
            left = _MOST_AT_ONCE_BYTES >> 6
            for message in coming:
                history.append(message)
                thought = sum(
                    len(part.think) for part in message.parts if isinstance(part, ThinkPart)
                )
                parts = 1 + len(message.parts) + len(message.tool_calls or ())
                left -= _said_chars(message) + thought + parts * _A_PART
                if left < 0 or message.images:
                    return None
            return self._built(replace(request, history=tuple(history)), dialect, dropped)
        finally:
            self._lock.release()

    def _built(
        self, request: ChatRequest, dialect: Dialect, dropped: frozenset[str]
    ) -> EncodedRequest:
        fields: dict[str, Any] = {"model": request.recipient.model}
        fields["messages"], facts, said = self._messages(request, dialect)
        fields["stream"] = True
        if request.tools:
            fields["tools"] = self._encoded_tools(request.tools, dialect)
        if dialect.stream_options:
            fields["stream_options"] = {"include_usage": True}
        if dialect.cache_key and request.session_id:
            fields["prompt_cache_key"] = request.session_id
        limit = next((name for name in dialect.limits if name not in dropped), None)
        if request.most_tokens and limit is not None:
            fields[limit] = request.most_tokens
        fields.update(dialect.thinking.fields(request.thinking, has_tools=bool(request.tools)))
        fields.update(dialect.extra)
        for name in dropped - _ALWAYS_SENT:
            fields.pop(name, None)
        data = _encoded(fields)
        return EncodedRequest(
            data,
            frozenset(fields.keys() - _ALWAYS_SENT | facts.optional),
            _fixed(request.system) + said + facts.thought_tokens,
            len(data) - facts.image_chars + facts.n_images * _MOST_OF_IMAGE,
        )

    def _encoded_tools(self, tools: tuple[ToolSpec, ...], dialect: Dialect) -> bytes:
        if self._tools[:2] != (tools, dialect.schema):
            self._tools = tools, dialect.schema, _json(_sent_tools(tools, dialect))
        return self._tools[2]

    def _messages(
        self, request: ChatRequest, dialect: Dialect
    ) -> tuple[tuple[bytearray, bytearray], _Facts, int]:
        """Return the JSON of all messages in two parts that are joined, the facts about them, and the estimated tokens of the stored
        ones.
        """
        history = request.history
        settled, self._settled = self._settled, None
        form = (request.system, dialect, request.recipient)
        is_more = (
            settled is not None and settled.form == form and _continues(settled.history, history)
        )
        # A stored system message is sent first, wherever it stands.
        n_same = len(settled.history) if settled is not None and is_more else 0
        is_plain = all(message.role != "system" for message in history[n_same:])
        if settled is None or not is_more or not is_plain:
            settled = _Settled(form, (), bytearray(), None, "", _Facts())
        number = len(settled.history)
        sent: list[Sent] = [] if settled.last is None else [{**settled.last}]
        writer = _Writer(sent, dialect, request.recipient, settled.reply)
        if settled.last is None:
            writer.system(request.system, history)
        # All before the newest step will be the same in the next request.
        n_settled, last, reply = 0, settled.last, settled.reply
        for item in _steps(history, number):
            if isinstance(item, _Step):
                if sent:
                    n_settled, last, reply = len(sent) - 1, {**sent[-1]}, writer.reply
                    number = item.number
                writer.step(item)
            else:
                writer.user(item)
        writer.end()
        for message in sent[:n_settled]:
            _add_json(settled.data, message)
            settled.facts.add(message)
        newest, facts = bytearray(), settled.facts.copy()
        for message in sent[n_settled:]:
            _add_json(newest, message)
            facts.add(message)
        said = settled.said_tokens + _estimated(history[settled.n_counted :])
        while settled.n_counted < number and tokens.is_counted(history[settled.n_counted]):
            settled.said_tokens += tokens.said_tokens(history[settled.n_counted])
            settled.n_counted += 1
        settled.history = tuple(history[:number])
        settled.last, settled.reply = last, reply
        if is_plain and len(settled.data) <= _MOST_KEPT_BYTES:
            self._settled = settled
        # The last message is always among the newest. The others may be a megabyte, which is copied only into the body.
        del newest[-1:]
        return (settled.data, newest), facts, said


def _continues(before: Sequence[Message], history: Sequence[Message]) -> bool:
    """Return whether a history begins with the same messages."""
    return len(before) <= len(history) and all(map(is_, before, history))


def _add_json(data: bytearray, message: Sent) -> None:
    for piece in _json_of_message(message):
        data += piece
    data += b","


def _encoded(fields: dict[str, Any]) -> bytes:
    """Return the JSON of a request; the messages and the tools are JSON already."""
    pieces: list[bytes | bytearray] = []
    for name, value in fields.items():
        pieces += (b"," if pieces else b"{", _json(name), b":")
        if name == "messages":
            pieces += (b"[", *value, b"]")
        else:
            pieces.append(value if isinstance(value, bytes) else _json(value))
    return b"".join([*pieces, b"}"])


def _json_of_message(message: Sent) -> Iterator[bytes]:
    """Yield the JSON of a message in pieces; images of megabytes are not searched for characters to escape."""
    content = message.get("content")
    if isinstance(content, str) or not content:
        yield _json(message)
        return
    yield _json({name: value for name, value in message.items() if name != "content"})[:-1]
    yield b',"content":'
    for number, part in enumerate(content):
        yield b"," if number else b"["
        url: str = part["image_url"]["url"] if part["type"] == "image_url" else ""
        head, comma, data = url.partition(",")
        plain = data.encode("utf-8", "replace")
        if comma and not plain.translate(None, _BASE64):
            yield _json({**part, "image_url": {"url": head + comma}})[:-3]
            yield plain
            yield b'"}}'
        else:
            yield _json(part)
    yield b"]}"


def _json(value: Any) -> bytes:
    # A lone surrogate that got this far (in a tool's description) must not end the request.
    return _ENCODER.encode(value).encode("utf-8", "replace")


@lru_cache(maxsize=8)
def _fixed(text: str) -> int:
    """Return the tokens of a text that is the same in every request."""
    return tokens.estimate(text)


def _estimated(history: Sequence[Message]) -> int:
    """Estimate the tokens of stored messages without their reasoning, well enough to notice that the server cut half of them.

    Each stored message is counted once, the newest first. One request counts only as many messages of a long conversation as
    it can in milliseconds; it estimates the others by their length, and later requests count them.
    """
    total = 0
    left = _COUNTED_CHARS
    for message in reversed(history):
        if tokens.is_counted(message):
            total += tokens.said_tokens(message)
            continue
        size = _said_chars(message)
        if size <= left:
            left -= size
            total += tokens.said_tokens(message)
        else:
            total += size // _CHARS_A_TOKEN
    return total


def _said_chars(message: Message) -> int:
    calls = message.tool_calls or ()
    said = sum(len(part.text) for part in message.parts if isinstance(part, TextPart))
    return said + sum(len(call.function.arguments or "") for call in calls)


# The schemas of tools.


def _sent_tools(tools: Sequence[ToolSpec], dialect: Dialect) -> list[dict[str, Any]]:
    """Return the `tools` of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": plain_schema(tool.parameters, flavour=dialect.schema),
            },
        }
        for tool in tools
    ]


def plain_schema(schema: Mapping[str, Any], *, flavour: str = "plain") -> dict[str, Any]:
    """Return a schema of type object without references and titles, and with optional fields as plain types.

    Args:
        schema: a schema of any origin; values in it that are no schema are kept unchanged.
        flavour: see `Dialect.schema`.
    """
    definitions = lenient_json.mapping(schema.get("$defs"))
    body = {key: value for key, value in schema.items() if key not in {"$defs", "$schema", "title"}}
    plain = lenient_json.mapping(_plain(body, definitions, flavour, 0, is_property=False))
    plain["type"] = "object"
    plain.setdefault("properties", {})
    return plain


def _plain(
    value: Any, definitions: dict[str, Any], flavour: str, depth: int, *, is_property: bool
) -> Any:
    if not isinstance(value, dict) or depth > _MAX_SCHEMA_DEPTH:
        return {} if isinstance(value, dict) else value

    def plain(child: Any) -> Any:
        return _plain(child, definitions, flavour, depth + 1, is_property=True)

    schema = dict(cast("dict[str, Any]", value))
    reference = lenient_json.text(schema.pop("$ref", None))
    if reference.startswith("#/$defs/"):
        target = lenient_json.mapping(definitions.get(reference.removeprefix("#/$defs/")))
        schema = {**target, **schema}
        return _plain(schema, definitions, flavour, depth + 1, is_property=is_property)
    choices = lenient_json.listing(schema.get("anyOf"))
    filled = [one for one in choices if lenient_json.mapping(one).get("type") != "null"]
    if len(filled) == 1:
        # The field is optional, so a caller can leave it out instead of passing null.
        del schema["anyOf"]
        schema = {**lenient_json.mapping(filled[0]), **schema}
        if schema.get("default", ...) is None:
            del schema["default"]
        return _plain(schema, definitions, flavour, depth + 1, is_property=is_property)
    schema.pop("title", None)
    pattern = lenient_json.text(schema.get("pattern"))
    if pattern and not (pattern.startswith("^") and pattern.endswith("$")):
        del schema["pattern"]  # llama.cpp refuses it, and for other servers it is a hint at best
    for key in ("items", "additionalProperties", "not"):
        if key in schema:
            schema[key] = plain(schema[key])
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if key in schema:
            schema[key] = [plain(one) for one in lenient_json.listing(schema[key])]
    if "properties" in schema:
        schema["properties"] = {
            name: plain(one) for name, one in lenient_json.mapping(schema["properties"]).items()
        }
    if flavour == "moonshot":
        _to_moonshot(schema, is_property=is_property)
    return schema


def _to_moonshot(schema: dict[str, Any], *, is_property: bool) -> None:
    """Rewrite a schema for Moonshot: no type beside `anyOf`, a type elsewhere, no tuples or `const`, known required names only."""
    if "oneOf" in schema and "anyOf" not in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if "anyOf" in schema:
        kind = schema.pop("type", None)
        for one in lenient_json.listing(schema["anyOf"]):
            if kind is not None and "type" not in one:
                one["type"] = kind
    if "prefixItems" in schema:
        members = lenient_json.listing(schema.pop("prefixItems"))
        schema["items"] = members[0] if len(members) == 1 else {"anyOf": members}
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if is_property and "type" not in schema and "anyOf" not in schema and "allOf" not in schema:
        schema["type"] = _type_of(schema)
    if "required" in schema:
        known = lenient_json.mapping(schema.get("properties"))
        required = [name for name in lenient_json.listing(schema["required"]) if name in known]
        schema["required"] = required
        if not required:
            del schema["required"]


def _type_of(schema: Mapping[str, Any]) -> str:
    values = lenient_json.listing(schema.get("enum"))
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    if values and all(isinstance(value, bool) for value in values):
        return "boolean"
    if values and all(isinstance(value, int) for value in values):
        return "integer"
    if values and all(isinstance(value, int | float) for value in values):
        return "number"
    return "string"
