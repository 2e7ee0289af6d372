"""The boundary for foreign text: nothing that a terminal would act on gets through, however the text is split."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import each
from support.effort import n_calls

from kimi_tui.foreign_text import (
    CSI_LIMIT,
    MARKS_LIMIT,
    STRING_LIMIT,
    Cleaner,
    clean,
    expand_tabs,
    one_line,
    shown_name,
    visible,
)

SEQUENCES = [
    "\x1b[31m",
    "\x1b[6n",
    "\x1b[?2004h",
    "\x9b6n",
    "\x1b]0;title\x07",
    "\x1b]52;c;aGk=\x1b\\",
    "\x1b]8;;http://a\x1b\\",
    "\x9d52;c;aGk=\x9c",
    "\x1bP+q544e\x1b\\",
    "\x90$q q\x9c",
    "\x1b_apc\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bXsos\x1b\\",
    "\x1b(B",
    "\x1b%G",
    "\x1bc",
    "\x1b7",
]
hostile = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *SEQUENCES,
                "\x1b",
                "\x1b[",
                "\x1b]",
                "\x9b",
                "\x90",
                "\r",
                "\r\n",
                "\n",
                "\t",
                "\x07",
                "\x18",
                "\x9c",
                "\\",
                "\ud83d",
                "\ude00",
                "\u202e",
                "\u200d",
                "\u200c",
                "ی",
                "👩",
                "\U000e0041",
                "\ufe0f",
                "\u2028",
                "\x85",
            ]
        ),
        st.text(alphabet=st.characters(), max_size=6),
        st.text(alphabet="[]0;?1mABC \n\\", max_size=6),
    ),
    max_size=14,
).map("".join)

FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def is_harmless(text: str) -> bool:
    return not FORBIDDEN.search(text) and not any(
        unicodedata.category(char) == "Cf" and not is_format_letter(char) for char in text
    )


def is_format_letter(char: str) -> bool:
    """Return whether a character is a format character with a shape of its own: Arabic number signs, Kaithi, Egyptian."""
    return (0x600 <= ord(char) <= 0x8E2 and char != "\u061c") or 0x11000 <= ord(char) < 0x1D000


@given(hostile)
def test_no_control_or_invisible_character_gets_through(text: str) -> None:
    assert is_harmless(clean(text))
    assert is_harmless(one_line(text))
    assert "\n" not in one_line(text)
    shown = visible(text)
    assert not FORBIDDEN.search(shown)
    assert is_harmless(shown)
    assert "\t" not in shown


@given(hostile, st.lists(st.integers(0, 80), max_size=8))
@example("a\x1b]52;c;xx\x1b\\b", [3, 10, 11])
@example("\ud83d\ude00", [1])
@example("a\r\nb", [2])
def test_pieces_give_what_the_whole_gives(text: str, cuts: list[int]) -> None:
    cleaner = Cleaner()
    out: list[str] = []
    start = 0
    for cut in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        out.append(cleaner.feed(text[start:cut]))
        start = cut
    out.append(cleaner.finish())
    assert "".join(out) == clean(text)


@given(hostile)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@each("sequence", SEQUENCES)
def test_whole_sequences_go(sequence: str) -> None:
    assert clean(f"a{sequence}b") == "ab"
    cleaner = Cleaner()
    assert "".join(cleaner.feed(char) for char in f"a{sequence}b") + cleaner.finish() == "ab"


def test_plain_text_is_untouched() -> None:
    for text in (
        "",
        "plain\n\ttext",
        "中文 naïve – “quotes” │●◆ עברית",
        "👍 done",
        "[/] [@click=app.quit]",
    ):
        assert clean(text) == text


def test_line_ends() -> None:
    assert clean("a\r\nb\rc\u2028d\x85e") == "a\nb\nc\nd\ne"
    assert clean("10%\r\r\n20%") == "10%\n\n20%"


def test_invisible_characters_are_marks() -> None:
    assert clean("user\u202etxt.exe") == "user<U+202E>txt.exe"
    assert clean("a\u200bb") == "a<U+200B>b"
    assert clean("\U000e0068i") == "<U+E0068>i"
    assert clean("a\u200db") == "a<U+200D>b"
    assert clean("می\u200c\u200cروم 1\u200c2") == "می\u200c<U+200C>روم 1<U+200C>2"


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cروم به خانه\u200cها",
        "هـ\u200d.ش",
        "क्\u200dष and क्\u200cष",
        "അവന്\u200d",
        "ක්\u200dරම",
    ],
)
def test_joiners_are_spelling_where_a_script_has_them(text: str) -> None:
    assert clean(text) == text
    assert one_line(text) == text
    cleaner = Cleaner()
    assert "".join(map(cleaner.feed, text)) + cleaner.finish() == text
    # Before a decision every character is shown.
    assert "\u200c" not in visible(text)
    assert "\u200d" not in visible(text)


def test_emoji_keep_their_pictures_without_selectors() -> None:
    assert clean("⚠\ufe0f 👩\u200d💻") == "⚠ 👩💻"


def test_surrogates() -> None:
    assert clean("\ud83d\ude00 \ud83d. \ude00") == "😀 \ufffd. \ufffd"
    cleaner = Cleaner()
    assert cleaner.feed("x\ud83d") == "x"
    assert cleaner.feed("\ude00") == "😀"
    assert cleaner.feed("\ud83d") + cleaner.finish() == "\ufffd"


def test_unended_strings_are_bounded() -> None:
    text = "before\x1b]" + "x" * STRING_LIMIT + "after"
    assert clean(text) == "beforeafter"
    assert clean("a\x1b[" + "1" * CSI_LIMIT + "b") == "ab"
    cleaner = Cleaner()
    assert "".join(cleaner.feed(text[i : i + 7]) for i in range(0, len(text), 7)) == "beforeafter"


def test_line_feed_ends_a_broken_csi() -> None:
    assert clean("a\x1b[31\nb") == "a\nb"
    assert clean("a\x1b[31中") == "a中"


def test_visible_hides_nothing() -> None:
    assert visible("ls\t-l\x1b[2J\r\n") == "ls<U+0009>-l<U+001B>[2J<U+000D>\n"
    assert visible("rm a" + " " * 200 + "; rm b") == "rm a<200 spaces>; rm b"
    assert visible("a\u00a0b\u202e\ue000") == "a<U+00A0>b<U+202E><U+E000>"
    assert visible("if x:\n    y()") == "if x:\n    y()"
    assert visible("a   \nb") == "a<3 spaces>\nb"


def test_one_line_and_tabs() -> None:
    assert one_line("  a\n\n\tb \x1b[31mc ") == "a b c"
    assert expand_tabs("a\tb") == "a   b"


@pytest.mark.exhaustive
def test_what_a_megabyte_costs() -> None:
    plain = "some plain line of text, as most are\n" * 30_000
    coloured = "\x1b[31mred\x1b[0m and some plain words here\n" * 30_000
    assert n_calls(lambda: clean(plain)) < 20, "not looked at piece by piece"
    assert n_calls(lambda: clean(coloured)) < 60_000 * 20


CROWD = "a" + "\u0301" * 200_000 + "b"


@pytest.mark.parametrize(
    "crowd",
    [
        CROWD, "\u1100" + "\u1161" * 9_000, "\u0628" + "\u064e\u200c" * 9_000, "x" + "\u20dd\u0489\ufe20" * 9_000,
        "\U0001d165" + "\U0001d16d" * 9_000, "\u0301" * 9_000, "\u0915" + "\u093e" * 9_000,
    ],
)  # fmt: skip
def test_no_character_bears_a_crowd_of_marks(crowd: str) -> None:
    assert len(clean(crowd)) <= MARKS_LIMIT + 2
    assert len(one_line(crowd)) <= MARKS_LIMIT + 2
    assert clean(crowd)[0] == crowd[0]
    cleaner = Cleaner()
    fed = "".join(cleaner.feed(crowd[at : at + 7]) for at in range(0, 9_000, 7))
    assert fed + cleaner.finish() == clean(crowd[:9_002])


def test_a_decision_tells_of_marks_that_are_not_drawn() -> None:
    assert visible(CROWD).endswith(f"<{200_000 - 3} combining marks>b")
    assert len(visible(CROWD)) < 50


@pytest.mark.parametrize(
    ("letter", "marks"),
    [
        ("\u0e01", "\u0e49"), ("\u05d0", "\u05b0"), ("\u0628", "\u064e"), ("\u0915", "\u093e"), ("\u1100", "\u1161"), ("x", "\u0301\u05b0"),
    ],
)  # fmt: skip
def test_a_decision_tells_of_marks_of_every_script(letter: str, marks: str) -> None:
    """Marks that belong to no script are counted from the fourth on; a letter may carry more marks of its own script."""
    most = (marks * MARKS_LIMIT)[:MARKS_LIMIT]
    assert visible(f"rm {letter}{most}b") == f"rm {letter}{most}b"
    assert (
        visible(f"rm {letter}{marks * 50}b")
        == f"rm {letter}{most}<{50 * len(marks) - MARKS_LIMIT} combining marks>b"
    )


@each(
    "text, shown",
    [
        ("git st\u0430tus", "git st<U+0430>tus"), ("\u0441\u0443 x", "<U+0441><U+0443> x"), ("cat \u0430.txt", "cat <U+0430>.txt"),
        ("x # \u043f\u0440\u0438\u0432\u0435\u0442 \u043e", "x # \u043f\u0440\u0438\u0432\u0435\u0442 \u043e"),
        ("\u0391\u0392C \u03b4\u03bf", "<U+0391><U+0392>C \u03b4\u03bf"), ("\uff4c\uff53 \U0001d4ec \u2170", "<U+FF4C><U+FF53> <U+1D4EC> <U+2170>"),
        ("rm \u2013rf a\u2215b\u2044c \u2013 d\u2010e", "rm <U+2013>rf a<U+2215>b<U+2044>c \u2013 d<U+2010>e"),
        ("\u4f60\u597d\uff0c\uff01\uff08x\uff09", "\u4f60\u597d\uff0c\uff01\uff08x\uff09"), ("x\u00b2 1\u00ba \u2122 \u00bd \u03a9", "x\u00b2 1\u00ba \u2122 \u00bd \u03a9"),
        ("a\u2800b\U0001d159\U00013441", "a<U+2800>b<U+1D159><U+13441>"), ("x\u0336y\u20dd", "x<U+0336>y<U+20DD>"),
        ("e\u0301" + "\u0302" * 80, "e\u0301\u0302\u0302<78 combining marks>"), ("x" + "\u0430" * 9_000, "x<9000 lookalike letters>"),
        ("x" + " \u0430\u0435" * 9_000, "x <26999 lookalike letters>"),
        ("g\u0131t ec\u029co \u1d04at", "g<U+0131>t ec<U+029C>o <U+1D04>at"), ("cat \u10ff f\u2c9fo s\u2d54x", "cat <U+10FF> f<U+2C9F>o s<U+2D54>x"),
        ("\ufb01nd \U0001d6c2 \uff41\uff3f\U0001d7ce", "<U+FB01>nd <U+1D6C2> <U+FF41><U+FF3F><U+1D7CE>"), ("a\u0665b l\u05d5s \u16d6v", "a<U+0665>b l<U+05D5>s <U+16D6>v"),
        ("x \u15c5\u157c", "x <U+15C5><U+157C>"), ("\U00010404h \u223c/x \u02d7rf", "<U+10404>h <U+223C>/x <U+02D7>rf"),
    ],
)  # fmt: skip
def test_what_passes_for_ascii_is_marked_in_a_decision(text: str, shown: str) -> None:
    assert visible(text) == shown


LIKE_IT = (
    "\u0430.py",
    "a\u200b.py",
    "a\ufe0f.py",
    "a\u3164.py",
    "a.py\u2800",
    "a.py ",
    " a.py",
    "\uff41.py",
    "a\xa0.py",
    "a\n.py",
    "a\t.py",
    "a\udc80.py",
    "a .py",
    "a   .py",
    "\u202eyp.a",
)


def test_no_two_names_of_files_look_alike() -> None:
    names = ("a.py", *LIKE_IT, " ", "")
    shown = [shown_name(name) for name in names]
    assert shown[0] == "a.py"
    assert len(set(shown)) == len(names)
    assert all(one.isprintable() for one in shown)
    assert shown_name("отчёт/日本.md") == "отчёт/日本.md"


@each(
    "text",
    [
        "\u0f67\u0f90\u0fb5\u0fa8\u0fb3\u0fba\u0fbc\u0fbb\u0f82", "\u05d1\u05bc\u05b0\u0596", "Vi\u0065\u0323\u0302t",
        "\u0915\u094d\u0937\u094d\u092e\u094d\u092f\u093e", "\ud55c" + "\u1112\u1161\u11ab" * 30, "\u0e01\u0e33\u0e49" * 30, "\u2500" * 99,
        "\u65e5\u672c\uff01\uff01\uff01" * 9, "\u10e7\u10d5\u10d4\u10da\u10d0", "x \u0647\u0627 \u05e1\u05d5\u05e1 \u0967\u0966", "Stra\u00dfe \u0153uvre \u00e6\u00f8", "\u1403\u14c4\u1483\u144e\u1450\u1466", "\U0001f44d\U0001f3fd" * 30, "\U0001f1e9\U0001f1ea" * 30, "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645" * 9,
    ],
)  # fmt: skip
def test_writing_stays_whole(text: str) -> None:
    assert clean(text) == visible(text).replace("<U+200C>", "\u200c") == text


marked = st.text(alphabet="a\u0301\u0308\u0628\u200c\u200d\u1161\x1b[m ", max_size=60)


@given(marked, st.lists(st.integers(0, 60), max_size=6))
def test_marks_are_counted_across_pieces(text: str, cuts: list[int]) -> None:
    text = f"{text}{chr(0x301) * 20}{text}"
    cleaner = Cleaner()
    out, start = "", 0
    for cut in [*sorted(cuts), len(text)]:
        out += cleaner.feed(text[start:cut])
        start = max(start, cut)
    assert out + cleaner.finish() == clean(text)
