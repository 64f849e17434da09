//! What each kind supports, found by building every example in every role, and the table of it in docs/attention.md.

use attentive_model::attention::{AttentionConfig, CacheSize, Role};
use burn::tensor::Device;

use crate::docs_page;
use crate::examples::examples;
use crate::test_layer::{BATCH, LENGTH, MEMORY, ROLES, TestLayer, WIDTH, noise};

const START: &str = "<!-- support: from here -->";
const END: &str = "<!-- support: to here -->";

/// Longer than every window, chunk and block of the examples, so that costs differ only if they grow with the length.
const LENGTHS: [usize; 2] = [256, 4096];

/// What a config supports.
#[derive(Debug, PartialEq)]
struct Support {
    /// For each role, whether the layer can be built.
    roles: [bool; 3],
    cache: &'static str,
    weights: &'static str,
    cost: &'static str,
}

/// One row of the table: the examples of one kind with the same support.
struct Row {
    kind: String,
    examples: Vec<&'static str>,
    support: Support,
}

#[test]
fn the_table_of_the_page_matches_what_the_layers_support() {
    let page = docs_page::text();
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
        std::fs::write(docs_page::path(), page).unwrap();
        return;
    }
    panic!(
        "docs/attention.md: the support table is not what the attentions support. \
         Run the test with INSTA_UPDATE=always to write this one:\n\n{expected}"
    );
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for example in examples() {
        let config: AttentionConfig = serde_json::from_str(example.config).unwrap();
        // The table is of the library's own kinds.
        if matches!(config, AttentionConfig::Custom(_)) {
            continue;
        }
        let json = serde_json::to_value(&config).unwrap();
        let kind = json["kind"].as_str().unwrap().to_owned();
        let (name, support) = (short(example.name, &kind), support(&config));
        let row = rows
            .iter_mut()
            .find(|row| row.kind == kind && row.support == support);
        match row {
            Some(row) => row.examples.push(name),
            None => rows.push(Row {
                kind,
                examples: vec![name],
                support,
            }),
        }
    }
    // Rows are grouped by kind, in the order of the examples.
    let order: Vec<String> = rows.iter().map(|row| row.kind.clone()).collect();
    rows.sort_by_key(|row| order.iter().position(|kind| *kind == row.kind));
    rows
}

/// The name of an example without that of its kind.
fn short(name: &'static str, kind: &str) -> &'static str {
    let spaced = name.replace(['-', '_'], " ");
    let rest = match spaced.starts_with(&kind.replace('_', " ")) {
        true => name[kind.len()..].trim_start_matches(", "),
        false => name,
    };
    if rest.is_empty() { "plain" } else { rest }
}

fn support(config: &AttentionConfig) -> Support {
    let device = Device::flex();
    let built = ROLES.map(|role| TestLayer::new(config, role, &device).ok());
    let roles = [0, 1, 2].map(|role| built[role].is_some());
    let mut weights: Vec<&str> = built.iter().flatten().map(weights).collect();
    weights.dedup();
    assert_eq!(weights.len(), 1, "{config:?}: weights in some roles only");
    Support {
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

/// Whether the layer can decode one position at a time.
fn decodes(layer: &TestLayer) -> bool {
    layer.role != Role::Bidirectional
}

fn weights(layer: &TestLayer) -> &'static str {
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let keys = match layer.role {
        Role::Cross => MEMORY,
        Role::Bidirectional | Role::Causal => LENGTH,
    };
    match layer.weights(x).map(|weights| weights.dims()[3]) {
        None => "no",
        Some(columns) if columns == keys => "yes",
        Some(_) => "over projected positions",
    }
}

fn cost(config: &AttentionConfig) -> &'static str {
    let [short, long] =
        LENGTHS.map(|length| config.flops(WIDTH, length, Role::Bidirectional).attention);
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
        let [bidirectional, causal, cross] = row.support.roles.map(|builds| match builds {
            true => "yes",
            false => "no",
        });
        let Support {
            cache,
            weights,
            cost,
            ..
        } = row.support;
        let (kind, examples) = (&row.kind, row.examples.join("; "));
        table += &format!(
            "| `{kind}` | {examples} | {bidirectional} | {causal} | {cross} | {cache} | {weights} | {cost} |\n"
        );
    }
    table
}
