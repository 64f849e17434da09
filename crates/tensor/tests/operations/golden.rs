//! Reads the golden cases, `fixtures/operations/golden.safetensors`, which `reference/operations` generates.
//!
//! Case names seed the inputs, so the file still has the operations' names
//! from when it was generated.

use std::collections::BTreeSet;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::case::{Array, Arrays, Case, Operation};

/// A case, and PyTorch's outputs and gradients.
pub struct Golden {
    pub case: Case,
    pub outputs: Vec<Array>,
    pub gradients: Arrays,
    /// Whether finite differences find the gradient: not at the kink of ReLU.
    pub smooth: bool,
}

/// Inputs that have another name in the file.
const RENAMED_INPUTS: [(&str, &str); 4] = [
    ("log_sums0", "log_sum_exp0"),
    ("log_sums1", "log_sum_exp1"),
    ("log_sums2", "log_sum_exp2"),
    ("log_sums3", "log_sum_exp3"),
];

fn input_name(name: &str) -> String {
    let renamed = RENAMED_INPUTS.iter().find(|(old, _)| *old == name);
    renamed.map_or(name, |(_, new)| new).to_owned()
}

/// All golden cases.
///
/// # Panics
/// When the file has a tensor that is part of no case, or a case lacks one.
pub fn cases() -> Vec<Golden> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/operations/golden.safetensors");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let settings = &header.metadata().as_ref().unwrap()["cases"];
    let descriptions: Vec<Description> = serde_json::from_str(settings).unwrap();
    let mut file = File {
        tensors: SafeTensors::deserialize(&bytes).unwrap(),
        read: BTreeSet::new(),
    };
    let cases = descriptions.into_iter().map(|it| file.case(it)).collect();
    let all: BTreeSet<String> = file
        .tensors
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(all, file.read, "tensors that are part of no case");
    cases
}

#[derive(Deserialize)]
struct Description {
    name: String,
    inputs: Vec<String>,
    smooth: bool,
    #[serde(flatten)]
    operation: Operation,
}

struct File<'a> {
    tensors: SafeTensors<'a>,
    /// Names of the tensors that a case has read.
    read: BTreeSet<String>,
}

impl File<'_> {
    fn case(&mut self, description: Description) -> Golden {
        let Description {
            name,
            inputs,
            smooth,
            operation,
        } = description;
        let mut named = |kind: &str| -> Arrays {
            let mut array = |input: &String| self.array(&format!("{name}.{kind}.{input}"));
            let arrays = inputs.iter().map(|it| (input_name(it), array(it).unwrap()));
            arrays.collect()
        };
        let (inputs, gradients) = (named("input"), named("gradient"));
        let mut numbered = |kind: &str| -> Vec<Array> {
            (0..)
                .map_while(|i| self.array(&format!("{name}.{kind}.{i}")))
                .collect()
        };
        let (outputs, upstream) = (numbered("output"), numbered("upstream"));
        let upstream = upstream.into_iter().map(|it| it.values).collect();
        let case = Case {
            name,
            operation,
            inputs,
            upstream,
        };
        Golden {
            case,
            outputs,
            gradients,
            smooth,
        }
    }

    fn array(&mut self, name: &str) -> Option<Array> {
        let view = self.tensors.tensor(name).ok()?;
        assert_eq!(view.dtype(), Dtype::F32, "{name}");
        self.read.insert(name.to_owned());
        let (values, _) = view.data().as_chunks::<4>();
        Some(Array {
            shape: view.shape().to_vec(),
            values: values
                .iter()
                .map(|bytes| f64::from(f32::from_le_bytes(*bytes)))
                .collect(),
        })
    }
}
