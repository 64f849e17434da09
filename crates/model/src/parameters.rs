//! A model's parameters by name: `blocks.0.attention.body.query.weight`.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Shape, Tensor, TensorData};

/// The name, identity and shape of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The path of module fields.
    pub name: String,
    /// The id of its gradient.
    pub id: ParamId,
    /// The shape.
    pub shape: Vec<usize>,
}

/// The parameters of a module, in the order of its fields.
pub fn parameters<M: Module>(model: &M) -> Vec<Parameter> {
    let mut collector = Collector::default();
    model.visit(&mut collector);
    collector.parameters
}

/// The data of a parameter, and its layout.
#[derive(Clone, Debug)]
pub enum ParamData {
    /// In row-major order of the parameter's axes.
    Contiguous(TensorData),
    /// The transpose of these columns of a matrix, which is not copied: it may be memory-mapped.
    TransposedColumns(TensorData, Range<usize>),
}

impl From<TensorData> for ParamData {
    fn from(data: TensorData) -> Self {
        Self::Contiguous(data)
    }
}

impl ParamData {
    /// The shape of the parameter.
    fn shape(&self) -> Shape {
        match self {
            Self::Contiguous(data) => data.shape().clone(),
            Self::TransposedColumns(data, columns) => Shape::new([columns.len(), data.shape()[0]]),
        }
    }
}

/// Replaces each parameter whose name is in `values`.
///
/// # Panics
/// When a value has another shape than its parameter.
pub fn replace_parameters<M: Module, N: Into<ParamData>>(
    model: M,
    values: HashMap<String, N>,
) -> M {
    model.map(&mut Replacer {
        path: Path::default(),
        values,
    })
}

/// The path of module fields to a parameter. Enum variants are left out: a norm's weight is `norm.weight` for every kind of
/// norm.
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
struct Collector {
    path: Path,
    parameters: Vec<Parameter>,
}

impl ModuleVisitor for Collector {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.parameters.push(Parameter {
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

impl<N: Into<ParamData>> ModuleMapper for Replacer<N> {
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
        let data: ParamData = data.into();
        let (given, shape) = (data.shape(), param.lazy_shape());
        assert_eq!(
            given, shape,
            "replace_parameters: {name} is {shape:?} and was given {given:?}"
        );
        let device = param.lazy_device();
        let tensor = match data {
            ParamData::Contiguous(data) => Tensor::from_data(data, &device),
            ParamData::TransposedColumns(data, columns) => {
                let matrix = Tensor::<D>::from_data(data, &device);
                matrix.slice_dim(1, columns).swap_dims(0, 1)
            }
        };
        // Preserves `require_grad`. On a device without autodiff the flag is stored, and takes effect when the model is moved
        // to one with it.
        let id = param.id;
        param.transform_for_load(tensor, id)
    }
}
