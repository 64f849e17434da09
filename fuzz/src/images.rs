//! Image files and preprocessor configs.

use attentive_images::{Image, Preprocessor, ResizeTo, Size};

use crate::{DEFAULT_MEMORY, Files, Form, Target, checked, seeds};

pub(crate) const TARGETS: [Target; 2] = [
    Target {
        name: "image",
        run: |bytes| {
            checked(Image::decode("it", bytes));
        },
        form: Form::Bytes,
        seeds: seeds::images,
        // The largest image needs memory for decoded pixels, RGB pixels, and rotated RGB pixels.
        memory: 1000 << 20,
    },
    Target {
        name: "preprocessor",
        run: |bytes| {
            let files = Files::parse(bytes).named(&["preprocessor_config.json", "config.json"]);
            files.with_folder(|folder| {
                let read = checked(Preprocessor::from_folder(folder));
                if let Some(preprocessor) = read.filter(is_small) {
                    checked(preprocessor.pixel_values(&small_image()));
                }
            });
        },
        form: Form::Files,
        seeds: seeds::preprocessors,
        memory: 2 * DEFAULT_MEMORY,
    },
];

/// Whether its output is small enough to run.
fn is_small(preprocessor: &Preprocessor) -> bool {
    let resized = preprocessor.resize.map(|resize| resize.to);
    let edge = match resized {
        Some(ResizeTo::ShortestEdge(edge)) => edge,
        Some(ResizeTo::Exact(size)) => size.height.max(size.width),
        None => 0,
    };
    let crop = preprocessor
        .crop
        .map_or(0, |size| size.height.max(size.width));
    // Sizes beyond the limit are refused before allocating.
    let small = |edge: usize| edge <= 512 || edge > 1 << 26;
    small(edge) && small(crop)
}

fn small_image() -> Image {
    let size = Size {
        height: 3,
        width: 5,
    };
    Image::from_rgb(size, (0..45).collect())
}
