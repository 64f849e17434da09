//! Runs the commands of README.md, of docs/ and of the help texts as a reader would: each page from top to bottom, in an empty
//! folder of its own. Every command has to succeed and to print something.
//!
//! What differs from a reader's machine:
//! - Training is short: `SHORTER` is appended to its commands, and `--steps` is replaced.
//! - A test hub serves the models of `HUB`: fixtures, with a tokenizer of few words.
//! - What a page downloads with curl is a fixture too, and so are the files of `OWN_FILES`, which stand for the reader's own.
//! - The help of all commands but `train` is one page, which begins with the program's own: `attentive train`.
//! - The commands of `LEFT_OUT` are not run.

use std::path::{Path, PathBuf};
use std::process::Command;

use attentive::data::Corpus;
use attentive::tensor::TensorData;
use serde_json::{Map, Value, json};

use crate::forward;
use crate::hub::server::{Model, Server};
use crate::program::{attentive, connect, isolate};

/// How the commands begin that are not run, and why.
const LEFT_OUT: [(&str, &str); 6] = [
    ("cargo test", "is what runs this test"),
    (
        "cargo doc",
        "builds the documentation, as `cargo xtask check` does",
    ),
    (
        "cargo run --release -p attentive --example",
        "builds an example; tests of `attentive` run them",
    ),
    ("cargo xtask", "measures for minutes, and needs PyTorch"),
    (
        "curl",
        "needs a network; a fixture is put in place of the file",
    ),
    ("attentive man | man", "needs a viewer of manual pages"),
];

/// What is appended to commands that train.
const SHORTER: &str = " --set training.steps=2 --set training.batch_size=2 --set training.evaluation_windows=4 \
                       --set sample.tokens=8";

/// Appended as well, unless a command contains one of `FILE_DATA`: the recipe is then of files.
const FEWER_STORIES: &str = " --set data.count=300";
const FILE_DATA: [&str; 2] = ["--data", "runs/plays"];

/// Pages, and the files that are assumed to be the reader's own.
const OWN_FILES: [(&str, &str); 4] = [
    ("docs/models.md", "in.safetensors"),
    ("help", "in.safetensors"),
    ("help", "photo.jpg"),
    ("help train", "plays.txt"),
];

/// Hub models, and the fixtures that stand for them.
#[rustfmt::skip] // Keeps the columns aligned.
const HUB: [(&str, &str); 13] = [
    ("cross-encoder/ms-marco-MiniLM-L6-v2",                         "models/bert-classifier"),
    ("distilbert/distilbert-base-cased-distilled-squad",            "models/bert-answers"),
    ("distilbert/distilbert-base-uncased-finetuned-sst-2-english",  "models/bert-classifier"),
    ("dslim/bert-base-NER",                                         "models/bert-tokens"),
    ("facebook/bart-large-cnn",                                     "models/bart"),
    ("FacebookAI/roberta-base",                                     "models/roberta"),
    ("google-bert/bert-base-uncased",                               "models/bert"),
    ("google-t5/t5-small",                                          "models/t5"),
    ("google/vit-base-patch16-224",                                 "models/vit"),
    ("Helsinki-NLP/opus-mt-en-de",                                  "models/marian"),
    ("HuggingFaceTB/SmolLM2-135M-Instruct",                         "llama"),
    ("openai-community/gpt2",                                       "gpt2"),
    ("sentence-transformers/all-MiniLM-L6-v2",                      "models/bert"),
];

/// Fewer commands than these would mean that the pages are not read.
const MIN_COMMANDS: usize = 40;

/// Commands that are run in one folder.
struct Page {
    name: String,
    commands: Vec<String>,
}

