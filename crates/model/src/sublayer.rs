//! A sublayer and its residual connection, with norms on the way in, on what is added, and after the sum, each or none.

use attentive_tensor::dropout;
use burn::module::Module;
use burn::tensor::Tensor;

use crate::{BlockConfig, Initializer, Norm, NormPlacement, Pass, Stream};

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
    /// Wraps `body`; the block's placement says which norms there are.
    pub fn new(body: Body, block: &BlockConfig, width: usize, initial: &mut Initializer) -> Self {
        let mut norm_if = |there: bool| there.then(|| Norm::new(&block.norm, width, initial));
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

    /// The same around what `change` makes of the body.
    pub(crate) fn map_body(self, change: impl FnOnce(Body) -> Body) -> Self {
        Self {
            body: change(self.body),
            ..self
        }
    }

    /// Applies the sublayer; `body` says how its tenant is called.
    pub fn forward(
        &self,
        stream: Stream,
        pass: &mut Pass,
        body: impl FnOnce(&Body, Tensor<3>, &mut Pass) -> Tensor<3>,
    ) -> Stream {
        let [x, normed] = match &self.norm_before {
            Some(norm) => stream.beside_norm(norm),
            None => {
                let x = stream.whole();
                [x.clone(), x]
            }
        };
        self.added(x, normed, pass, body)
    }

    /// The same where what is read is not what is added to.
    pub fn forward_across(
        &self,
        onto: Tensor<3>,
        x: Tensor<3>,
        pass: &mut Pass,
        body: impl FnOnce(&Body, Tensor<3>, &mut Pass) -> Tensor<3>,
    ) -> Tensor<3> {
        let normed = match &self.norm_before {
            Some(norm) => norm.forward(x),
            None => x,
        };
        self.added(onto, normed, pass, body).whole()
    }

    fn added(
        &self,
        x: Tensor<3>,
        normed: Tensor<3>,
        pass: &mut Pass,
        body: impl FnOnce(&Body, Tensor<3>, &mut Pass) -> Tensor<3>,
    ) -> Stream {
        let branch = body(&self.body, normed, pass);
        let branch = match &self.norm_of_branch {
            Some(norm) => norm.forward(branch),
            None => branch,
        };
        let branch = dropout(branch, self.dropout, pass.randomness.as_deref_mut());
        match &self.norm_after {
            Some(norm) => norm.forward_of_sum(x, branch).into(),
            None => Stream::with_branch(x, branch),
        }
    }
}
