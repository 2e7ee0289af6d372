"""Stand-ins for real servers that refuse the same requests, in the same words; one function a dialect.

Each is a check for `ChatServer(check=…)`: an answer is a refusal, None lets the request through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.chat_server import Answer, Request, sequence_fault, status

EFFORTS = ("low", "medium", "high")
BASE = {"model", "messages", "stream", "stream_options", "tools"}
MESSAGE = {"role", "content", "tool_calls", "tool_call_id"}


def refuse(message: str, code: int = 400, **more: Any) -> Answer:
    """Return a refusal in the usual shape."""
    return status(code, {"error": {"message": message, "type": "invalid_request_error", **more}})


def _assistants(request: Request) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for position, message in enumerate(request.messages):
        if message["role"] == "assistant":
            yield position, message


def _calls(request: Request) -> Iterator[Mapping[str, Any]]:
    for _, message in _assistants(request):
        yield from message.get("tool_calls", ())


def _schemas(value: Any, path: str = "parameters") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key in ("items", "additionalProperties"):
            yield from _schemas(value.get(key), f"{path}.{key}")
        for key in ("anyOf", "oneOf", "allOf"):
            for one in value.get(key, ()):
                yield from _schemas(one, f"{path}.{key}")
        for name, one in value.get("properties", {}).items():
            yield from _schemas(one, f"{path}.{name}")


def common(request: Request) -> Answer | None:
    """Refuse what every server refuses."""
    fault = sequence_fault(request.messages)
    if fault is not None:
        return refuse(fault)
    if request.body.get("tools") == []:
        return refuse("[] is too short - 'tools'")
    for field in (
        "temperature",
        "top_p",
        "n",
        "tool_choice",
        "parallel_tool_calls",
        "user",
        "store",
    ):
        if field in request.body:
            return refuse(f"{field} cannot be modified")
    return None


def moonshot(request: Request) -> Answer | None:
    """Kimi models that think need reasoning with every call, and schemas in their own flavour."""
    if (refused := common(request)) is not None:
        return refused
    for position, message in _assistants(request):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            return refuse(
                "thinking is enabled but reasoning_content is missing in assistant tool call message "
                f"at index {position}"
            )
    for tool in request.body.get("tools", ()):
        if "strict" in tool["function"]:
            return refuse("strict is not supported")
        parameters = tool["function"]["parameters"]
        if parameters.get("type") != "object":
            return refuse('tools.function.parameters.type is required and must be "object"')
        for path, schema in _schemas(parameters):
            if "anyOf" in schema and "type" in schema:
                return refuse(
                    "when using anyOf, type should be defined in anyOf items instead of the parent "
                    f"schema ({path})"
                )
            if "anyOf" not in schema and "type" not in schema:
                return refuse(f"{path} has no type")
            if "$ref" in schema or "prefixItems" in schema or "const" in schema:
                return refuse(f"{path} uses a keyword that is not supported")
            if set(schema.get("required", ())) - set(schema.get("properties", ())):
                return refuse(f"{path} requires what is not defined")
    if (
        request.body.get("thinking", {}).get("type") == "disabled"
        and "k2.7" in request.body["model"]
    ):
        return refuse("invalid thinking: only type=enabled is allowed for this model")
    for message in request.messages:
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                if part["type"] == "image_url" and not part["image_url"]["url"].startswith("data:"):
                    return refuse("unsupported image url")
    return None


def openai(request: Request) -> Answer | None:
    """Unknown fields, long ids, and tools beside reasoning are refused."""
    if (refused := common(request)) is not None:
        return refused
    allowed = BASE | {"max_completion_tokens", "reasoning_effort", "prompt_cache_key"}
    for field in request.body.keys() - allowed:
        if field == "max_tokens":
            return refuse(
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead."
            )
        return refuse(f"Unknown parameter: '{field}'.", code_="unknown_parameter")
    for position, message in enumerate(request.messages):
        for field in message.keys() - MESSAGE:
            return refuse(f"Unknown parameter: 'messages[{position}].{field}'.")
    for entry in _calls(request):
        if len(entry["id"]) > 40:
            return refuse("Invalid 'messages[1].tool_calls[0].id': string too long.")
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", entry["function"]["name"]):
            return refuse("Invalid 'function.name': string does not match pattern.")
    if "tools" in request.body and request.body.get("reasoning_effort") != "none":
        model = request.body["model"]
        if model.startswith("gpt-5.6"):
            return refuse(
                f"Function tools with reasoning_effort are not supported for {model} in "
                "/v1/chat/completions. Please use /v1/responses or set reasoning_effort to 'none'."
            )
    return None


def deepseek(request: Request) -> Answer | None:
    """Refuse a request without the reasoning field, even an empty one, or with images."""
    if (refused := common(request)) is not None:
        return refused
    for _, message in _assistants(request):
        if "reasoning_content" not in message:
            return refuse(
                "The `reasoning_content` in the thinking mode must be passed back to the API."
            )
    if any(isinstance(message.get("content"), list) for message in request.messages):
        return refuse("unknown variant `image_url`, expected `text`", 422)
    return None


def mistral(request: Request) -> Answer | None:
    """Unknown fields, ids of other than nine characters, and a user's message after a tool's are refused."""

    def flat(message: str, code: str) -> Answer:
        return status(400, {"object": "error", "message": message, "type": "x", "code": code})

    for field in request.body.keys() - (BASE - {"stream_options"} | {"max_tokens"}):
        return status(
            422,
            {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", field],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
        )
    for position, message in enumerate(request.messages):
        for field in message.keys() - MESSAGE:
            return status(
                422,
                {
                    "detail": [
                        {
                            "type": "extra_forbidden",
                            "loc": ["body", "messages", position, "assistant", field],
                            "msg": "Extra inputs are not permitted",
                        }
                    ]
                },
            )
    for entry in _calls(request):
        if not re.fullmatch(r"[a-zA-Z0-9]{9}", entry["id"]):
            return flat(
                f"Tool call id was {entry['id']} but must be a-z, A-Z, 0-9, with a length of 9.",
                "3280",
            )
    fault = sequence_fault(request.messages, user_after_tool=False)
    if fault is not None:
        return flat(fault, "3230")
    return None


def gemini(request: Request) -> Answer | None:
    """Signatures must come back, unknown names are refused, and errors are an array."""

    def array(message: str) -> Answer:
        return status(
            400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]
        )

    if (refused := common(request)) is not None:
        return refused
    if request.body.get("reasoning_effort") not in {None, "none", "minimal", *EFFORTS}:
        return array("Invalid value at 'reasoning_effort'")
    taken = BASE | {"max_tokens", "max_completion_tokens", "reasoning_effort"}
    for field in request.body.keys() - taken:
        return array(f'Invalid JSON payload received. Unknown name "{field}": Cannot find field.')
    for _, message in _assistants(request):
        for field in message.keys() - MESSAGE:
            return array(
                f"Invalid JSON payload received. Unknown name \"{field}\" at 'messages[1]': Cannot find field."
            )
        first = next(iter(message.get("tool_calls", ())), None)
        if first is not None:
            google = first.get("extra_content", {}).get("google", {})
            if not google.get("thought_signature"):
                return array("Function call is missing a thought_signature in functionCall parts.")
    return None


def groq(request: Request) -> Answer | None:
    """Replayed reasoning and unknown fields are refused."""
    if (refused := common(request)) is not None:
        return refused
    for field in request.body.keys() - (BASE | {"max_tokens", "max_completion_tokens"}):
        return refuse(f"property '{field}' is unsupported")
    for position, message in _assistants(request):
        for field in message.keys() - MESSAGE:
            return refuse(
                f"'messages.{position}' : for 'role:assistant' the following must be satisfied"
                f"[('messages.{position}' : property '{field}' is unsupported)]"
            )
    return None


def glm(request: Request) -> Answer | None:
    """`stream_options` is not known."""
    if (refused := common(request)) is not None:
        return refused
    for field in request.body.keys() - (BASE - {"stream_options"} | {"max_tokens", "thinking"}):
        return refuse(f"Unrecognized request argument supplied: {field}")
    return None


def openrouter(request: Request) -> Answer | None:
    """Encrypted details must come back exactly as they were sent."""
    if (refused := common(request)) is not None:
        return refused
    for field in request.body.keys() - (BASE | {"reasoning", "max_tokens"}):
        return refuse(f"unrecognized_keys: {field}")
    for _, message in _assistants(request):
        if "reasoning_content" in message:
            return refuse("reasoning_content is not allowed")
    return None


def minimax(request: Request) -> Answer | None:
    """Reasoning must be split off, or it would be in the text."""
    if (refused := common(request)) is not None:
        return refused
    if request.body.get("reasoning_split") is not True:
        return refuse("reasoning_split is required here")
    return None


def vllm(request: Request) -> Answer | None:
    """Refuse the old field name, which the real server ignores silently."""
    if (refused := common(request)) is not None:
        return refused
    for _, message in _assistants(request):
        if "reasoning_content" in message:
            return refuse("reasoning_content was dropped without a word")
    return None


def llamacpp(request: Request) -> Answer | None:
    """Templates raise errors (500, which will not pass), and patterns must be anchored."""
    for position, message in enumerate(request.messages):
        if message["role"] == "system" and position:
            return refuse("Jinja Exception: System message must be at the beginning.", 500)
    if (refused := common(request)) is not None:
        return refused
    for tool in request.body.get("tools", ()):
        for path, schema in _schemas(tool["function"]["parameters"]):
            pattern = schema.get("pattern", "^$")
            if not (pattern.startswith("^") and pattern.endswith("$")):
                return refuse(f"{path}: Pattern must start with '^' and end with '$'")
    return None


def gpt_oss(request: Request) -> Answer | None:
    """llama.cpp with gpt-oss refuses thinking beside text in a message with calls."""
    if (refused := llamacpp(request)) is not None:
        return refused
    for _, message in _assistants(request):
        if (
            message.get("tool_calls")
            and message.get("content")
            and message.get("reasoning_content")
        ):
            return refuse(
                "Jinja Exception: Cannot pass both content and thinking in an assistant message with "
                "tool calls! Put the analysis message in one or the other, but not both.",
                500,
            )
    return None


def devstral(request: Request) -> Answer | None:
    """Refuse, as a local Mistral template, roles that do not alternate, or a user's message after a tool's."""
    if (refused := llamacpp(request)) is not None:
        return refused
    fault = sequence_fault(request.messages, user_after_tool=False)
    if fault is not None:
        return refuse(
            "Jinja Exception: After the optional system message, conversation roles must alternate "
            "user and assistant roles except for tool calls and results.",
            500,
        )
    return None


def llama3(request: Request) -> Answer | None:
    """Refuse, as the template of Llama 3, several calls in a message."""
    if (refused := llamacpp(request)) is not None:
        return refused
    if any(len(message.get("tool_calls", ())) > 1 for _, message in _assistants(request)):
        return refuse("Jinja Exception: This model only supports single tool-calls at once!", 500)
    return None


def mistral_local(request: Request) -> Answer | None:
    """Templates of Mistral's models on a local server need ids of nine characters, and alternating roles."""
    for entry in _calls(request):
        if not re.fullmatch(r"[a-zA-Z0-9]{9}", entry["id"]):
            return refuse(
                "Jinja Exception: Tool call IDs should be alphanumeric strings with length 9!", 500
            )
    return devstral(request)


