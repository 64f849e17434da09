//! The parameters of a registered pattern: declared by name, held here as burn's parameters, because burn's `Module` cannot be a
//! trait object.

use std::any::Any;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::is_name;
use crate::Initializer;
use crate::checks::MAX_SIZE;

/// A parameter that a pattern declares: its name, its shape of one to four axes, and its initial values.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternParameter {
    name: String,
    shape: Vec<usize>,
    init: Init,
}

#[derive(Clone, Debug, PartialEq)]
enum Init {
    Normal { std: f64 },
    Constant(f32),
    Values(Vec<f32>),
}

impl PatternParameter {
    /// Normal initial values of mean zero.
    pub fn normal<const D: usize>(name: impl Into<String>, shape: [usize; D], std: f64) -> Self {
        Self::new(name.into(), shape.to_vec(), Init::Normal { std })
    }

    /// The same initial value everywhere.
    pub fn constant<const D: usize>(
        name: impl Into<String>,
        shape: [usize; D],
        value: f32,
    ) -> Self {
        Self::new(name.into(), shape.to_vec(), Init::Constant(value))
    }

    /// These initial values, the last axis fastest.
    pub fn values<const D: usize>(
        name: impl Into<String>,
        shape: [usize; D],
        values: impl Into<Vec<f32>>,
    ) -> Self {
        Self::new(name.into(), shape.to_vec(), Init::Values(values.into()))
    }

    fn new(name: String, shape: Vec<usize>, init: Init) -> Self {
        Self { name, shape, init }
    }

    /// Why the layer cannot have such parameters, if it cannot.
    pub(super) fn problem(declared: &[Self]) -> Option<String> {
        declared.iter().enumerate().find_map(|(index, parameter)| {
            let name = &parameter.name;
            let same_name = declared[..index].iter().any(|it| it.name == *name);
            let problem = match same_name {
                true => "is declared twice".to_owned(),
                false => parameter.own_problem()?,
            };
            Some(format!("its parameter `{name}` {problem}"))
        })
    }

    fn own_problem(&self) -> Option<String> {
        let Self { name, shape, init } = self;
        if !is_name(name) {
            return Some("has a name that is not of lower-case letters, digits and _".to_owned());
        }
        if !(1..=4).contains(&shape.len()) {
            return Some(format!("has {} axes; use 1 to 4", shape.len()));
        }
        let count = shape.iter().copied().fold(1, usize::saturating_mul);
        if !(1..=MAX_SIZE).contains(&count) {
            return Some(format!(
                "has the shape {shape:?}; use 1 to {MAX_SIZE} elements"
            ));
        }
        match init {
            Init::Normal { std } if !(*std >= 0.0 && std.is_finite()) => {
                Some(format!("has a standard deviation of {std}; use 0 or more"))
            }
            Init::Values(values) if values.len() != count => Some(format!(
                "has {} values for the shape {shape:?}",
                values.len()
            )),
            Init::Normal { .. } | Init::Constant(_) | Init::Values(_) => None,
        }
    }

    /// The parameter with its initial values. The declaration must have no problem.
    pub(super) fn build(&self, initializer: &mut Initializer) -> NamedParameter {
        let parameter = match *self.shape {
            [a] => RankedParameter::One(self.sampled([a], initializer)),
            [a, b] => RankedParameter::Two(self.sampled([a, b], initializer)),
            [a, b, c] => RankedParameter::Three(self.sampled([a, b, c], initializer)),
            [a, b, c, d] => RankedParameter::Four(self.sampled([a, b, c, d], initializer)),
            _ => unreachable!("a parameter has one to four axes"),
        };
        NamedParameter {
            name: self.name.clone(),
            parameter,
        }
    }

    fn sampled<const D: usize>(
        &self,
        shape: [usize; D],
        initializer: &mut Initializer,
    ) -> Param<Tensor<D>> {
        match &self.init {
            Init::Normal { std } => initializer.normal(shape, *std),
            Init::Constant(value) => initializer.constant(shape, *value),
            Init::Values(values) => initializer.values(shape, values.clone()),
        }
    }
}

/// A parameter with its name.
#[derive(Clone, Debug)]
pub(super) struct NamedParameter {
    pub name: String,
    pub parameter: RankedParameter,
}

/// A parameter of any number of axes.
#[derive(Module, Debug)]
pub(super) enum RankedParameter {
    One(Param<Tensor<1>>),
    Two(Param<Tensor<2>>),
    Three(Param<Tensor<3>>),
    Four(Param<Tensor<4>>),
}

impl RankedParameter {
    /// The tensor, if it has this many axes.
    fn tensor<const D: usize>(&self) -> Option<Tensor<D>> {
        let tensor: Box<dyn Any> = match self {
            Self::One(param) => Box::new(param.val()),
            Self::Two(param) => Box::new(param.val()),
            Self::Three(param) => Box::new(param.val()),
            Self::Four(param) => Box::new(param.val()),
        };
        tensor.downcast::<Tensor<D>>().ok().map(|tensor| *tensor)
    }
}

/// The parameters of a pattern, by name.
#[derive(Clone, Copy, Debug)]
pub struct PatternParameters<'a> {
    /// The registered kind.
    pub(super) kind: &'a str,
    pub(super) all: &'a [NamedParameter],
}

impl PatternParameters<'_> {
    /// The tensor of a parameter; gradients flow into it.
    ///
    /// # Panics
    /// When no such parameter was declared, or it has another number of axes.
    pub fn get<const D: usize>(&self, name: &str) -> Tensor<D> {
        let found = self.all.iter().find(|it| it.name == name);
        let Some(found) = found else {
            let names: Vec<&str> = self.all.iter().map(|it| it.name.as_str()).collect();
            panic!(
                "{} attention: `{name}` is not one of its parameters, {names:?}",
                self.kind
            );
        };
        found.parameter.tensor().unwrap_or_else(|| {
            panic!(
                "{} attention: its parameter `{name}` was read with {D} axes and has another number",
                self.kind
            )
        })
    }
}
