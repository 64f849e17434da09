"""Makes fixtures/images/: small image files of many kinds, and their pixels by Pillow and pixel values by transformers.

    python reference/images

Needs requirements-images.txt. `files/` has the images. `golden.safetensors` has, as `decoded.FILE`, the RGB bytes of each
file; as `resized.…`, bytes resized by each filter; as `processed.…`, pixel values. The cases, with sizes and settings, are
JSON under the key `cases` of its metadata. Two runs write the same bytes.
"""

import json
from pathlib import Path

from safetensors.numpy import save_file

import files
import preprocessing

FOLDER = Path(__file__).resolve().parent.parent.parent / "fixtures" / "images"


def main() -> None:
    images = FOLDER / "files"
    images.mkdir(parents=True, exist_ok=True)
    decoded = {f"decoded.{name}": array for name, array in files.make(images).items()}
    resized, resized_cases = preprocessing.resize_cases(images)
    values, processed_cases = preprocessing.pixel_value_cases(images)
    cases = {"resized": resized_cases, "processed": processed_cases}
    # The large images are only in their files, which are lossless PNG.
    small = {key: array for key, array in decoded.items() if not key.startswith("decoded.drawing_")}
    save_file(small | resized | values, FOLDER / "golden.safetensors", {"cases": json.dumps(cases)})


if __name__ == "__main__":
    main()