#[test]
fn documented_commands_run_as_typed() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path();
    let programs = path.join("bin");
    std::fs::create_dir(&programs).unwrap();
    let program = env!("CARGO_BIN_EXE_attentive");
    std::os::unix::fs::symlink(program, programs.join("attentive")).unwrap();
    let mut pages = written_pages();
    pages.extend(help_pages(path));

    let (mut runs, mut left_out, mut failures) = (0, Vec::new(), Vec::new());
    for (number, page) in pages.iter().enumerate() {
        let folder = path.join(format!("page-{number}"));
        std::fs::create_dir(&folder).unwrap();
        for (_, file) in OWN_FILES.iter().filter(|(name, _)| *name == page.name) {
            write_stand_in(&folder.join(file));
        }
        let before = runs;
        for command in &page.commands {
            if let Some(rule) = LEFT_OUT.iter().find(|rule| command.starts_with(rule.0)) {
                left_out.push(*rule);
                if let Some((_, file)) = command.split_once(" -o ") {
                    let file = file.split_whitespace().next().unwrap();
                    write_stand_in(&folder.join(file));
                }
                continue;
            }
            runs += usize::from(runs_the_program(command));
            if let Err(problem) = run(&folder, &programs, command) {
                failures.push(format!("{}: {command}\n{problem}", page.name));
            }
        }
        println!("{}: {} commands", page.name, runs - before);
    }
    let unused = |rule: &&(&str, &str)| !left_out.contains(*rule);
    let unused: Vec<_> = LEFT_OUT.iter().filter(unused).collect();
    println!("{runs} commands ran, {} were left out:", left_out.len());
    for (start, reason) in LEFT_OUT {
        let count = left_out.iter().filter(|rule| rule.0 == start).count();
        println!("  {count} x {start}: {reason}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(runs >= MIN_COMMANDS, "only {runs} commands ran");
    assert!(unused.is_empty(), "no command begins like this: {unused:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages of docs/.
fn written_pages() -> Vec<Page> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    let names = docs.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    names.sort();
    names.insert(0, "README.md".to_owned());
    let page = |name: String| {
        let text = std::fs::read_to_string(root().join(&name)).unwrap();
        let commands = commands(shell_lines(&text));
        Page { name, commands }
    };
    names.into_iter().map(page).collect()
}

/// The examples of `attentive --help` and of `attentive help` for each command.
fn help_pages(folder: &Path) -> Vec<Page> {
    let overview = help(folder, &["--help"]);
    let names = (overview.lines())
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let mut pages = vec![Page {
        name: "help".to_owned(),
        commands: examples(&overview),
    }];
    for name in names {
        let commands = examples(&help(folder, &["help", name]));
        assert!(!commands.is_empty(), "the help of `{name}` has no example");
        if name != "train" {
            pages[0].commands.extend(commands);
            continue;
        }
        pages.push(Page {
            name: format!("help {name}"),
            commands,
        });
    }
    pages
}

fn help(folder: &Path, arguments: &[&str]) -> String {
    let mut program = attentive(folder, arguments);
    // So wide that no line is wrapped.
    let output = program.env("COLUMNS", "1000").output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn examples(help: &str) -> Vec<String> {
    let lines = (help.lines())
        .skip_while(|line| !["Example:", "Examples:"].contains(line))
        .skip(1)
        .filter_map(|line| line.strip_prefix("  "));
    let lines = lines.inspect(|line| {
        let fits = line.chars().count() <= 78;
        assert!(fits, "wrapped in a terminal of 80 columns: {line}");
    });
    commands(lines)
}

/// The lines of the blocks of shell commands.
fn shell_lines(markdown: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    markdown.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        if is_fence {
            is_inside = *line == "```sh";
        }
        is_inside && !is_fence
    })
}

/// Commands without prompts and comments. A line that ends in a backslash continues on the next.
fn commands<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut all = Vec::new();
    let mut command = String::new();
    for line in lines {
        let line = line.strip_prefix("$ ").unwrap_or(line);
        let line = line.split(" # ").next().unwrap_or_default().trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        command += line;
        if command.ends_with('\\') {
            command.pop();
        } else {
            let typed = std::mem::take(&mut command);
            all.push(typed.replace("cargo run --release -- ", "attentive "));
        }
    }
    all
}

fn runs_the_program(command: &str) -> bool {
    command.split_whitespace().any(|word| word == "attentive")
}

/// Runs a command in a shell.
fn run(folder: &Path, programs: &Path, command: &str) -> Result<(), String> {
    let command = shortened(command);
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]);
    isolate(&mut shell, folder);
    let path = std::env::var("PATH").unwrap_or_default();
    shell
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", folder);
    let model = HUB.iter().find(|(id, _)| command.contains(id));
    let server = model.map(|(id, fixture)| Server::start(hub_model(id, fixture)));
    if let Some(server) = &server {
        connect(&mut shell, &server.address);
    }
    let output = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}\n{errors}", output.status));
    }
    let printed = match command.rsplit_once(" > ") {
        Some((_, file)) => {
            let file = file.trim().replace('~', &folder.display().to_string());
            std::fs::read(folder.join(file)).unwrap_or_default()
        }
        None => output.stdout,
    };
    match runs_the_program(&command) && printed.trim_ascii().is_empty() {
        true => Err(format!("it prints nothing\n{errors}")),
        false => Ok(()),
    }
}

