//! Every part of a model trains from one changed line of a recipe and resumes bit for bit after an interruption, and mistakes
//! in such lines are reported in a sentence.

use std::sync::atomic::{AtomicBool, Ordering};

use attentive_model::{Initializer, Linear};
use attentive_testing::{Scale, assert_near};
use attentive_training::{
    AdamW, AdamWConfig, Event, Gradients, Listener, Metric, Outcome, Recipe, RunFolder, Start,
    Trainer,
};
use burn::tensor::Device;

const TINY: &str = r#"
seed = 3
data = { kind = "stories", count = 40 }
tokenizer = { kind = "bytes" }
optimizer = { learning_rate = 1e-2 }
training = { steps = 6, batch_size = 2, evaluate_every = 6, evaluation_windows = 4 }
sample = { tokens = 0 }

[model]
length = 16
width = 16
positions = { kind = "none" }
final_norm = { kind = "rms" }

[[model.blocks]]
repeat = 2
norm = { kind = "rms" }
attention = { kind = "full", heads = 2 }
feed_forward = { kind = "gated", hidden_width = 24 }
"#;

const LINES: [&str; 18] = [
    r#"model.positions={ kind = "learned" }"#,
    r#"model.positions={ kind = "axial", shape = [4, 4], widths = [6, 10] }"#,
    r#"model.positions={ kind = "sinusoidal" }"#,
    r#"model.positions={ kind = "rotary" }"#,
    r#"model.positions={ kind = "rotary", scaling = { kind = "linear", factor = 2 } }"#,
    r#"model.positions={ kind = "rotary", scaling = { kind = "ntk", factor = 2, original_length = 8 } }"#,
    r#"model.positions={ kind = "rotary", scaling = { kind = "yarn", factor = 2, original_length = 8 } }"#,
    r#"model.positions={ kind = "rotary", scaling = { kind = "llama3", factor = 2, original_length = 8 } }"#,
    r#"model.positions={ kind = "alibi" }"#,
    r#"model.positions={ kind = "t5_buckets" }"#,
    r#"model.positions={ kind = "none" }"#,
    "model.blocks.0.placement=both",
    "model.blocks.0.placement=after",
    r#"model.blocks.0.feed_forward={ kind = "gated", hidden_width = 24, activation = "sigmoid" }"#,
    r#"model.blocks.0.feed_forward={ kind = "gated", hidden_width = 24, activation = "relu" }"#,
    r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 2, hidden_width = 12 }"#,
    r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 1, hidden_width = 12, form = "plain", capacity_factor = 1.25, z_loss_weight = 1e-3 }"#,
    EXPERTS,
];

/// So many experts that some get no token in a step.
const EXPERTS: &str = r#"model.blocks.0.feed_forward={ kind = "experts", experts = 48, active = 1, hidden_width = 4 }"#;

fn recipe(change: &str) -> Recipe {
    Recipe::parse(TINY, &[change.to_owned()]).unwrap_or_else(|error| panic!("{change}: {error}"))
}

fn start(change: &str, folder: &std::path::Path, start: Start) -> Trainer {
    let folder = RunFolder::new(folder);
    Trainer::start(recipe(change), folder, start, &Device::flex()).unwrap()
}

#[test]
fn one_line_changes_a_part_and_the_model_trains() {
    for change in LINES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let summary = start(change, &path, Start::New)
            .run(&mut [], &AtomicBool::new(false))
            .unwrap();
        assert_eq!(summary.outcome, Outcome::Finished);
        let losses: Vec<f64> = RunFolder::new(&path)
            .metrics()
            .unwrap()
            .iter()
            .filter_map(|metric| match metric {
                Metric::Step { loss, .. } => Some(*loss),
                Metric::Evaluation { .. } => None,
            })
            .collect();
        assert!(losses[5] < losses[0] - 0.2, "{change}: {losses:?}");
        // A recipe survives serialization.
        let text = recipe(change).to_text();
        assert_eq!(Recipe::parse(&text, &[]).unwrap(), recipe(change));
    }
}

