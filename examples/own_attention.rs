//! An attention of one's own: differential attention, which the library does not have (`own_attention/differential.rs`), is
//! registered under a name, trained by a recipe beside full attention, saved, and loaded again. Nothing of it is in the library's
//! source.
//!
//! Run with `cargo run --release -p attentive --example own_attention`.

#[path = "own_attention/differential.rs"]
mod differential;

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use attentive::checkpoint::{self, TensorFile};
use attentive::model::{ForwardOptions, Input, Model, Recorder, ids_tensor, parameters};
use attentive::tensor::device;
use attentive::training::{Recipe, RunFolder, Start, Trainer};

const RECIPE: &str = r#"
seed = 1
data = { kind = "stories", count = 400 }
tokenizer = { kind = "characters" }
optimizer = { learning_rate = 3e-3 }
schedule = { warmup_steps = 10 }
training = { steps = 300, batch_size = 16, evaluate_every = 300, evaluation_windows = 64 }
sample = { tokens = 0 }

[model]
length = 32
width = 64
positions = { kind = "rotary" }
final_norm = { kind = "rms" }

[[model.blocks]]
repeat = 2
norm = { kind = "rms" }
attention = { kind = "full", heads = 4 }
feed_forward = { kind = "gated", hidden_width = 128 }
"#;

/// What λ starts near.
const LAMBDA_INIT: f64 = 0.3;

/// A trained model.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The kind of attention.
    pub kind: &'static str,
    /// The number of parameters.
    pub parameters: usize,
    /// The held-out loss before and after training, in nats.
    pub losses: [f64; 2],
    /// Logits of held-out text: of the trained model, and of the one that was saved and loaded.
    pub logits: [Vec<f32>; 2],
    /// The dimensions of the attention weights that an observer sees in the first layer.
    pub weights: [usize; 4],
    /// The model folder's `model_type`.
    pub saved_as: &'static str,
}

/// Trains both kinds for so many steps, in folders below `folder`.
pub fn run(folder: &Path, steps: u64) -> Result<Vec<Trained>, Box<dyn Error>> {
    // Before the recipe is read: it names the kind.
    differential::register()?;
    let differential =
        format!(r#"{{ kind = "differential", heads = 4, lambda_init = {LAMBDA_INIT} }}"#);
    [
        ("full", r#"{ kind = "full", heads = 4 }"#),
        ("differential", differential.as_str()),
    ]
    .into_iter()
    .map(|(kind, attention)| train(kind, attention, &folder.join(kind), steps))
    .collect()
}

fn train(
    kind: &'static str,
    attention: &str,
    folder: &Path,
    steps: u64,
) -> Result<Trained, Box<dyn Error>> {
    let changes = [
        format!("model.blocks.0.attention={attention}"),
        format!("training.steps={steps}"),
        format!("training.evaluate_every={steps}"),
    ];
    let recipe = Recipe::parse(RECIPE, &changes)?;
    let length = recipe.model.stack.length;
    let device = device("cpu")?;
    let mut trainer = Trainer::start(recipe, RunFolder::new(folder), Start::Overwrite, &device)?;
    let before = trainer.held_out_loss();
    trainer.run(&mut [], &AtomicBool::new(false))?;

    let text = &trainer.data().tokens.held_out[..length];
    let logits = |model: &Model| -> Result<Vec<f32>, Box<dyn Error>> {
        let input = Input::new(ids_tensor(&[text], &device));
        let output = model.forward(input, ForwardOptions::default());
        let logits = output.into_logits().into_data().try_to_vec();
        logits.map_err(|error| format!("{error:?}").into())
    };
    let trained = trainer.model();
    let (loaded, description) = checkpoint::load(folder, &device)?;

    let mut recorder = Recorder {
        record_weights: true,
        ..Recorder::default()
    };
    let options = ForwardOptions {
        observer: Some(&mut recorder),
        ..ForwardOptions::default()
    };
    loaded.forward(Input::new(ids_tensor(&[text], &device)), options);
    let counts = parameters(&loaded).into_iter();
    Ok(Trained {
        kind,
        parameters: counts.map(|it| it.shape.iter().product::<usize>()).sum(),
        losses: [before, trainer.held_out_loss()],
        logits: [logits(&trained)?, logits(&loaded)?],
        weights: recorder.weights[0].1.dims(),
        saved_as: description.model_type,
    })
}

/// λ of each layer of a saved model.
pub fn lambdas(folder: &Path) -> Result<Vec<f64>, Box<dyn Error>> {
    let file = TensorFile::from_folder(folder)?;
    let exponential = |layer: usize, number: usize| -> Result<f64, Box<dyn Error>> {
        let vector = |of: &str| {
            let prefix = format!("stack.blocks.{layer}.attention.body.pattern");
            file.floats(&format!("{prefix}.lambda_{of}_{number}"))
        };
        let (query, key) = (vector("query")?, vector("key")?);
        let product: f32 = query.iter().zip(&key).map(|(q, k)| q * k).sum();
        Ok(f64::from(product).exp())
    };
    let layers = 0..2;
    layers
        .map(|layer| Ok(exponential(layer, 1)? - exponential(layer, 2)? + LAMBDA_INIT))
        .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join("attentive-own-attention");
    let found = run(&folder, 300)?;
    println!("attention      parameters   loss before   after   saved as    loaded   weights");
    for Trained {
        kind,
        parameters,
        losses: [before, after],
        logits: [trained, loaded],
        weights,
        saved_as,
    } in found
    {
        let loaded = match trained == loaded {
            true => "equal",
            false => "differs",
        };
        println!(
            "{kind:12}   {parameters:10}   {before:11.3}   {after:5.3}   {saved_as:9}   {loaded:6}   {weights:?}"
        );
    }
    for (layer, lambda) in lambdas(&folder.join("differential"))?.iter().enumerate() {
        println!("λ of layer {layer}: {lambda:.3}, from about {LAMBDA_INIT}");
    }
    println!("{} has the runs", folder.display());
    Ok(())
}
