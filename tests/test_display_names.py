"""A title has the words of a message and not its chips; a message of images alone has their names."""

from __future__ import annotations

from support.cases import each

from kimi_tui.display_names import sentences, titled

CHIP = "[image login page.png 1280x800 ~1.4k]"


@each(
    "text, names, title",
    [
        ("what is this", [], "what is this"),
        ("", [], ""),
        (f"what is {CHIP} wrong", ["login page.png"], "what is wrong"),
        (f"{CHIP}\nwhat is wrong?", [], "what is wrong?"),
        (f"{CHIP} {CHIP}", [], "Image login page.png"),
        (f"{CHIP} [image b.png 4x4 ~1, 2]", [], "Images login page.png, b.png"),
        ("[image 4x4 ~1]", [], "Image"),
        # For a long name in the text, the image has the complete name.
        (
            CHIP,
            ["the whole name of the login page.png"],
            "Image the whole name of the login page.png",
        ),
        ("", ["a.png"], "Image a.png"),
        (" ", ["", ""], "2 images"),
        ("", [""], "Image"),
        # An older title was cut in the middle of a chip.
        ("what is wrong with this [image login pa…", [], "what is wrong with this"),
        ("[image login pa…", [], "Image"),
        ("see [image] and [image of a box]", [], "see [image] and [image of a box]"),
    ],
)
def test_a_title_has_words_or_names(text: str, names: list[str], title: str) -> None:
    assert titled(text, names) == title


def test_what_happened_and_what_to_do_are_two_sentences() -> None:
    assert sentences("It cannot be reached: refused", "Check it.") == (
        "It cannot be reached: refused. Check it."
    )
    assert sentences("It is full.", "Wait.") == "It is full. Wait."
    assert sentences("It is full", "") == "It is full"
    assert sentences("", "Wait.") == "Wait."
