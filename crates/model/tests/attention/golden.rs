//! Parity with independent implementations: `fixtures/attention/`, made by `reference/attention/`, holds inputs, parameters,
//! outputs and gradients of each kind in the words of our settings.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use attentive_model::checkpoint::TensorFile;
use attentive_model::{
    Attention, AttentionConfig, AttentionInput, Cache, DistanceBias, Initializer, Memory,
    Parameter, Pass, Pattern, Place, Role, Widths, parameters, replace_parameters,
};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use serde_json::Value;

use crate::setting::{Asker, gap};

/// Outputs, and weights where the reference has them.
const VALUES: f32 = 1e-5;
const GRADIENTS: f32 = 1e-4;

#[test]
fn every_kind_gives_what_independent_implementations_give() {
    let mut least = BTreeMap::new();
    for path in cases() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let golden = Golden::open(&path);
        // The reference lets a causal output feel later keys through what it adds to features; ours does not, by design.
        // Its case without that is compared.
        if name == "performer_causal" {
            continue;
        }
        let [values, gradients] = golden.compare(&name);
        println!("{name:36} values {values:.1e}  gradients {gradients:.1e}");
        least.insert(name, [values, gradients]);
    }
    assert!(least.len() >= 64, "{} cases are there", least.len());
    for (name, [values, gradients]) in least {
        assert!(values < VALUES, "{name}: values differ by {values}");
        assert!(
            gradients < GRADIENTS,
            "{name}: gradients differ by {gradients}"
        );
    }
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/attention");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "safetensors"));
    paths.sort();
    paths
}

struct Golden {
    file: TensorFile,
    words: BTreeMap<String, String>,
    device: Device,
}