def blind(request: Request) -> Answer | None:
    """Refuse images, as a server that does not say so beforehand."""
    if any(isinstance(message.get("content"), list) for message in request.messages):
        return refuse(
            "image input is not supported - hint: you may need to provide the mmproj", 500
        )
    return common(request)


def moonshot_schemas(request: Request) -> Answer | None:
    """Refuse wrong schemas, and nothing else, as a reseller of Kimi models."""
    for tool in request.body.get("tools", ()):
        for path, schema in _schemas(tool["function"]["parameters"]):
            if "anyOf" in schema and "type" in schema:
                return refuse(
                    "tools.function.parameters is not a valid moonshot flavored json schema: when "
                    f"using anyOf, type should be defined in anyOf items instead ({path})"
                )
    return common(request)


Check = Callable[[Request], "Answer | None"]
STRICT: dict[str, tuple[str, Check]] = {
    "moonshot": ("kimi-k2.6", moonshot),
    "openai": ("gpt-5.6", openai),
    "azure": ("gpt-5.6-mini", openai),
    "deepseek": ("deepseek-v4-pro", deepseek),
    "openrouter": ("anthropic/claude-sonnet-5", openrouter),
    "mistral": ("mistral-large-latest", mistral),
    "gemini": ("gemini-3-pro", gemini),
    "groq": ("llama-4-70b", groq),
    "glm": ("glm-5", glm),
    "qwen": ("qwen3-max", common),
    "minimax": ("MiniMax-M2.5", minimax),
    "ollama": ("qwen3:8b", common),
    "vllm": ("Qwen/Qwen3-32B", vllm),
    "llamacpp": ("qwen3", llamacpp),
    "lmstudio": ("qwen3", common),
    "sglang": ("qwen3", common),
}
