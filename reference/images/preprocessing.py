"""What Pillow's resizing and transformers' image processors (the Pillow backend) compute from the files."""

import json
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from transformers import DeiTImageProcessorPil, ViTImageProcessorPil
from transformers.image_utils import load_image

RESIZED_FILES = ["noise_1_1", "noise_1_7", "noise_7_1", "noise_64_5", "noise_5_64", "noise_40_40", "noise_50_33"]
SIZES = [(1, 1), (8, 8), (19, 20), (31, 13), (3, 50), (40, 9), (11, 33)]

VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 12, "width": 14}}
DEIT = {"image_processor_type": "DeiTImageProcessor", "size": {"height": 16, "width": 16}, "crop_size": 13}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}

CONFIGS = {
    "vit": VIT,
    "vit_fast": {**VIT, "image_processor_type": "ViTImageProcessorFast", "do_convert_rgb": None, "pad_size": None},
    "vit_extractor": {"feature_extractor_type": "ViTFeatureExtractor", "size": 16, **IMAGENET},
    "vit_list": {**VIT, "size": [9, 21], "resample": 3},
    "vit_shortest_edge": {**VIT, "size": {"shortest_edge": 13}},
    "vit_not_square": {**VIT, "size": 13, "default_to_square": False, "resample": 1},
    "vit_nearest": {**VIT, "resample": 0},
    "vit_not_rescaled": {**VIT, "do_rescale": False, "image_mean": 127.5, "image_std": 127.5},
    "vit_not_normalized": {**VIT, "do_normalize": False},
    "vit_other_factor": {**VIT, "rescale_factor": 1 / 127.5, "image_mean": [1.0, 1.0, 1.0], "image_std": [1, 1, 1]},
    "vit_bytes": {**VIT, "do_rescale": False, "do_normalize": False},
    "vit_cropped": {**VIT, "do_resize": False, "do_center_crop": True, "crop_size": 12},
    "vit_padded": {**VIT, "do_resize": False, "do_center_crop": True, "crop_size": {"height": 20, "width": 41}},
    "deit": DEIT,
    "deit_extractor": {"feature_extractor_type": "DeiTFeatureExtractor", "size": 17, "crop_size": 14, **IMAGENET},
    "deit_uncropped": {**DEIT, "do_center_crop": False},
    "deit_wider_crop": {**DEIT, "size": {"shortest_edge": 12}, "crop_size": {"height": 17, "width": 11}},
}
PROCESSED_FILES = ["noise_50_33.png", "noise_7_1.png"]
# Default sizes, of which only some values are stored: 224 by 224 pixels are many values.
DEFAULT_SIZE_CONFIGS = {
    "vit_default": {"image_processor_type": "ViTImageProcessor"},
    "deit_default": {"image_processor_type": "DeiTImageProcessor"},
}
STEP = 32


def resize_cases(files: Path) -> tuple[dict[str, np.ndarray], list[dict]]:
    arrays, cases = {}, []
    for name in RESIZED_FILES:
        image = Image.open(files / f"{name}.png").convert("RGB")
        for height, width in SIZES:
            for resample in range(4):
                key = f"resized.{name}.{height}.{width}.{resample}"
                arrays[key] = np.array(image.resize((width, height), resample=resample))
                cases.append({"key": key, "file": f"{name}.png", "size": [height, width], "resample": resample})
    return arrays, cases


def pixel_value_cases(files: Path) -> tuple[dict[str, np.ndarray], list[dict]]:
    arrays, cases = {}, []
    for name, config in CONFIGS.items():
        for file in PROCESSED_FILES:
            key = f"processed.{name}.{file}"
            arrays[key] = pixel_values(config, files / file)
            cases.append({"key": key, "file": file, "config": config, "step": 1})
    for name, config in DEFAULT_SIZE_CONFIGS.items():
        for file in ("drawing_200_150.png", "drawing_150_200.png"):
            key = f"processed.{name}.{file}"
            # Copied, since safetensors saves the raw memory and would ignore the strides.
            arrays[key] = pixel_values(config, files / file)[:, ::STEP, ::STEP].copy()
            cases.append({"key": key, "file": file, "config": config, "step": STEP})
    return arrays, cases


def pixel_values(config: dict, file: Path) -> np.ndarray:
    name = config.get("image_processor_type", config.get("feature_extractor_type"))
    processor = DeiTImageProcessorPil if name.startswith("DeiT") else ViTImageProcessorPil
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "preprocessor_config.json").write_text(json.dumps(config))
        processor = processor.from_pretrained(folder)
    values = processor(load_image(str(file)), return_tensors="np")["pixel_values"][0]
    return np.ascontiguousarray(values)
