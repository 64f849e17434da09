//! A model's parameters by name: `blocks.0.attention.body.query.weight`.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Shape, Tensor, TensorData};

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

/// The numbers of a parameter, and how they lie.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// In the order of the parameter's axes.
    InOrder(TensorData),
    /// The rows of the parameter, a matrix, are these columns of another. They stay there: it may be a file that is mapped.
    Columns(TensorData, Range<usize>),
}

impl From<TensorData> for Numbers {
    fn from(data: TensorData) -> Self {
        Self::InOrder(data)
    }
}

impl Numbers {
    /// The shape of the parameter.
    fn shape(&self) -> Shape {
        match self {
            Self::InOrder(data) => data.shape().clone(),
            Self::Columns(data, columns) => Shape::new([columns.len(), data.shape()[0]]),
        }
    }
}

/// Replaces each parameter whose name is in `values`.
///
/// # Panics
/// When a value has another shape than its parameter.
pub fn replace_parameters<M: Module, N: Into<Numbers>>(model: M, values: HashMap<String, N>) -> M {
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

struct Replacer<N> {
    path: Path,
    values: HashMap<String, N>,
}

impl<N: Into<Numbers>> ModuleMapper for Replacer<N> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let Some(numbers) = self.values.remove(&name) else {
            return param;
        };
        let numbers: Numbers = numbers.into();
        let (given, shape) = (numbers.shape(), param.lazy_shape());
        assert_eq!(
            given, shape,
            "replace_parameters: {name} is {shape:?} and was given {given:?}"
        );
        let device = param.lazy_device();
        let tensor = match numbers {
            Numbers::InOrder(data) => Tensor::from_data(data, &device),
            Numbers::Columns(data, columns) => {
                let matrix = Tensor::<D>::from_data(data, &device);
                matrix.slice_dim(1, columns).swap_dims(0, 1)
            }
        };
        // What is trained stays trained and what is frozen stays frozen. On a device without autodiff the setting is
        // remembered, and takes effect when the model is put to training.
        let id = param.id;
        param.transform_for_load(tensor, id)
    }
}
