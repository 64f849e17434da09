"""Small image files of many kinds, and the RGB that transformers' `load_image` decodes from each."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, PngImagePlugin
from transformers.image_utils import load_image

from drawings import drawing, noise, smooth

HEIGHT, WIDTH = 17, 23
ORIENTATION = 0x0112


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags


def raw_png(path: Path, depth: int, colour: int, samples: np.ndarray, *chunks: tuple[bytes, bytes]) -> None:
    """A PNG of a bit depth that Pillow does not write. `samples` are packed rows."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    width = samples.shape[1] * 8 // (depth * channels)
    header = struct.pack(">IIBBBBB", width, samples.shape[0], depth, colour, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in samples)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts))


def make(folder: Path) -> dict[str, np.ndarray]:
    for old in folder.glob("*"):
        old.unlink()
    rgb = Image.fromarray(drawing(HEIGHT, WIDTH))
    gray = rgb.convert("L")
    alpha = Image.fromarray(noise(HEIGHT, WIDTH, 1)[..., 0])
    gray_alpha, rgba = gray.convert("LA"), rgb.convert("RGBA")
    gray_alpha.putalpha(alpha)
    rgba.putalpha(alpha)
    palette = rgb.quantize(16)
    waves = Image.fromarray(smooth(HEIGHT, WIDTH))

    rgb.save(folder / "rgb.png")
    gray.save(folder / "gray.png")
    gray_alpha.save(folder / "gray_alpha.png")
    rgba.save(folder / "rgba.png")
    palette.save(folder / "palette.png")
    palette.save(folder / "palette_transparent.png", transparency=3)
    palette.save(folder / "palette_alpha.png", transparency=bytes(range(0, 256, 16)))
    rgb.quantize(4).save(folder / "palette_2_bits.png", bits=2)
    gray.convert("1").save(folder / "one_bit.png")
    gray.save(folder / "gray_transparent.png", transparency=int(gray.getpixel((0, 0))))
    rgb.save(folder / "oriented_6.png", exif=exif(6))
    comments = PngImagePlugin.PngInfo()
    comments.add_text("Comment", "drawn by reference/images")
    rgb.save(folder / "comments.png", pnginfo=comments)
    wide = np.arange(9 * 12, dtype=">u2").reshape(9, 12)
    Image.fromarray((wide * 7).astype(np.uint16)).save(folder / "gray_16_bits.png")
    samples = (wide.astype(np.uint32) * 601 % 65536).astype(">u2")
    raw_png(folder / "rgb_16_bits.png", 16, 2, samples.view(np.uint8))
    raw_png(folder / "rgba_16_bits.png", 16, 6, samples.view(np.uint8))
    raw_png(folder / "gray_alpha_16_bits.png", 16, 4, samples.view(np.uint8))
    raw_png(folder / "gray_2_bits.png", 2, 0, noise(9, 3, 2)[..., 0])
    raw_png(folder / "gray_4_bits.png", 4, 0, noise(9, 5, 3)[..., 0])

    waves.save(folder / "rgb.jpg", quality=92, subsampling=0)
    waves.save(folder / "subsampled.jpg", quality=92, subsampling=2)
    waves.save(folder / "subsampled_across.jpg", quality=92, subsampling=1)
    waves.save(folder / "progressive.jpg", quality=92, subsampling=0, progressive=True)
    waves.save(folder / "restarts.jpg", quality=92, subsampling=0, restart_marker_blocks=2)
    waves.convert("L").save(folder / "gray.jpg", quality=92)
    Image.fromarray(smooth(64, 80)).save(folder / "larger.jpg", quality=80, subsampling=2)
    cmyk = np.concatenate([smooth(HEIGHT, WIDTH), smooth(HEIGHT, WIDTH)[..., :1] // 2], axis=-1)
    Image.fromarray(cmyk, mode="CMYK").save(folder / "cmyk.jpg", quality=95, subsampling=0)
    for orientation in range(1, 9):
        save = {"quality": 92, "subsampling": 0, "exif": exif(orientation)}
        waves.crop((0, 0, 11, 6)).save(folder / f"oriented_{orientation}.jpg", **save)

    palette.save(folder / "palette.gif")
    palette.save(folder / "transparent.gif", transparency=3)
    gray.save(folder / "gray.gif")
    palette.save(folder / "moving.gif", save_all=True, append_images=[palette.rotate(180)])

    rgb.save(folder / "rgb.bmp")
    gray.save(folder / "gray.bmp")
    palette.save(folder / "palette.bmp")
    gray.convert("1").save(folder / "one_bit.bmp")
    rgba.save(folder / "rgba.bmp")

    rgb.save(folder / "rgb.webp", lossless=True)
    # Exact: otherwise WebP may choose any colour below transparent pixels, which RGB reveals.
    rgba.save(folder / "rgba.webp", lossless=True, exact=True)
    waves.save(folder / "lossy.webp", quality=90)
    rgb.save(folder / "oriented_8.webp", lossless=True, exif=exif(8))

    # For resizing: odd, tall, wide, and as small as can be. The last loses more height than width.
    for height, width in ((1, 1), (1, 7), (7, 1), (64, 5), (5, 64), (40, 40), (50, 33)):
        Image.fromarray(noise(height, width, height * 100 + width)).save(folder / f"noise_{height}_{width}.png")
    Image.fromarray(drawing(200, 150)).save(folder / "drawing_200_150.png")
    Image.fromarray(drawing(150, 200)).save(folder / "drawing_150_200.png")

    return {path.name: np.array(load_image(str(path))) for path in sorted(folder.iterdir())}
