"""Images in messages as the wire tells of them, and as words where no image can stand."""

from __future__ import annotations

from collections.abc import Sequence

from kimi_tui.images import Image
from kimi_tui.llm.message import ImagePart, Message
from kimi_tui.session.images import hash_of, image_part
from kimi_tui.soul.errors import SoulError
from kimi_tui.wire.display import ImageBlock, decode_image, with_names


class ModelCannotSee(SoulError):
    """The model in use takes no images; nothing was sent or stored.

    Args:
        model: what it is called.
        seeing: configured models that do.
    """

    def __init__(self, model: str, seeing: Sequence[str]) -> None:
        names = ", ".join(seeing)
        super().__init__(
            f"{model} takes no images.",
            advice=f"These do, for /model: {names}."
            if names
            else "Choose a model that sees with /model, or add image_in to its capabilities in the configuration.",
        )

    def __str__(self) -> str:
        return f"{self.message} {self.advice}"


def facts_of(image: Image) -> ImageBlock:
    """What the wire tells of an image."""
    return fact_of(image_part(image))


def fact_of(part: ImagePart) -> ImageBlock:
    """What the wire tells of an image in a message."""
    where = part.image_url
    return decode_image({**where.model_dump(), "sha256": hash_of(where.url)})


def images_in(message: Message, *, pasted: bool = False) -> tuple[ImageBlock, ...]:
    """What the wire tells of the images in a message: all, or only those that the user put in."""
    parts = message.images
    return tuple(fact_of(part) for part in parts if not (pasted and part.attached))


def words_with_images(message: Message) -> str:
    """What a message says, with its images by name."""
    return with_names(message.text, images_in(message))
