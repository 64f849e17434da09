"""Synthetic images, free of third-party rights: gradients, digits, noise."""

import numpy as np

DIGITS = {
    "2": ["01110", "10001", "00001", "00110", "01000", "10000", "11111"],
    "7": ["11111", "00001", "00010", "00100", "01000", "01000", "01000"],
}


def drawing(height: int, width: int) -> np.ndarray:
    """A gradient of three colours with two digits in it, uint8 of [height, width, 3]."""
    rows = np.linspace(0, 255, height)[:, None] * np.ones((1, width))
    columns = np.ones((height, 1)) * np.linspace(255, 20, width)[None, :]
    image = np.stack([rows, columns, (rows + 255 - columns) / 2], axis=-1).round().astype(np.uint8)
    for digit, colour, left in (("2", (250, 240, 10), 0.1), ("7", (10, 20, 120), 0.55)):
        scale = max(1, min(height // 9, int(width * 0.4) // 5))
        mask = np.array([[int(dot) for dot in line] for line in DIGITS[digit]], dtype=bool)
        mask = mask.repeat(scale, axis=0).repeat(scale, axis=1)
        part = image[height // 10 :, int(width * left) :][: mask.shape[0], : mask.shape[1]]
        part[mask[: part.shape[0], : part.shape[1]]] = colour
    return image


def noise(height: int, width: int, seed: int) -> np.ndarray:
    """Noise with many extreme values, on which filters with negative lobes overshoot."""
    draw = np.random.default_rng(seed)
    image = draw.integers(0, 256, (height, width, 3))
    extreme = draw.integers(0, 2, (height, width, 3)) * 255
    return np.where(draw.random((height, width, 3)) < 0.5, image, extreme).astype(np.uint8)


def smooth(height: int, width: int) -> np.ndarray:
    """Without edges, for lossy formats: there decoders differ by rounding only."""
    rows = np.arange(height)[:, None] / 9
    columns = np.arange(width)[None, :] / 7
    waves = [np.sin(rows) + np.cos(columns), np.cos(rows - columns), np.sin(rows + columns + 1) + 0 * columns]
    return np.stack([128 + wave * 50 for wave in waves], axis=-1).round().astype(np.uint8)