/// Stops a run after some steps.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl Listener for StopAfter<'_> {
    fn on(&mut self, event: &Event) {
        if matches!(event, Event::Stepped { step, .. } if *step == self.0) {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

/// Also with experts that have no gradient in some steps.
#[test]
fn an_interrupted_run_with_experts_is_bit_identical() {
    check_interrupted(EXPERTS);
}

#[test]
fn an_interrupted_run_that_resamples_features_is_bit_identical() {
    // Every second step, so that both halves resample.
    let resampled = check_interrupted(
        r#"model.blocks.0.attention={ kind = "performer", heads = 2, features = 8, resample_every = 2 }"#,
    );
    let sampled_once = check_interrupted(
        r#"model.blocks.0.attention={ kind = "performer", heads = 2, features = 8 }"#,
    );
    assert!(resampled != sampled_once, "nothing was resampled");
}

/// Checks that an interrupted and resumed run ends in the state of an uninterrupted one, and returns it.
fn check_interrupted(change: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let state = |name: &str| {
        let run = RunFolder::new(folder.path().join(name));
        std::fs::read(run.state_path()).unwrap()
    };
    let never = AtomicBool::new(false);
    let uninterrupted = folder.path().join("uninterrupted");
    start(change, &uninterrupted, Start::New)
        .run(&mut [], &never)
        .unwrap();
    let resumed = folder.path().join("resumed");
    let stop = AtomicBool::new(false);
    let summary = start(change, &resumed, Start::New)
        .run(&mut [&mut StopAfter(3, &stop)], &stop)
        .unwrap();
    assert_eq!(summary.step, 3);
    start(change, &resumed, Start::Resume)
        .run(&mut [], &never)
        .unwrap();
    assert!(state("uninterrupted") == state("resumed"), "{change}");
    state("uninterrupted")
}

/// As if the gradient were zero: the moments decay, and the weights are still updated by them and by weight decay.
#[test]
fn the_moments_of_a_parameter_without_a_gradient_decay() {
    let device = Device::flex().autodiff();
    let config = AdamWConfig {
        learning_rate: 0.1,
        weight_decay: 0.5,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        max_grad_norm: 1.0,
    };
    let after = |with_zeros: bool| {
        let mut model = Linear::new(3, 2, true, 0.3, &mut Initializer::new(1, &device));
        let mut optimizer = AdamW::new(&config);
        let mut moments = Vec::new();
        for step in 0..2 {
            let (weight, bias) = model.parameters();
            let (weight, bias) = (weight.sum(), bias.unwrap().sum());
            let loss = match (step, with_zeros) {
                (0, _) => weight + bias,
                (_, true) => weight * 0.0 + bias,
                (_, false) => bias,
            };
            let (gradients, _) = Gradients::backward(&loss, &model).clipped(1.0);
            model = optimizer.update(model, gradients, 1.0);
            let first = optimizer.moments()[0].clone().unwrap().first;
            moments.push(first.try_to_vec::<f32>().unwrap()[0]);
        }
        assert_near("moment", moments[1] / moments[0], 0.9f32, Scale::One, 1e-6);
        model.parameters().0.into_data()
    };
    assert_eq!(after(false), after(true));
}

#[test]
fn mistakes_are_reported_in_a_sentence() {
    let errors: Vec<String> = [
        r#"model.positions={ kind = "relative" }"#,
        r#"model.positions={ kind = "alibi", slope = 2 }"#,
        r#"model.positions={ kind = "rotary", scaling = { kind = "dynamic", factor = 2 } }"#,
        r#"model.positions={ kind = "rotary", scaling = { kind = "ntk", factor = 2 } }"#,
        r#"model.positions={ kind = "rotary", scaling = { kind = "linear", factor = 0 } }"#,
        r#"model.positions={ kind = "t5_buckets", direction = "backward" }"#,
        r#"model.positions={ kind = "t5_buckets", max_distance = 3 }"#,
        "model.blocks.0.placement=twice",
        r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, hidden_width = 12 }"#,
        r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 5, hidden_width = 12 }"#,
        r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 2, hidden_width = 12, form = "dense" }"#,
        r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 2, hidden_width = 12, capacity_factor = -1 }"#,
        r#"model.blocks.0.feed_forward={ kind = "experts", experts = 4, active = 2, hidden_width = 12, top = 2 }"#,
    ]
    .iter()
    .map(|change| Recipe::parse(TINY, &[(*change).to_owned()]).unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(errors.join("\n"));
}
