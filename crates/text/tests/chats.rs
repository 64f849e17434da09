//! Chat templates against Hugging Face's rendering, and templates that fail.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use attentive_text::{ChatEnd, ChatMessage, ChatTemplates};
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: attentive_memory::BoundedAllocator<std::alloc::System> =
    attentive_memory::BoundedAllocator(std::alloc::System);

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<ChatMessage>,
    generation_prompt: bool,
    text: Option<String>,
    error: Option<String>,
}

#[test]
fn conversations_are_rendered_as_hugging_face_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/folders/chat");
    let cases = std::fs::read(folder.join("expected_chats.json"))
        .expect("a file of reference/tokenizers_of_folders.py");
    let cases: Vec<Case> = serde_json::from_slice(&cases).expect("cases");
    let templates = ChatTemplates::from_folder(&folder)
        .expect("a good folder")
        .expect("templates");
    assert_eq!(
        templates.names().collect::<Vec<_>>(),
        ["default", "llama_2", "python"]
    );
    for case in cases {
        let end = if case.generation_prompt {
            ChatEnd::GenerationPrompt
        } else {
            ChatEnd::Complete
        };
        let rendered = templates.render(Some(&case.template), &case.messages, end);
        match (rendered, case.text, case.error) {
            (Ok(found), Some(text), None) => assert_eq!(found, text, "{}", case.template),
            (Err(found), None, Some(error)) => {
                assert!(found.to_string().contains(&error), "{found}")
            }
            (found, text, error) => {
                panic!("{}: {found:?}, but {text:?} or {error:?}", case.template)
            }
        }
    }
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("tokenizer_config.json"), config).expect("writing");
    folder
}

/// The rendered text, or the error without the folder.
fn render(template: &str) -> String {
    let config = serde_json::json!({"chat_template": template, "eos_token": "</s>"}).to_string();
    let folder = folder(&config);
    let templates = ChatTemplates::from_folder(folder.path())
        .expect("a good folder")
        .expect("a template");
    let messages = [ChatMessage {
        role: "user".to_owned(),
        content: "Hi".to_owned(),
    }];
    let now = UNIX_EPOCH + Duration::from_secs(1_735_689_599);
    match templates.render_at(None, &messages, ChatEnd::GenerationPrompt, now) {
        Ok(text) => text,
        Err(error) => error
            .to_string()
            .replace(&folder.path().display().to_string(), "DIR"),
    }
}

#[test]
fn strftime_now_formats_the_date() {
    assert_eq!(
        render("{{ strftime_now('%d %b %Y') }}{{ eos_token }}"),
        "31 Dec 2024</s>"
    );
}

#[test]
fn error_messages() {
    insta::assert_snapshot!(render("{{ raise_exception('Only\nsystem messages') }}"), @"the chat template of DIR/tokenizer_config.json failed (Only system messages, in line 1); check the messages and the template");
    insta::assert_snapshot!(render("a\n{% for x in messages %}"), @"the chat template of DIR/tokenizer_config.json failed (syntax error: unexpected end of input, expected end of block, in line 2); check the messages and the template");
    insta::assert_snapshot!(render("{{ missing.field }}"), @"the chat template of DIR/tokenizer_config.json failed (undefined value, in line 1); check the messages and the template");
    insta::assert_snapshot!(render("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"), @"the chat template of DIR/tokenizer_config.json failed (engine ran out of fuel, in line 1); check the messages and the template");
}

