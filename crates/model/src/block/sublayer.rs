//! A sublayer and its residual connection, with optional norms of its input, of its output, and of the sum.

use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use crate::block::{BlockConfig, NormPlacement, Stream};
use crate::{ForwardContext, Initializer, Norm, NormConfig};

/// `norm_after(x + dropout(norm_of_branch(body(norm_before(x)))))`, where an absent norm is the identity.
#[derive(Module, Debug)]
pub struct Sublayer<Body: Module> {
    norm_before: Option<Norm>,
    body: Body,
    norm_of_branch: Option<Norm>,
    norm_after: Option<Norm>,
    #[module(skip)]
    dropout: f64,
}

impl<Body: Module> Sublayer<Body> {
    /// Wraps `body`; the block's placement determines the norms.
    pub fn new(
        body: Body,
        block: &BlockConfig,
        width: usize,
        initializer: &mut Initializer,
    ) -> Self {
        let mut norm_if =
            |present: bool| present.then(|| Norm::new(&block.norm, width, initializer));
        let [before, of_branch, after] = match block.placement {
            NormPlacement::Before => [true, false, false],
            NormPlacement::After => [false, false, true],
            NormPlacement::Both => [true, true, false],
        };
        Self {
            norm_before: norm_if(before),
            norm_of_branch: norm_if(of_branch),
            norm_after: norm_if(after),
            body,
            dropout: block.dropout,
        }
    }

    /// Wraps `body` with a norm after the residual sum and nothing else.
    pub(crate) fn post_norm(
        body: Body,
        norm: &NormConfig,
        width: usize,
        dropout: f64,
        initializer: &mut Initializer,
    ) -> Self {
        Self {
            norm_before: None,
            body,
            norm_of_branch: None,
            norm_after: Some(Norm::new(norm, width, initializer)),
            dropout,
        }
    }

    /// The same sublayer around a changed body.
    pub(crate) fn map_body(self, change: impl FnOnce(Body) -> Body) -> Self {
        Self {
            body: change(self.body),
            ..self
        }
    }

    /// The wrapped module.
    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// Applies the sublayer; `body` calls the wrapped module.
    pub fn forward(
        &self,
        stream: Stream,
        pass: &mut ForwardContext,
        body: impl FnOnce(&Body, Tensor<3>, &mut ForwardContext) -> Tensor<3>,
    ) -> Stream {
        let [x, normed] = match &self.norm_before {
            Some(norm) => stream.add_norm_with_sum(norm),
            None => {
                let x = stream.materialize();
                [x.clone(), x]
            }
        };
        self.add(x, normed, pass, body)
    }

    /// Reads `x` and adds to `residual`, another stream.
    pub fn forward_across(
        &self,
        residual: Tensor<3>,
        x: Tensor<3>,
        pass: &mut ForwardContext,
        body: impl FnOnce(&Body, Tensor<3>, &mut ForwardContext) -> Tensor<3>,
    ) -> Tensor<3> {
        let normed = match &self.norm_before {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.add(residual, normed, pass, body).materialize()
    }

    fn add(
        &self,
        x: Tensor<3>,
        normed: Tensor<3>,
        pass: &mut ForwardContext,
        body: impl FnOnce(&Body, Tensor<3>, &mut ForwardContext) -> Tensor<3>,
    ) -> Stream {
        let branch = body(&self.body, normed, pass);
        let branch = match &self.norm_of_branch {
            Some(norm) => norm.forward(branch),
            None => branch,
        };
        let branch = dropout(branch, self.dropout, pass.randomness.as_deref_mut());
        match &self.norm_after {
            Some(norm) => norm.add_norm(x, branch).into(),
            None => Stream::with_pending(x, branch),
        }
    }
}
