//! What each kind can do, found by trying every example in every role, and the table of it in docs/attention.md.

use attentive_model::{AttentionConfig, CacheSize, Role};
use burn::tensor::Device;

use crate::examples::EXAMPLES;
use crate::page;
use crate::setting::{BATCH, LENGTH, MEMORY, Setting, WIDTH, noise};

const START: &str = "<!-- support: from here -->";
const END: &str = "<!-- support: to here -->";

/// Beyond every window, chunk and block of the examples, where costs that still grow do so with the length.
const LENGTHS: [usize; 2] = [256, 4096];

/// What came of trying.
#[derive(Debug, PartialEq)]
struct Answers {
    /// For each role, whether it builds.
    roles: [bool; 3],
    cache: &'static str,
    weights: &'static str,
    cost: &'static str,
}

/// One line of the table: the examples of one kind that answer alike.
struct Row {
    kind: String,
    examples: Vec<&'static str>,
    answers: Answers,
}

#[test]
fn the_table_of_the_page_is_what_trying_says() {
    let page = page::text();
    let parts = page.split_once(START).and_then(|(before, rest)| {
        let (table, after) = rest.split_once(END)?;
        Some((before, table, after))
    });
    let (before, table, after) =
        parts.unwrap_or_else(|| panic!("docs/attention.md has no lines {START} and {END}"));
    let expected = table_of(&rows());
    if table.trim() == expected.trim() {
        return;
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|it| it == "always") {
        let page = format!("{before}{START}\n\n{}\n\n{END}{after}", expected.trim());
        std::fs::write(page::path(), page).unwrap();
        return;
    }
    panic!(
        "docs/attention.md: the support table is not what the attentions can do. \
         Run the test with INSTA_UPDATE=always to write this one:\n\n{expected}"
    );
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for example in EXAMPLES {
        let config: AttentionConfig = serde_json::from_str(example.config).unwrap();
        let words = serde_json::to_value(&config).unwrap();
        let kind = words["kind"].as_str().unwrap().to_owned();
        let (name, answers) = (short(example.name, &kind), answers(&config));
        let alike = rows
            .iter_mut()
            .find(|row| row.kind == kind && row.answers == answers);
        match alike {
            Some(row) => row.examples.push(name),
            None => rows.push(Row {
                kind,
                examples: vec![name],
                answers,
            }),
        }
    }
    // The rows of one kind stand together, kinds in the order of the examples.
    let order: Vec<String> = rows.iter().map(|row| row.kind.clone()).collect();
    rows.sort_by_key(|row| order.iter().position(|kind| *kind == row.kind));
    rows
}

/// The name of an example beside that of its kind.
fn short(name: &'static str, kind: &str) -> &'static str {
    let spaced = name.replace(['-', '_'], " ");
    let rest = match spaced.starts_with(&kind.replace('_', " ")) {
        true => name[kind.len()..].trim_start_matches(", "),
        false => name,
    };
    if rest.is_empty() { "plain" } else { rest }
}

fn answers(config: &AttentionConfig) -> Answers {
    let device = Device::flex();
    let built = Role::ALL.map(|role| Setting::new(config, role, &device).ok());
    let roles = [0, 1, 2].map(|role| built[role].is_some());
    let mut weights: Vec<&str> = built.iter().flatten().map(weights).collect();
    weights.dedup();
    assert_eq!(weights.len(), 1, "{config:?}: weights in some roles alone");
    Answers {
        roles,
        cache: match config.cache(WIDTH) {
            _ if !built.iter().flatten().any(decodes) => "–",
            CacheSize::Growing(_) => "growing",
            CacheSize::Fixed(_) => "constant",
            CacheSize::Impossible => "none",
        },
        weights: weights[0],
        cost: cost(config),
    }
}

/// Whether positions can come one after the other.
fn decodes(setting: &Setting) -> bool {
    setting.role != Role::Bidirectional
}

fn weights(setting: &Setting) -> &'static str {
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let keys = match setting.role {
        Role::Cross => MEMORY,
        Role::Bidirectional | Role::Causal => LENGTH,
    };
    match setting.weights(x).map(|weights| weights.dims()[3]) {
        None => "no",
        Some(over) if over == keys => "yes",
        Some(_) => "over slots",
    }
}

fn cost(config: &AttentionConfig) -> &'static str {
    let [short, long] = LENGTHS.map(|length| config.operations(WIDTH, length).attention);
    match long > short {
        true => "grows with the length",
        false => "constant",
    }
}

fn table_of(rows: &[Row]) -> String {
    let mut table = "| kind | settings | bidirectional | causal | cross | cached decoding | weights | cost per token |\n\
                     |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in rows {
        let [bidirectional, causal, cross] = row.answers.roles.map(|builds| match builds {
            true => "yes",
            false => "no",
        });
        let Answers {
            cache,
            weights,
            cost,
            ..
        } = row.answers;
        let (kind, examples) = (&row.kind, row.examples.join("; "));
        table += &format!(
            "| `{kind}` | {examples} | {bidirectional} | {causal} | {cross} | {cache} | {weights} | {cost} |\n"
        );
    }
    table
}
