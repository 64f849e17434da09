//! Image files, and the settings by which they become numbers.

use attentive_images::{Image, Preprocessor, ResizeTo, Size};

use crate::{Files, Form, LITTLE, Target, seeds, told};

pub(crate) const TARGETS: [Target; 2] = [
    Target {
        name: "image",
        run: |bytes| {
            told(Image::decode("it", bytes));
        },
        form: Form::Bytes,
        seeds: seeds::images,
        // What a picture of the largest size takes: its decoder's pixels, RGB of them, and RGB turned upright.
        memory: 1000 << 20,
    },
    Target {
        name: "preprocessor",
        run: |bytes| {
            let files = Files::parse(bytes).named(&["preprocessor_config.json", "config.json"]);
            files.with_folder(|folder| {
                let read = told(Preprocessor::of_folder(folder));
                if let Some(preprocessor) = read.filter(is_small) {
                    told(preprocessor.pixel_values(&picture()));
                }
            });
        },
        form: Form::Files,
        seeds: seeds::preprocessors,
        memory: 2 * LITTLE,
    },
];

/// Whether what it makes is no larger than it must be to be looked at.
fn is_small(preprocessor: &Preprocessor) -> bool {
    let resized = preprocessor.resize.map(|resize| resize.to);
    let edge = match resized {
        Some(ResizeTo::ShortestEdge(edge)) => edge,
        Some(ResizeTo::Exactly(size)) => size.height.max(size.width),
        None => 0,
    };
    let crop = preprocessor
        .crop
        .map_or(0, |size| size.height.max(size.width));
    // A size beyond all limits is refused before anything is made.
    let small = |edge: usize| edge <= 512 || edge > 1 << 26;
    small(edge) && small(crop)
}

fn picture() -> Image {
    let size = Size {
        height: 3,
        width: 5,
    };
    Image::from_rgb(size, (0..45).collect())
}