#[test]
fn chat_template_jinja_takes_precedence() {
    let folder = folder(r#"{"chat_template": "setting"}"#);
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        "file {{ bos_token is defined }}\n",
    )
    .expect("writing");
    let templates = ChatTemplates::from_folder(folder.path())
        .expect("a good folder")
        .expect("a template");
    assert_eq!(
        templates
            .render(None, &[], ChatEnd::Complete)
            .expect("a text"),
        "file False"
    );
    let error = templates
        .render(Some("tools"), &[], ChatEnd::Complete)
        .expect_err("no such template");
    assert!(
        error
            .to_string()
            .contains(r#"there is no template called "tools", only default"#),
        "{error}"
    );
}

#[test]
fn wrong_settings_are_refused() {
    for config in [
        r#"{"chat_template": 3}"#,
        r#"{"chat_template": [{"name": "x"}]}"#,
        "{",
        "[]",
    ] {
        assert!(
            ChatTemplates::from_folder(folder(config).path()).is_err(),
            "{config}"
        );
    }
    for config in ["{}", r#"{"chat_template": null}"#] {
        assert!(
            ChatTemplates::from_folder(folder(config).path())
                .expect("no template")
                .is_none()
        );
    }
}

/// A short template must not exhaust memory.
#[test]
fn templates_that_demand_too_much_memory_are_refused() {
    for template in [
        "{{ '%99999999999d' | format(7) }}",
        "{{ '%*d' | format(99999999999, 7) }}",
        "{{ '{:>99999999999}'.format(7) }}",
        "{{ 'a\nb' | indent(99999999999) }}",
        "{{ 'a\nb' | indent(width=99999999999) }}",
    ] {
        let found = render(template);
        assert!(
            found.contains("it requests a width of more than 9999"),
            "{found}"
        );
    }
    let found = render("{% for i in range(9999) %}{{ 'x' * 10000 }}{% endfor %}");
    assert!(found.contains("longer than 64 MB"), "{found}");
    assert_eq!(
        render("{{ '%05d' | format(7) }}{{ 'a' | indent(2, true) }}"),
        "00007  a"
    );
}

#[test]
fn a_value_that_is_doubled_for_ever_is_given_up() {
    let doubled = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}done";
    let found = render(doubled);
    assert!(
        found.contains("it takes more than 1024 MB of memory"),
        "{found}"
    );
    assert_eq!(render("{{ eos_token }}"), "</s>");
}

#[test]
fn nested_expressions_do_not_overflow_the_stack() {
    let nested = |open: &str, inner: &str, close: &str| {
        let levels = (250 << 10) / (open.len() + close.len());
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    };
    for expression in [
        nested("-", "1", ""),
        nested("not ", "1", ""),
        nested("(", "1", ")"),
        nested("[", "1", "]"),
        nested("{'a':", "1", "}"),
        nested("1 if ", "1", " else 1"),
        nested("1 ~ ", "1", ""),
        nested("", "1", " | abs"),
        nested("", "messages", "[0]"),
        nested("2 ** ", "1", ""),
    ] {
        // A text or a sentence, but neither an abort nor a hang.
        let found = render(&format!("{{{{ {expression} }}}}"));
        assert!(!found.is_empty());
    }
    let blocks = nested("{% if 1 %}", "done", "{% endif %}");
    assert!(!render(&blocks).is_empty());
    let found = render(&"a".repeat(300 << 10));
    assert!(
        found.contains("it has 307200 bytes, and the limit is 256 KB"),
        "{found}"
    );
}

#[test]
fn nested_values_do_not_overflow_the_stack() {
    let deep = |depth: usize| {
        let (start, each) = ("{% set ns = namespace(x=[]) %}", "{% set ns.x = [ns.x] %}");
        format!("{start}{{% for i in range({depth}) %}}{each}{{% endfor %}}")
    };
    assert_eq!(render(&(deep(50_000) + "done")), "done");
    assert_eq!(render(&(deep(50_000) + "{{ ns.x }}")).len(), 100_002);
    assert!(render(&(deep(50_000) + "{{ ns.x | tojson }}")).contains("levels deep"));
    // The error holds nested values, too.
    let again = format!("{{% for j in range(9) %}}{}{{% endfor %}}", deep(99_999));
    assert!(render(&again).contains("ran out of fuel"));
}
