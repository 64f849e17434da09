//! Parity with independent implementations: `fixtures/attention/`, made by `reference/attention/`, holds inputs, parameters,
//! outputs and gradients of each kind in the words of our settings.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use attentive_model::checkpoint::TensorFile;
use attentive_model::{
    Attention, AttentionConfig, AttentionInput, Initializer, Memory, Parameter, Pass, Place, Role,
    Widths, parameters, replace_parameters,
};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};

/// Outputs, and weights where the reference has them.
const VALUES: f32 = 1e-5;
const GRADIENTS: f32 = 1e-4;

#[test]
fn every_kind_gives_what_independent_implementations_give() {
    let mut least = BTreeMap::new();
    for path in cases() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let [values, gradients] = Golden::open(&path).compare(&name);
        println!("{name:36} values {values:.1e}  gradients {gradients:.1e}");
        least.insert(name, [values, gradients]);
    }
    assert!(least.len() >= 52, "{} cases are there", least.len());
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
    words: HashMap<String, String>,
    device: Device,
}

impl Golden {
    fn open(path: &Path) -> Self {
        let file = TensorFile::open(path).unwrap();
        Self {
            words: file.metadata(),
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

    fn layer(&self) -> Attention {
        let config: AttentionConfig = serde_json::from_str(&self.words["config"]).unwrap();
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
            // What the reference draws at random is no parameter there.
            let drawn = self.has(&name).then(|| name.clone());
            let given = drawn.unwrap_or_else(|| format!("parameter.{name}"));
            assert!(self.has(&given), "there is no {given}");
            values.insert(name, self.data(&given));
        }
        replace_parameters(layer, values)
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
        let mut pass = Pass::default();
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
        let output = layer.forward(input, &mut pass).output;
        let values = self.difference("output", output.clone(), self.rows_compared());
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
            let given = format!("gradient.parameter.{name}");
            if self.has(&given) {
                let slopes = slopes.unwrap_or_else(|| panic!("{about}: {name} has no gradient"));
                worst = worst.max(difference(&slopes, &self.file.floats(&given).unwrap()));
            }
        }
        [values, worst]
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
            for sequence in 0..batch {
                let from = (sequence * length + rows[sequence] as usize) * width;
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
