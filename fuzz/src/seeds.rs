//! Seeds, mostly from fixtures. They are small, so that a mutation is more likely to matter.

use std::path::{Path, PathBuf};

use crate::Files;
use crate::hub::CACHE_FILES;
use crate::tensors::SHARDED;
use crate::texts::TOKENIZER_FILES;

/// Larger fixtures are skipped.
const MAX_SEED_BYTES: u64 = 24 << 10;

/// A path from the root of the workspace.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The small files of a folder, sorted by name for determinism.
fn small_files(folder: &str) -> Vec<PathBuf> {
    let read = std::fs::read_dir(root(folder)).expect("the folder exists");
    let mut paths: Vec<PathBuf> = read
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| {
            path.metadata()
                .is_ok_and(|it| it.is_file() && it.len() <= MAX_SEED_BYTES)
        })
        .collect();
    paths.sort();
    paths
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder with these names.
pub(crate) fn folder(folder: &Path, names: &[&str]) -> Files {
    let existing = names.iter().filter(|name| folder.join(name).is_file());
    let files = existing.map(|name| ((*name).to_owned(), read(folder.join(name))));
    Files(files.collect())
}

/// The subfolders of a folder, sorted.
pub(crate) fn folders(of: &str) -> Vec<PathBuf> {
    let read = std::fs::read_dir(root(of)).expect("the folder exists");
    let mut paths: Vec<PathBuf> = read
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir())
        .collect();
    paths.sort();
    paths
}

/// A safetensors file of two small tensors.
fn two_tensors() -> Vec<u8> {
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &[0; 32]].concat()
}

pub(crate) fn safetensors() -> Vec<Vec<u8>> {
    let fixtures = small_files("fixtures/attention").into_iter().take(3);
    let mut seeds: Vec<Vec<u8>> = fixtures.map(read).collect();
    seeds.push(two_tensors());
    seeds
}

pub(crate) fn indices() -> Vec<Vec<u8>> {
    let index = |shard: &str, tensors: [&str; 2]| {
        format!(
            r#"{{"metadata":{{"total_size":32}},"weight_map":{{"{}":"{shard}","{}":"{shard}"}}}}"#,
            tensors[0], tensors[1]
        )
    };
    let bin = read(root("crates/formats/tests/pickle/state_dict_zip.bin"));
    let of_bin = r#"{"weight_map":{}}"#;
    vec![
        Files::of([
            (SHARDED[0], index("1.safetensors", ["a", "b"]).as_bytes()),
            ("1.safetensors", &two_tensors()),
        ])
        .to_bytes(),
        Files::of([(SHARDED[1], of_bin.as_bytes()), ("1.bin", &bin)]).to_bytes(),
    ]
}

pub(crate) fn gguf() -> Vec<Vec<u8>> {
    let folder = small_files("crates/formats/tests/gguf");
    let files = folder
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "gguf"));
    files.map(read).collect()
}

pub(crate) fn pickles() -> Vec<Vec<u8>> {
    let folder = small_files("crates/formats/tests/pickle");
    let files = folder
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "bin"));
    files.map(read).collect()
}

pub(crate) fn tokenizers() -> Vec<Vec<u8>> {
    let folders = folders("crates/text/tests/folders");
    let mut seeds: Vec<Vec<u8>> = folders
        .iter()
        .map(|path| folder(path, &TOKENIZER_FILES).to_bytes())
        .collect();
    seeds.push(trained());
    seeds
}

/// A tokenizer.json that we trained.
fn trained() -> Vec<u8> {
    use attentive_text::{Tokenizer, TokenizerConfig};
    let text = ["Once upon a time there was a small fox.".to_owned()];
    let config = TokenizerConfig::Bpe { vocabulary: 262 };
    let tokenizer = Tokenizer::train(&config, &text).expect("there is text");
    let text = tokenizer.to_json().expect("one vocabulary");
    Files::of([("tokenizer.json", text.as_bytes())]).to_bytes()
}

pub(crate) fn chats() -> Vec<Vec<u8>> {
    [
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "{%- set ns = namespace(text='') -%}\n{%- for m in messages if m.role != 'system' -%}\n{%- set ns.text = ns.text ~ m.content.strip().replace('H', 'h') -%}\n{%- endfor -%}\n{{ ns.text * 3 }}{{ messages | tojson(indent=2) }}",
        "{% macro line(text, width=9) %}{{ text | upper | indent(width) }}{% endmacro %}{{ line(messages[0]['content']) }}{{ range(10) | list | join(',') }}{{ strftime_now('%d %b %Y') }}",
        "{% if messages[0].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ '%05d' | format(7) }}{{ 'x' * 100 }}{{ messages | map(attribute='role') | list }}",
    ]
    .map(|template| template.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn texts() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 3] = [
        "\u{feff}Ünïcödé and 7 lines\nof text\r\n".as_bytes(),
        b"question\tanswer\n1\t2\n",
        b"{\"text\": \"one\"}\n{\"text\": \"two\"}\n",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}

pub(crate) fn images() -> Vec<Vec<u8>> {
    small_files("fixtures/images/files")
        .into_iter()
        .map(read)
        .collect()
}

pub(crate) fn preprocessors() -> Vec<Vec<u8>> {
    let configs = [
        r#"{"image_processor_type":"ViTImageProcessor","do_resize":true,"size":{"height":30,"width":20},"resample":2,"do_rescale":true,"rescale_factor":0.00392156862745098,"do_normalize":true,"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]}"#,
        r#"{"feature_extractor_type":"DeiTFeatureExtractor","size":16,"resample":3,"do_center_crop":true,"crop_size":12,"image_mean":0.4}"#,
        r#"{"size":{"shortest_edge":8},"do_normalize":false}"#,
    ];
    let model = ("config.json", &br#"{"model_type":"vit"}"#[..]);
    configs
        .map(|config| {
            Files::of([("preprocessor_config.json", config.as_bytes()), model]).to_bytes()
        })
        .to_vec()
}

pub(crate) fn model_ids() -> Vec<Vec<u8>> {
    ["owner/name", "o/gpt_2.5-x@v1.0", "o/n@refs/pr/1"]
        .map(|id| id.as_bytes().to_vec())
        .to_vec()
}

pub(crate) fn caches() -> Vec<Vec<u8>> {
    let contents = [
        "0123456789012345678901234567890123456789",
        "{}",
        r#"[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]"#,
        r#"{"weight_map":{"a":"1.safetensors"}}"#,
        "",
    ];
    let files = CACHE_FILES.into_iter().zip(contents.map(str::as_bytes));
    vec![Files::of(files).to_bytes()]
}