/// The command, but with little training.
fn shortened(command: &str) -> String {
    let command = &command.replace("cargo run --release -- ", "attentive ");
    if !command.starts_with("attentive train") {
        return command.to_owned();
    }
    let mut words: Vec<&str> = command.split(' ').collect();
    if let Some(option) = words.iter().position(|word| *word == "--steps") {
        words[option + 1] = "2";
    }
    let command = words.join(" ") + SHORTER;
    match FILE_DATA.iter().any(|word| command.contains(word)) {
        true => command,
        false => command + FEWER_STORIES,
    }
}

fn fixture(name: &str) -> PathBuf {
    root().join("fixtures").join(name)
}

/// Writes a fixture in place of a file that is not there, by its ending.
fn write_stand_in(path: &Path) {
    let ending = path.extension().and_then(|it| it.to_str());
    match ending.unwrap_or_default() {
        "txt" => {
            let text = Corpus::stories(1, 300).documents().concat();
            std::fs::write(path, text).unwrap();
        }
        "jpg" => {
            std::fs::copy(fixture("images/files/gray.jpg"), path).unwrap();
        }
        "gguf" => {
            std::fs::copy(fixture("gguf/byte-pairs.gguf"), path).unwrap();
        }
        "safetensors" => {
            let ids = TensorData::new(vec![1i64, 2, 3], [1, 3]);
            forward::write(path, vec![("input_ids", ids)]);
        }
        _ => panic!("no fixture can stand for {}", path.display()),
    }
}

/// A fixture under the id of a hub model, with what the fixture lacks.
fn hub_model(id: &str, name: &str) -> Model {
    let mut files: Vec<(&str, Vec<u8>)> = Vec::new();
    for file in ["config.json", "generation_config.json", "model.safetensors"] {
        let bytes = std::fs::read(fixture(name).join(file)).ok();
        files.extend(bytes.map(|bytes| (file, bytes)));
    }
    let config: Value = serde_json::from_slice(&files[0].1).unwrap();
    let bytes = |json: Value| json.to_string().into_bytes();
    match config["vocab_size"].as_u64() {
        Some(vocabulary) => {
            files.push(("tokenizer.json", bytes(tokenizer(vocabulary))));
            files.push(("tokenizer_config.json", bytes(tokenizer_config())));
        }
        None => files.push(("preprocessor_config.json", bytes(preprocessor_config()))),
    }
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, it)| (*name, &it[..])).collect();
    let mut model = Model::new(&files);
    model.repo = id.to_owned();
    model
}

/// The special tokens of the tokenizer; the second is the padding of some fixtures.
const SPECIAL: [&str; 6] = ["[PAD]", "<pad>", "[CLS]", "[SEP]", "[MASK]", "[UNK]"];

/// A tokenizer to which all words are unknown, as the fixtures know none. Other tokens are called w6, w7, …
fn tokenizer(vocabulary: u64) -> Value {
    let special = (0..).zip(SPECIAL);
    let added: Vec<Value> = (special.clone())
        .map(|(id, token)| {
            json!({
                "id": id, "content": token, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false,
            })
        })
        .collect();
    let words = (SPECIAL.len() as u64..vocabulary).map(|id| (format!("w{id}"), json!(id)));
    let tokens = special.map(|(id, token): (u64, _)| (token.to_owned(), json!(id)));
    json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": { "type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3] },
        "model": {
            "type": "WordLevel", "unk_token": "[UNK]",
            "vocab": tokens.chain(words).collect::<Map<String, Value>>(),
        },
    })
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]", "unk_token": "[UNK]",
        "chat_template": "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:",
    })
}

fn preprocessor_config() -> Value {
    json!({
        "image_processor_type": "ViTImageProcessor", "do_resize": true, "size": { "height": 16, "width": 16 },
        "resample": 2, "do_rescale": true, "rescale_factor": 1.0 / 255.0, "do_normalize": true,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    })
}
