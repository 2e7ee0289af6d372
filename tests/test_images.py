"""Images are identified by their content and fit the providers' limits; forged ones neither get through nor take much time."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from io import BytesIO

import pytest
from PIL import Image as Pillow
from PIL import ImageCms
from PIL.PngImagePlugin import PngInfo
from support.made_images import flat, noise, saved

from kimi_tui import images
from kimi_tui.images import (
    MAX_BYTES,
    MAX_FILE_BYTES,
    MAX_SIDE,
    Image,
    ImageRefused,
    image_tokens,
    is_image,
    read_image,
    without_metadata,
)

SECRET = "48.8584 N, 2.2945 E"


def _profile() -> bytes:
    """Return a colour profile with a text of its own, as programs may add."""
    plain = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]
    (n_tags,) = struct.unpack_from(">I", plain, 128)
    table = [struct.unpack_from(">4sII", plain, 132 + 12 * at) for at in range(n_tags)]
    tags = b"".join(struct.pack(">4sII", name, at + 12, size) for name, at, size in table)
    text = b"text\0\0\0\0" + SECRET.encode() + b"\0"
    tags += struct.pack(">4sII", b"targ", len(plain) + 12, len(text))
    whole = plain[4:128] + struct.pack(">I", n_tags + 1) + tags + plain[132 + 12 * n_tags :] + text
    return struct.pack(">I", len(whole) + 4) + whole


PROFILE = _profile()


def png_of_size(width: int, height: int, rows: bytes = b"") -> bytes:
    """Return a PNG with this size in its header, regardless of its rows."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def opened(image: Image) -> Pillow.Image:
    return Pillow.open(BytesIO(image.data))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_what_fits_stays_as_it_is_and_is_known_by_its_content(kind: str) -> None:
    data = saved(flat(640, 480), kind)
    image = read_image(data, "a\x1b]0;name\x07.txt")
    assert is_image(data[:16])
    assert (image.data, image.width, image.height) == (data, 640, 480)
    assert image.media_type == f"image/{kind.lower()}"
    assert image.name == "a.txt"
    assert image.data_url().startswith(f"data:image/{kind.lower()};base64,")
    assert image_tokens(image.width, image.height) == 23 * 18
    assert len(image.sha256) == 64


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits of bytes, so that noise at the limit is encoded in less than a second."""
    monkeypatch.setattr(images, "MAX_BYTES", 120_000)
    monkeypatch.setattr(images, "_LIGHT_BYTES", 30_000)


@pytest.mark.usefixtures("small_limits")
def test_a_large_one_becomes_as_small_as_providers_want_it_in_the_smaller_form() -> None:
    screenshot = read_image(saved(flat(2_600, 1_300), "PNG"), "s.png")
    assert (screenshot.width, screenshot.height) == (2_000, 1_000)
    assert screenshot.media_type == "image/png"
    wide = read_image(saved(noise(2_100, 40), "PNG"), "wide.png")
    assert wide.media_type == "image/jpeg"
    assert max(opened(wide).size) == MAX_SIDE
    # This image is within the limit of sides, but not of bytes.
    lighter = read_image(saved(noise(250, 250), "PNG"), "heavy.png")
    assert len(lighter.data) <= 120_000
    assert (lighter.width, lighter.height) == (250, 250)
    # The first image is within the limits, and a quarter of its size as a JPEG; no other form of the second is smaller.
    shown = saved(noise(150, 150))
    assert 30_000 < len(shown) < 120_000
    assert len(read_image(shown, "shown.png").data) < len(shown)
    photo = saved(noise(260, 260), "JPEG")
    assert 30_000 < len(photo) < 120_000
    assert read_image(photo, "photo.jpg").data == photo
    thread = read_image(saved(flat(40_000, 3), "PNG"), "thread.png")
    assert (thread.width, thread.height) == (2_000, 1)


@pytest.mark.usefixtures("small_limits")
def test_what_is_transparent_stays_so_where_it_can() -> None:
    clear = flat(2_500, 100).convert("RGBA")
    clear.putalpha(90)
    image = read_image(saved(clear, "PNG"), "clear.png")
    assert opened(image).mode == "RGBA"
    heavy = noise(200, 250).convert("RGBA")
    heavy.putalpha(90)
    assert read_image(saved(heavy, "PNG"), "heavy.png").media_type == "image/jpeg"


def test_one_from_a_camera_is_turned_upright() -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6
    picture = flat(60, 20)
    picture.putpixel((0, 0), (0, 0, 0))
    file = BytesIO()
    picture.save(file, "JPEG", exif=exif)
    image = read_image(file.getvalue(), "p.jpg")
    assert (image.width, image.height) == (20, 60)
    assert opened(image).getexif().get(0x0112, 1) == 1


def same_colours(profile: bytes) -> bool:
    """Return whether a profile gives the same colours as `PROFILE`, and contains nothing else."""
    back = ImageCms.createProfile("sRGB")
    made = [
        ImageCms.profileToProfile(noise(9, 9), ImageCms.getOpenProfile(BytesIO(one)), back)
        for one in (profile, PROFILE)
    ]
    assert made[0] is not None
    assert made[1] is not None
    return SECRET.encode() not in profile and made[0].tobytes() == made[1].tobytes()


def told(picture: Pillow.Image, kind: str, **options: object) -> bytes:
    """Return a file that contains a location in every way that its format has."""
    exif = Pillow.Exif()
    exif[0x010E] = SECRET
    if kind == "PNG":
        text = PngInfo()
        text.add_text("Comment", SECRET)
        text.add_itxt("XML:com.adobe.xmp", SECRET)
        options = {**options, "pnginfo": text, "exif": exif}
    elif kind == "GIF":
        options = {**options, "comment": SECRET.encode()}
    else:
        more = {"comment": SECRET.encode()} if kind == "JPEG" else {}
        options = {**options, "exif": exif, "xmp": SECRET.encode(), **more}
    file = BytesIO()
    picture.save(file, kind, icc_profile=PROFILE, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("PNG", "RGB", {}),
        ("PNG", "P", {"transparency": 3}),
        ("JPEG", "RGB", {}),
        ("JPEG", "RGB", {"progressive": True, "restart_marker_rows": 1}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("WEBP", "RGBA", {}),
        ("GIF", "P", {}),
    ],
)
def test_what_is_sent_shows_the_same_and_tells_no_place(
    kind: str, mode: str, options: dict[str, object]
) -> None:
    picture = (flat if kind == "GIF" else noise)(61, 47).convert(mode)
    if mode == "RGBA":
        picture.putalpha(90)
    data = told(picture, kind, **options)
    assert SECRET.encode() in data
    image = read_image(data + SECRET.encode(), "photo")
    assert SECRET.encode() not in image.data
    assert image.media_type == f"image/{kind.lower()}"
    shown, was = opened(image), Pillow.open(BytesIO(data))
    assert shown.convert("RGBA").tobytes() == was.convert("RGBA").tobytes()
    if kind != "GIF":
        assert same_colours(shown.info["icc_profile"])
    # After the encoding the image has no location any more.
    turned = read_image(told(flat(2_100, 30).convert("RGB"), kind), "photo")
    assert turned.width == MAX_SIDE
    assert SECRET.encode() not in turned.data


@pytest.mark.parametrize(
    ("kind", "before", "hidden"),
    [
        # These GIF blocks are a text with the settings for drawing it, a comment, and a block of a program.
        ("GIF", b",", b"!\xf9\4\0\0\0\0\0!\1\x0c" + bytes(12) + b"\x13" + SECRET.encode() + b"\0"),
        ("GIF", b",", b"!\xfe\x13" + SECRET.encode() + b"\0"),
        ("GIF", b",", b"!\xff\x0bXMP DataXMP\x13" + SECRET.encode() + b"\0"),
        # These JPEG blocks have a thumbnail, or data after the facts on colours.
        ("JPEG", b"\xff\xdb", b"\xff\xe0\0\x1bJFXX\0\x10" + SECRET.encode()),
        ("JPEG", b"\xff\xdb", b"\xff\xee\0\x21Adobe\0d\0\0\0\0\1" + SECRET.encode()),
        ("JPEG", b"\xff\xdb", b"\xff\xe0\0\x23JFIF\0\1\1\0\0\1\0\1\2\3" + SECRET.encode()),
    ],
)
def test_blocks_beside_the_picture_are_left_out(kind: str, before: bytes, hidden: bytes) -> None:
    whole = saved(flat(20, 10), kind)
    assert len(SECRET) == 19
    at = whole.index(before, 13)
    data = whole[:at] + hidden + whole[at:]
    was = Pillow.open(BytesIO(data)).convert("RGB").tobytes()
    bare = without_metadata(data, kind)
    assert SECRET.encode() not in bare
    shown = Pillow.open(BytesIO(bare)).convert("RGB")
    assert shown.size == (20, 10)
    assert kind == "JPEG" or shown.tobytes() == was


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_a_file_that_is_odd_beside_its_picture_is_encoded_anew_or_refused(kind: str) -> None:
    data = told(flat(20, 10), kind)
    for end in range(len(data)):
        part = without_metadata(data[:end], kind)
        assert SECRET.encode() not in part
        assert not part or read_image(part, "cut").width == 20


def test_of_one_that_moves_the_first_picture_is_sent() -> None:
    file = BytesIO()
    first, second = flat(30, 20), noise(30, 20)
    first.save(file, "GIF", save_all=True, append_images=[second] * 3)
    image = read_image(file.getvalue(), "moves.gif")
    assert image.media_type == "image/png"
    assert opened(image).convert("RGB").getpixel((3, 3)) == first.getpixel((3, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%PDF-1.7\n" + saved(flat(8, 8), "PNG"),
        b"BM" + bytes(60),
        b"II*\0" + bytes(60),
        b"RIFF\0\0\0\0WAVE",
    ],
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    assert not is_image(data)
    with pytest.raises(ImageRefused, match="unsupported image format"):
        read_image(data, "x.png")


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n",
        saved(noise(64, 64), "PNG")[:-900],
        saved(noise(64, 64), "JPEG")[:-900],
        saved(noise(64, 64), "WEBP")[:-900],
        saved(noise(64, 64), "GIF")[:900],
        # These files begin as one kind of image and are another.
        b"GIF89a" + saved(noise(64, 64), "PNG"),
        b"\x89PNG\r\n\x1a\n" + saved(noise(64, 64), "JPEG"),
        png_of_size(0, 0),
        png_of_size(50, 50, b"\0" * 7),
        struct.pack("<6sHHBBB", b"GIF89a", 0, 0, 0, 0, 0) + b";",
    ],
)
def test_what_cannot_be_decoded_to_its_end_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(ImageRefused) as refused:
        read_image(data, "x.png")
    assert "\n" not in str(refused.value)


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    # One image has two billion pixels in a few kilobytes; the other file is longer than any image.
    tracemalloc.start()
    with pytest.raises(ImageRefused, match="million pixels"):
        read_image(png_of_size(60_000, 40_000, bytes(1 << 20)), "bomb.png")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    with pytest.raises(ImageRefused, match="50 MB"):
        read_image(b"\x89PNG\r\n\x1a\n" + bytes(MAX_FILE_BYTES), "long.png")


def test_what_hangs_behind_an_image_does_not_matter() -> None:
    data = saved(flat(30, 30), "PNG") + b"PK\x03\x04" + bytes(MAX_BYTES)
    image = read_image(data, "both.png")
    assert len(image.data) < 1_000


def test_a_grey_one_of_sixteen_bits_keeps_its_shades() -> None:
    grey = Pillow.new("I;16", (2_400, 10), 40_000)
    image = read_image(saved(grey, "PNG"), "scan.png")
    shade = opened(image).convert("L").getpixel((5, 5))
    assert isinstance(shade, int)
    assert abs(shade - 40_000 // 256) <= 2
