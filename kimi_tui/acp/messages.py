"""The prompts of an editor: texts, images, and files that it names or embeds, as the engine takes them."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acp import schema

from kimi_tui.foreign_text import clean_pasted, one_line
from kimi_tui.images import Image, ImageRefused, check_size, read_image

Block = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
MOST_CHARS = 2_000_000
"""Characters of the embedded texts of one prompt."""


class BadPrompt(Exception):
    """A prompt cannot be sent; the text says why, as a sentence."""


class Prompt(NamedTuple):
    """A prompt for the engine.

    Attributes:
        text: the words, with `@path` for each file that the editor names.
        embedded: the texts that came along, each below its name; they are not searched for names of files.
        images: the images.
    """

    text: str
    embedded: str = ""
    images: tuple[Image, ...] = ()


def prompt_of(blocks: Sequence[Block], work_dir: str) -> Prompt:
    """Return the prompt that these blocks are. It decodes images, so call it in a thread.

    Args:
        blocks: the blocks, in order.
        work_dir: the work folder; files in it are named relative to it.

    Raises:
        BadPrompt: an image cannot be read, a block is of a kind that is not taken, or all are too long.
    """
    words: list[str] = []
    embedded: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock(text=text):
                words.append(clean_pasted(text))
            case schema.ImageContentBlock(data=data, uri=uri):
                images.append(_image(data, _name_of(uri or "") or f"image {len(images) + 1}"))
            case schema.ResourceContentBlock(uri=uri, name=name):
                words.append(_mention(uri, work_dir) or f"[{one_line(name)}]({one_line(uri)})")
            case schema.EmbeddedResourceContentBlock(resource=resource):
                shown = _shown(resource.uri, work_dir)
                words.append(f"[{shown}]")
                if isinstance(resource, schema.TextResourceContents):
                    embedded.append(f"{shown}:\n{clean_pasted(resource.text)}")
                else:
                    images.append(_image(resource.blob, _name_of(resource.uri)))
            case schema.AudioContentBlock():
                raise BadPrompt("Audio cannot be sent to the agent. Write the message as text.")
    if sum(map(len, embedded)) > MOST_CHARS:
        raise BadPrompt(
            f"The attached texts are longer than {MOST_CHARS:,} characters. "
            "Name the files instead of attaching their text."
        )
    return Prompt("".join(words).strip(), "\n\n".join(embedded), tuple(images))


def _image(data: str, name: str) -> Image:
    try:
        check_size(len(data) * 3 // 4, name)
        return read_image(base64.b64decode(data, validate=True), name)
    except (binascii.Error, ValueError) as error:
        raise BadPrompt(f'The image "{name}" is not valid base64.') from error
    except ImageRefused as no:
        raise BadPrompt(str(no)) from no


def _path_of(uri: str) -> str:
    """Return the path of a `file:` address, or of one that is a path; empty for any other."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    return uri if uri.startswith("/") else ""


def _shown(uri: str, work_dir: str) -> str:
    path = _path_of(uri)
    if not path:
        return one_line(uri)
    inside = path.startswith(work_dir.rstrip("/") + "/")
    return one_line(os.path.relpath(path, work_dir) if inside else path)


def _mention(uri: str, work_dir: str) -> str:
    """Return `@path` for a file; empty for any other address, or a path that cannot be written so."""
    path = _path_of(uri)
    if not path or any(not sign.isprintable() for sign in path):
        return ""
    shown = _shown(uri, work_dir)
    if any(sign.isspace() or sign in '"\\' for sign in shown):
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
        return f'@"{quoted}"'
    return f"@{shown}"


def _name_of(uri: str) -> str:
    return one_line(unquote(uri).rpartition("/")[2])[:80]