impl Golden {
    fn open(path: &Path) -> Self {
        let file = TensorFile::open(path).unwrap();
        Self {
            words: file.metadata().clone(),
            file,
            device: Device::flex().autodiff(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.file.shape(name).is_some()
    }

    fn data(&self, name: &str) -> TensorData {
        let shape = self.file.shape(name).unwrap().to_vec();
        TensorData::new(self.file.floats(name).unwrap(), shape)
    }

    fn tensor(&self, name: &str) -> Tensor<3> {
        Tensor::from_data(self.data(name), &self.device)
    }

    fn width(&self, name: &str) -> Option<usize> {
        self.file
            .shape(name)
            .and_then(|shape| shape.last().copied())
    }

    fn role(&self) -> Role {
        serde_json::from_value(self.words["role"].clone().into()).unwrap()
    }

    fn config(&self) -> AttentionConfig {
        let mut words: Value = serde_json::from_str(&self.words["config"]).unwrap();
        if let Some(epsilons) = self.words.get("epsilons") {
            let epsilons: Value = serde_json::from_str(epsilons).unwrap();
            words["epsilon"] = epsilons["features"].clone();
        }
        serde_json::from_value(words).unwrap()
    }

    fn layer(&self) -> Attention {
        let config = self.config();
        let queries = self.width("queries").unwrap();
        let widths = Widths {
            queries,
            keys: self.width("keys").unwrap_or(queries),
            values: self.width("values").unwrap_or(queries),
            output: self.width("output").unwrap(),
        };
        let length = self.file.shape("queries").unwrap()[1];
        let length = self.width("parameter.pattern.key_map").unwrap_or(length);
        let place = Place::new(self.role(), widths, length);
        let layer =
            Attention::new(&config, &place, &mut Initializer::new(1, &self.device)).unwrap();
        let mut values = HashMap::new();
        for Parameter { name, .. } in parameters(&layer) {
            if let Some(given) = self.given(&name) {
                values.insert(name, self.data(&given));
            }
        }
        self.with_given_blocks(replace_parameters(layer, values))
    }

    /// The layer with the random blocks that the reference drew, where it drew some.
    fn with_given_blocks(&self, layer: Attention) -> Attention {
        let Some(&[heads, blocks, count]) = self.file.shape("random_blocks") else {
            return layer;
        };
        let given = self.file.integers("random_blocks").unwrap();
        let of = |head: usize, block: usize| {
            let from = (head * blocks + block) * count;
            given[from..from + count].iter().map(|it| *it as usize)
        };
        let of_head = |head| (0..blocks).map(|block| of(head, block).collect()).collect();
        let plan = (0..heads).map(of_head).collect();
        let Attention::MultiHead(layer) = layer else {
            panic!("only heads have random blocks");
        };
        let Pattern::BigBird(pattern) = layer.pattern().clone() else {
            panic!("only BigBird has random blocks");
        };
        let pattern = Pattern::BigBird(pattern.with_random_blocks(plan));
        Attention::MultiHead(layer.with_pattern(pattern))
    }

    /// The global positions of each row, where the file has them as flags.
    fn globals(&self) -> Option<Vec<Vec<usize>>> {
        let length = self.width("globals")?;
        let flags = self.file.integers("globals").unwrap();
        let of_row = |row: &[i64]| {
            let positions = row.iter().enumerate().filter(|(_, flag)| **flag != 0);
            positions.map(|(position, _)| position).collect()
        };
        Some(flags.chunks(length).map(of_row).collect())
    }

    /// Where the file has a parameter. What the reference draws at random is no parameter there, and a score's parameters
    /// are those of the layer. Maps of global positions are absent where there are no such positions.
    fn given(&self, name: &str) -> Option<String> {
        let inner = name.strip_prefix("pattern.").unwrap_or(name);
        let inner = inner.strip_prefix("score.").unwrap_or(inner);
        let places = [name, inner].map(|name| format!("parameter.{name}"));
        let places = [name.to_owned()].into_iter().chain(places);
        let place = places.into_iter().find(|place| self.has(place));
        let absent = name.starts_with("global_") && !self.has("globals");
        assert!(place.is_some() || absent, "there is no {name}");
        place
    }

    /// The largest differences of values and of gradients, relative to the largest number where that is above one.
    fn compare(&self, about: &str) -> [f32; 2] {
        let layer = self.layer();
        let queries = self.tensor("queries").require_grad();
        let real = self.has("lengths").then(|| {
            let lengths = self.file.integers("lengths").unwrap();
            lengths
                .into_iter()
                .map(|length| 0..length as usize)
                .collect()
        });
        let mut cache = Cache::new();
        let mut pass = Pass {
            globals: self.globals(),
            ..Pass::default()
        };
        if self.has("memory") {
            let AttentionConfig::TransformerXl(config) = self.config() else {
                panic!("{about}: only Transformer-XL has a memory of its own sequence");
            };
            let kept = cache.segment(0, config.memory);
            kept.extend(self.tensor("memory"));
            pass.cache = Some(&mut cache);
        }
        if let Some(positions) = self.words.get("positions") {
            assert_eq!(positions, r#"{"kind": "alibi"}"#, "{about}");
            let heads = self.config().heads().expect("there are heads").heads;
            pass.distance_bias = Some(DistanceBias::alibi(heads, &self.device));
        }
        let memory = self.has("keys").then(|| Memory {
            keys: self.tensor("keys").require_grad(),
            values: self.tensor("values").require_grad(),
            real: real.clone(),
        });
        if memory.is_none() {
            pass.real = real;
        }
        let input = AttentionInput {
            queries: queries.clone(),
            memory: memory.clone(),
            layer: 0,
        };
        let weights = self.weights(&layer, input.clone(), pass.real.clone());
        let output = layer.forward(input, &mut pass).output;
        let values = self.difference("output", output.clone(), self.rows_compared());
        let values = values.max(weights);
        let gradients = (output * self.tensor("upstream")).sum().backward();

        let mut worst = self.gradient("queries", &queries, &gradients);
        if let Some(memory) = &memory {
            worst = worst.max(self.gradient("keys", &memory.keys, &gradients));
            worst = worst.max(self.gradient("values", &memory.values, &gradients));
        }
        let mut slopes = Slopes {
            gradients: &gradients,
            found: Vec::new(),
        };
        layer.visit(&mut slopes);
        for (Parameter { name, .. }, slopes) in parameters(&layer).iter().zip(slopes.found) {
            let given = self.given(name).map(|it| format!("gradient.{it}"));
            if let Some(given) = given.filter(|it| self.has(it)) {
                let slopes = slopes.unwrap_or_else(|| panic!("{about}: {name} has no gradient"));
                worst = worst.max(difference(&slopes, &self.file.floats(&given).unwrap()));
            }
        }
        [values, worst]
    }

    /// The largest difference of the weights that an observer sees, where the reference has them and padding and globals are
    /// all that goes beside the input.
    fn weights(
        &self,
        layer: &Attention,
        input: AttentionInput,
        real: Option<Vec<Range<usize>>>,
    ) -> f32 {
        let more = self.has("memory") || self.words.contains_key("positions");
        if more || !self.has("weights") {
            return 0.0;
        }
        let mut asker = Asker;
        let mut pass = Pass {
            globals: self.globals(),
            real,
            observer: Some(&mut asker),
            ..Pass::default()
        };
        let ours = layer.forward(input, &mut pass).weights.unwrap();
        let theirs = Tensor::<4>::from_data(self.data("weights"), &self.device);
        let [batch, _, queries, _] = ours.dims();
        let rows = self.rows_compared();
        let rows = rows.unwrap_or_else(|| vec![queries as i64; batch]);
        (0..batch).fold(0.0, |most, sequence| {
            let count = rows[sequence] as usize;
            let of = |x: &Tensor<4>| x.clone().narrow(0, sequence, 1).narrow(2, 0, count);
            most.max(gap(of(&ours), of(&theirs)))
        })
    }

    /// How many rows of each sequence count: the reference leaves padded ones undefined.
    fn rows_compared(&self) -> Option<Vec<i64>> {
        self.has("rows_compared")
            .then(|| self.file.integers("rows_compared").unwrap())
    }

    fn difference(&self, name: &str, ours: Tensor<3>, rows: Option<Vec<i64>>) -> f32 {
        let [batch, length, width] = ours.dims();
        let mut ours = ours.into_data().try_to_vec::<f32>().unwrap();
        let mut theirs = self.file.floats(name).unwrap();
        assert_eq!(ours.len(), theirs.len(), "{name}");
        if let Some(rows) = rows {
            assert_eq!(rows.len(), batch, "{name}");
            for (sequence, rows) in rows.into_iter().enumerate() {
                let from = (sequence * length + rows as usize) * width;
                let to = (sequence + 1) * length * width;
                ours[from..to].fill(0.0);
                theirs[from..to].fill(0.0);
            }
        }
        difference(&ours, &theirs)
    }

    fn gradient(&self, name: &str, of: &Tensor<3>, gradients: &Gradients) -> f32 {
        let slopes = of.grad(gradients).expect("it has a gradient");
        self.difference(&format!("gradient.{name}"), slopes, None)
    }
}

fn difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let largest = theirs.iter().fold(1.0f32, |most, it| most.max(it.abs()));
    let pairs = ours.iter().zip(theirs);
    pairs.fold(0.0, |most: f32, (ours, theirs)| {
        let gap = (ours - theirs).abs() / largest;
        if gap.is_nan() {
            f32::INFINITY
        } else {
            most.max(gap)
        }
    })
}

/// The gradient of each parameter, in order.
struct Slopes<'g> {
    gradients: &'g Gradients,
    found: Vec<Option<Vec<f32>>>,
}

impl ModuleVisitor for Slopes<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let slopes = param.val().grad(self.gradients);
        self.found
            .push(slopes.map(|it| it.into_data().try_to_vec::<f32>().unwrap()));
    }
}
