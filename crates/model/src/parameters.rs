//! A model's parameters by name: `blocks.0.attention.body.query.weight`.

use std::collections::HashMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};

/// The name, identity and shape of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The path of field names.
    pub name: String,
    /// The identity that gradients are kept under.
    pub id: ParamId,
    /// The shape.
    pub shape: Vec<usize>,
}

/// The parameters of a model, in the order of its fields.
pub fn parameters<M: Module>(model: &M) -> Vec<Parameter> {
    let mut lister = Lister::default();
    model.visit(&mut lister);
    lister.found
}

/// Replaces each parameter whose name is in `values`.
///
/// # Panics
/// When a value has another shape than its parameter.
pub fn replace_parameters<M: Module>(model: M, values: HashMap<String, TensorData>) -> M {
    model.map(&mut Replacer {
        path: Path::default(),
        values,
    })
}

/// The names on the way to a parameter. Enum variants are no part of it: a norm's weight is `norm.weight`
/// whichever kind of norm it is.
#[derive(Default)]
struct Path(Vec<Option<String>>);

impl Path {
    fn enter(&mut self, name: &str, container: &str) {
        let named = !container.starts_with("Enum:");
        self.0.push(named.then(|| name.to_owned()));
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        let names: Vec<&str> = self.0.iter().flatten().map(String::as_str).collect();
        names.join(".")
    }
}

#[derive(Default)]
struct Lister {
    path: Path,
    found: Vec<Parameter>,
}

impl ModuleVisitor for Lister {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(Parameter {
            name: self.path.name(),
            id: param.id,
            shape: param.lazy_shape().to_vec(),
        });
    }
}

struct Replacer {
    path: Path,
    values: HashMap<String, TensorData>,
}

impl ModuleMapper for Replacer {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let Some(data) = self.values.remove(&name) else {
            return param;
        };
        let shape = param.lazy_shape();
        assert_eq!(
            *data.shape(),
            shape,
            "replace_parameters: {name} is {shape:?} and was given {:?}",
            data.shape()
        );
        let tensor = Tensor::from_data(data, &param.lazy_device());
        // What is trained stays trained and what is frozen stays frozen. On a device without autodiff the setting is
        // remembered, and takes effect when the model is put to training.
        let id = param.id;
        param.transform_for_load(tensor, id)
    }
}
