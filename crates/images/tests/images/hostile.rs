//! No input makes the decoder panic or exceed the memory limit.

use std::path::Path;

use attentive_images::{Image, ImageError};
use proptest::prelude::*;

use crate::golden::{files, folder};

fn error(bytes: &[u8]) -> String {
    let error = Image::decode("it", bytes).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one sentence: {error}");
    error
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join("files").join(name)).unwrap()
}

#[test]
fn a_file_that_is_not_an_image_is_reported() {
    let expected =
        "it is not an image of a supported format; give a PNG, JPEG, GIF, BMP or WebP file";
    for bytes in [
        &b""[..],
        b"hello",
        b"<svg></svg>",
        b"II*\0a TIFF file is not read here",
    ] {
        assert_eq!(error(bytes), expected);
    }
}

/// What the format has and the decoder does not read.
#[test]
fn an_unusual_file_is_not_supported_rather_than_broken() {
    let mut unusual = file("rgb.bmp");
    // The compression: BMP files may hold a JPEG.
    unusual[30] = 4;
    let error = Image::decode("it", &unusual).unwrap_err();
    assert!(matches!(error, ImageError::Unsupported { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("it is not supported ("), "{text}");
    assert!(
        text.ends_with("JPEG compression); convert it to PNG"),
        "{text}"
    );
    unusual[30] = 99;
    let error = Image::decode("it", &unusual).unwrap_err();
    assert!(matches!(error, ImageError::Broken { .. }), "{error}");
}

#[test]
fn a_missing_file_is_reported() {
    let error = Image::open(Path::new("no/such.png")).unwrap_err();
    assert!(matches!(error, ImageError::Io { .. }));
    assert!(error.to_string().starts_with("no/such.png: "), "{error}");
}

/// A truncated image is an error in every format, as in Pillow: missing data is never filled in.
#[test]
fn a_truncated_file_is_an_error() {
    // The first frame of an animation is complete long before the file is.
    for path in files()
        .into_iter()
        .filter(|path| !path.ends_with("moving.gif"))
    {
        let bytes = std::fs::read(&path).unwrap();
        for part in 1..8 {
            let truncated = &bytes[..bytes.len() * part / 8];
            if let Ok(image) = Image::decode("it", truncated) {
                panic!("{}: {part}/8 of it gave {:?}", path.display(), image.size());
            }
        }
    }
    let bytes = file("rgb.jpg");
    assert_eq!(
        error(&bytes[..bytes.len() - 2]),
        "it cannot be decoded (the file is truncated); download or save it again, or convert it to PNG"
    );
}

/// Cameras embed previews with end markers before the image, and videos after it: neither marks its end.
#[test]
fn only_the_end_marker_of_the_image_itself_counts() {
    let image_bytes = file("rgb.jpg");
    let preview = file("gray.jpg");
    let length = u16::try_from(preview.len() + 2).unwrap().to_be_bytes();
    let (start, rest) = image_bytes.split_at(2);
    let segment = [&[0xFF, 0xEF], &length[..], &preview].concat();
    let with_preview = [start, &segment, rest].concat();
    let expected = Image::decode("it", &image_bytes).unwrap();
    let with_video = [&with_preview, &b"a film \xFF\xDA\0\x08"[..]].concat();
    assert_eq!(Image::decode("it", &with_video).unwrap(), expected);
    let truncated = &with_preview[..with_preview.len() - 20];
    assert!(error(truncated).contains("the file is truncated"));
}

/// A header that declares too many pixels is refused before decoding.
#[test]
fn a_decompression_bomb_is_refused_before_allocating() {
    let mut bomb = file("rgb.bmp");
    bomb[18..22].copy_from_slice(&60_000u32.to_le_bytes());
    bomb[22..26].copy_from_slice(&60_000u32.to_le_bytes());
    assert_eq!(
        error(&bomb),
        "it is too large (60000 by 60000 pixels; at most 67108864 pixels in all); make it smaller first"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn truncated_and_changed_files_do_not_panic(
        file in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let files = files();
        let mut bytes = std::fs::read(file.get(&files)).unwrap();
        for (at, value) in changes {
            *at.get_mut(&mut bytes) = value;
        }
        let length = if whole { bytes.len() } else { cut.index(bytes.len()) };
        if let Err(error) = Image::decode("it", &bytes[..length]) {
            prop_assert!(!error.to_string().contains('\n'), "{}", error);
        }
    }

    /// Random bytes after the magic of each format.
    #[test]
    fn random_bytes_do_not_panic(
        magic in prop::sample::select(vec![
            &b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff", b"GIF89a", b"BM", b"RIFF\x40\0\0\0WEBPVP8 ", b"RIFF\x40\0\0\0WEBPVP8L",
        ]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = Image::decode("it", &[magic, &rest].concat());
    }
}
