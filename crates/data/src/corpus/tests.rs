//! Reading, splitting and hashing corpora, and its error messages.

use super::*;
use attentive_text::TokenizerConfig;

fn file(name: &str, contents: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join(name);
    std::fs::write(&path, contents).expect("a temporary file");
    (directory, path)
}

/// The error message, with `DIR` for the temporary directory.
fn message(path: &Path) -> String {
    let error = Corpus::read(&[path.to_owned()]).expect_err("the file is wrong");
    let directory = path.parent().expect("a directory").display().to_string();
    error.to_string().replace(&directory, "DIR")
}

fn corpus(documents: &[&str]) -> Corpus {
    let documents: Vec<String> = documents.iter().map(|text| (*text).to_owned()).collect();
    Corpus {
        names: (0..documents.len())
            .map(|index| format!("document {index}"))
            .collect(),
        documents,
    }
}

fn bytes() -> Tokenizer {
    Tokenizer::train(&TokenizerConfig::Bytes {}, &[]).expect("bytes need no text")
}

#[test]
fn every_unusable_file_has_its_error_message() {
    let (directory, path) = file("latin.txt", b"caf\xe9 au lait");
    insta::assert_snapshot!(message(&path), @"the file DIR/latin.txt is not UTF-8 text (the first invalid byte is at offset 3); convert it to UTF-8");
    insta::assert_snapshot!(message(&directory.path().join("gone.txt")), @"the file DIR/gone.txt does not exist; check the path");
    let (_directory, path) = file("empty.txt", b"");
    insta::assert_snapshot!(message(&path), @"the file DIR/empty.txt is empty; give a file that holds text");
    let (_directory, path) = file("mark.txt", b"\xef\xbb\xbf");
    insta::assert_snapshot!(message(&path), @"the file DIR/mark.txt is empty; give a file that holds text");
    let folder = directory.path().join("folder");
    std::fs::create_dir(&folder).expect("a folder");
    insta::assert_snapshot!(message(&folder), @"DIR/folder is a directory; name the files in it one by one");
    assert!(matches!(Corpus::read(&[]), Err(DataError::NoFiles)));
}

#[test]
fn the_byte_order_mark_is_dropped() {
    let (_directory, path) = file("mark.txt", "\u{FEFF}text".as_bytes());
    assert_eq!(
        Corpus::read(&[path]).expect("a good file").documents(),
        ["text"]
    );
}

#[test]
fn the_fingerprint_is_of_the_contents() {
    let hash = corpus(&["ab", "c"]).fingerprint();
    assert_eq!(hash, corpus(&["ab", "c"]).fingerprint());
    assert_ne!(hash, corpus(&["a", "bc"]).fingerprint());
    assert_ne!(hash, corpus(&["ab", "d"]).fingerprint());
    // FNV-1a of eight zero bytes: the hash must be the same on every machine.
    assert_eq!(corpus(&[""]).fingerprint(), 0xa8c7_f832_281a_39c5);
}

#[test]
fn a_single_document_is_split_inside() {
    let split = corpus(&["0123456789"])
        .split(&bytes(), 0.2)
        .expect("a good split");
    assert_eq!(
        (split.training.len(), split.held_out),
        (8, vec![b'8'.into(), b'9'.into()])
    );
    let unsplit = corpus(&["0123456789"])
        .split(&bytes(), 0.0)
        .expect("a good split");
    assert_eq!((unsplit.training.len(), unsplit.held_out.len()), (10, 0));
}

#[test]
fn many_documents_are_split_between_documents() {
    let documents: Vec<&str> = vec!["abc"; 40];
    let split = corpus(&documents)
        .split(&bytes(), 0.1)
        .expect("a good split");
    assert_eq!(
        (split.training.len(), split.held_out.len()),
        (36 * 4, 4 * 4)
    );
    assert_eq!(
        split.held_out[..4],
        [b'a'.into(), b'b'.into(), b'c'.into(), 256]
    );
}

#[test]
fn few_documents_are_joined_by_the_end_of_text() {
    let split = corpus(&["a", "b"])
        .split(&bytes(), 0.0)
        .expect("a good split");
    assert_eq!(split.training, [b'a'.into(), 256, b'b'.into(), 256]);
}

#[test]
fn an_unknown_character_is_named_with_its_document() {
    let characters =
        Tokenizer::train(&TokenizerConfig::Characters {}, &["abc".to_owned()]).expect("training");
    let error = corpus(&["abc", "abé"])
        .split(&characters, 0.1)
        .expect_err("é is unknown");
    insta::assert_snapshot!(error, @"the character 'é' at byte 2 of document 1 is not in the tokenizer's vocabulary; remove it, or use a tokenizer of bytes");
}

#[test]
fn impossible_splits_are_refused() {
    for fraction in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            corpus(&["abc"]).split(&bytes(), fraction),
            Err(DataError::HeldOutFraction { .. })
        ));
    }
    let split = corpus(&["0123456789"])
        .split(&bytes(), 0.2)
        .expect("a good split");
    split.require_windows(1).expect("both parts hold two ids");
    let error = split
        .require_windows(4)
        .expect_err("two held-out ids are too few");
    insta::assert_snapshot!(error, @"the held-out part of the corpus holds 2 tokens, but one window of length 4 needs 5; shorten the windows or add text");
}

#[test]
fn stories_are_documents() {
    let stories = Corpus::stories(1, 30);
    assert_eq!(stories.documents().len(), 30);
    assert!(
        stories
            .documents()
            .iter()
            .all(|story| story.ends_with('\n'))
    );
    let split = stories.split(&bytes(), 0.1).expect("a good split");
    assert_eq!(split.held_out.last(), Some(&256));
}
