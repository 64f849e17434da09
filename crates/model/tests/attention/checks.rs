//! The checks, and the suite that runs them over every example × every role that builds.

use attentive_model::{AttentionConfig, AttentionOutput, CacheSize, Memory, Role};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor};

use crate::examples::{EXAMPLES, Example, Gradient, Later};
use crate::setting::{BATCH, LENGTH, MEMORY, Setting, WIDTH, gap, noise, numbers};

#[test]
fn every_kind_in_every_role_that_builds_holds_to_the_contract() {
    let (mut pairs, mut checks, mut refused) = (0, 0, 0);
    for example in EXAMPLES {
        for role in Role::ALL {
            let config: AttentionConfig = serde_json::from_str(example.config).unwrap();
            let device = Device::flex();
            match Setting::new(&config, role, &device) {
                Ok(setting) => {
                    pairs += 1;
                    checks += check(example, &setting);
                }
                Err(_) => refused += 1,
            }
        }
    }
    println!("{pairs} pairs of example and role, {checks} checks; {refused} pairs are refused");
    assert!(pairs > EXAMPLES.len());
}

/// Runs all checks that concern the pair, and gives their number.
fn check(example: &Example, setting: &Setting) -> usize {
    let about = format!("{} {:?}", example.name, setting.role);
    let mut count = 0;
    let mut ran = |it: bool| count += usize::from(it);
    ran(shapes(setting, &about));
    ran(gradients(example, setting, &about));
    ran(causality(example, setting, &about));
    ran(padding(setting, &about));
    ran(nothing_to_see(setting, &about));
    ran(cached(setting, &about));
    ran(cached_with_padding(setting, &about));
    ran(weights(setting, &about));
    ran(dropout(setting, &about));
    count
}

fn shapes(setting: &Setting, about: &str) -> bool {
    for (batch, length) in [(BATCH, LENGTH), (1, 1), (3, 24), (0, 5)] {
        let device = Device::flex();
        let x = noise([batch, length, WIDTH], 1, &device);
        let memory = (setting.role == Role::Cross)
            .then(|| Memory::new(noise([batch, MEMORY, WIDTH], 2, &device)));
        let output = setting.run(x, memory, &mut Default::default()).output;
        assert_eq!(output.dims(), [batch, length, WIDTH], "{about}: the shape");
        assert!(
            numbers(output).iter().all(|it| it.is_finite()),
            "{about}: numbers that are none at {batch} × {length}"
        );
    }
    true
}

/// The derivative along a direction, of inputs and of parameters.
fn gradients(example: &Example, setting: &Setting, about: &str) -> bool {
    if example.gradient == Gradient::StraightThrough {
        return false;
    }
    let plain = Device::flex();
    let tracked = Device::flex().autodiff();
    let layer = Setting::new(&setting.config, setting.role, &tracked).unwrap();
    let x = noise([BATCH, LENGTH, WIDTH], 3, &tracked).require_grad();
    let upstream = |device: &Device| noise([BATCH, LENGTH, WIDTH], 4, device);
    let loss = (layer.output(x.clone()) * upstream(&tracked)).sum();
    let gradients = loss.backward();

    let along = noise([BATCH, LENGTH, WIDTH], 6, &plain);
    let slope: f32 = {
        // Without one, the output does not depend on the input but in steps.
        let gradient = x.grad(&gradients);
        gradient.map_or(0.0, |gradient| {
            (gradient * along.clone()).sum().into_scalar()
        })
    };
    let start = noise([BATCH, LENGTH, WIDTH], 3, &plain);
    let value = |step: f32| -> f64 {
        let moved = start.clone() + along.clone() * step;
        let output = setting.output(moved) * upstream(&plain);
        numbers(output).into_iter().map(f64::from).sum()
    };
    agree(slope, value, about, "the input");

    let mut moved = Along {
        gradients: &gradients,
        slope: 0.0,
        learns: Vec::new(),
    };
    let _ = layer.layer.clone().map(&mut moved);
    let Along { slope, learns, .. } = moved;
    let value = |step: f32| -> f64 {
        let mover = &mut Mover {
            step,
            learns: learns.iter(),
        };
        let moved = Setting {
            layer: setting.layer.clone().map(mover),
            config: setting.config.clone(),
            role: setting.role,
        };
        let output = moved.output(start.clone()) * upstream(&plain);
        numbers(output).into_iter().map(f64::from).sum()
    };
    agree(slope, value, about, "the parameters");
    true
}

/// Compares a slope with central differences of two widths, of which the error of the square is taken out (Richardson).
fn agree(slope: f32, value: impl Fn(f32) -> f64, about: &str, of: &str) {
    let difference = |step: f32| (value(step) - value(-step)) / (2.0 * f64::from(step));
    let expected = (4.0 * difference(2e-3) - difference(4e-3)) / 3.0;
    let scale = expected.abs().max(1.0);
    assert!(
        (f64::from(slope) - expected).abs() < 1e-2 * scale,
        "{about}: the slope of {of} is {slope} and should be {expected}"
    );
}

/// Sums gradient times direction over all parameters.
struct Along<'g> {
    gradients: &'g burn::tensor::Gradients,
    slope: f32,
    learns: Vec<bool>,
}

impl ModuleMapper for Along<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let tensor = param.val();
        self.learns.push(tensor.is_require_grad());
        if let Some(gradient) = tensor.grad(self.gradients) {
            let direction = noise(tensor.dims(), DIRECTION, &Device::flex());
            self.slope += (gradient * direction).sum().into_scalar::<f32>();
        }
        param
    }
}

/// Moves all parameters that are trained along the same directions.
struct Mover<'l> {
    step: f32,
    learns: std::slice::Iter<'l, bool>,
}

/// The seed of the direction in which parameters move.
const DIRECTION: u64 = 20;

impl ModuleMapper for Mover<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !self.learns.next().expect("as many parameters as before") {
            return param;
        }
        let step = self.step;
        param.map(|tensor| {
            let direction = noise(tensor.dims(), DIRECTION, &tensor.device());
            tensor + direction * step
        })
    }
}

fn causality(example: &Example, setting: &Setting, about: &str) -> bool {
    if setting.role != Role::Causal {
        return false;
    }
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    for kept in [1, 4, LENGTH - 1] {
        let late = LENGTH - kept;
        let later = x.clone().narrow(1, kept, late);
        let later = match example.later {
            Later::AnyOther => noise([BATCH, late, WIDTH], 9, &device),
            Later::Scaled => later * 2.0,
        };
        let changed = Tensor::cat(vec![x.clone().narrow(1, 0, kept), later], 1);
        let (one, other) = (setting.output(x.clone()), setting.output(changed));
        let early = gap(
            one.clone().narrow(1, 0, kept),
            other.clone().narrow(1, 0, kept),
        );
        let late = gap(one.narrow(1, kept, late), other.narrow(1, kept, late));
        assert!(
            early < 1e-6,
            "{about}: later tokens changed {kept} earlier ones by {early}"
        );
        assert!(
            late > 1e-3,
            "{about}: later tokens have no effect on themselves"
        );
    }
    true
}

/// What stands at padded positions has no effect on real ones.
fn padding(setting: &Setting, about: &str) -> bool {
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let other = noise([BATCH, LENGTH, WIDTH], 11, &device);
    let memory = noise([BATCH, MEMORY, WIDTH], 2, &device);
    let other_memory = noise([BATCH, MEMORY, WIDTH], 12, &device);
    let real = [0..6, 2..MEMORY];
    let spoil = |x: Tensor<3>, other: Tensor<3>| {
        let rows = real.iter().enumerate().map(|(row, real)| {
            let piece = |x: &Tensor<3>, from: usize, to: usize| {
                x.clone().narrow(0, row, 1).narrow(1, from, to - from)
            };
            let length = x.dims()[1];
            let mut parts = vec![piece(&x, real.start, real.end)];
            if real.start > 0 {
                parts.insert(0, piece(&other, 0, real.start));
            }
            if real.end < length {
                parts.push(piece(&other, real.end, length));
            }
            Tensor::cat(parts, 1)
        });
        Tensor::cat(rows.collect(), 0)
    };
    let run = |x: Tensor<3>, memory: Tensor<3>| {
        let memory = (setting.role == Role::Cross).then(|| Memory::new(memory));
        setting.output_of_real(x, memory, real.to_vec())
    };
    let (clean, spoilt) = if setting.role == Role::Cross {
        (
            run(x.clone(), memory.clone()),
            run(x, spoil(memory, other_memory)),
        )
    } else {
        (run(x.clone(), memory.clone()), run(spoil(x, other), memory))
    };
    for (row, real) in real.iter().enumerate() {
        // Across sequences all queries are real, inside one only those that are no padding.
        let rows = if setting.role == Role::Cross {
            0..LENGTH
        } else {
            real.clone()
        };
        let of = |x: &Tensor<3>| {
            x.clone()
                .narrow(0, row, 1)
                .narrow(1, rows.start, rows.len())
        };
        let gap = gap(of(&clean), of(&spoilt));
        assert!(gap < 2e-6, "{about}: padding changes row {row} by {gap}");
    }
    true
}

/// A sequence of nothing but padding gives zeros, in values and gradients.
fn nothing_to_see(setting: &Setting, about: &str) -> bool {
    let device = Device::flex().autodiff();
    let layer = Setting::new(&setting.config, setting.role, &device).unwrap();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device).require_grad();
    let memory = layer.memory(&device);
    let keys = if setting.role == Role::Cross {
        MEMORY
    } else {
        LENGTH
    };
    let output = layer.output_of_real(x.clone(), memory, vec![0..0, 0..keys]);
    let empty = output.clone().narrow(0, 0, 1);
    let most = numbers(empty.abs().max())[0];
    assert!(
        most == 0.0,
        "{about}: a row with nothing to see gives {most}"
    );
    let gradients = output.powf_scalar(2.0).sum().backward();
    let slopes = x.grad(&gradients).map_or_else(Vec::new, numbers);
    assert!(
        slopes.iter().all(|it| it.is_finite()),
        "{about}: a row with nothing to see has slopes that are no numbers"
    );
    true
}

fn cached(setting: &Setting, about: &str) -> bool {
    if setting.role == Role::Bidirectional || setting.config.cache(WIDTH) == CacheSize::Impossible {
        return false;
    }
    let device = Device::flex();
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let whole = setting.output(x.clone());
    for pieces in PIECES {
        let gap = gap(
            whole.clone(),
            setting.output_in_pieces(x.clone(), pieces, 0),
        );
        assert!(
            gap < 1e-5,
            "{about}: in pieces of {pieces:?} the output differs by {gap}"
        );
    }
    true
}

/// Sizes of the pieces that a sequence comes in.
const PIECES: &[&[usize]] = &[&[1; LENGTH], &[5, 1, 1, 3, 1], &[2, 9], &[10, 1]];

/// Padding before the first real position, which a cache must not forget.
fn cached_with_padding(setting: &Setting, about: &str) -> bool {
    if setting.role != Role::Causal || setting.config.cache(WIDTH) == CacheSize::Impossible {
        return false;
    }
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let padded = 4;
    let whole = setting.output_of_real(x.clone(), None, vec![0..LENGTH, padded..LENGTH]);
    for pieces in PIECES {
        let output = setting.output_in_pieces(x.clone(), pieces, padded);
        let real = |x: &Tensor<3>| x.clone().narrow(1, padded, LENGTH - padded);
        let gap = gap(real(&whole), real(&output));
        assert!(
            gap < 1e-5,
            "{about}: padded, in pieces of {pieces:?}, the output differs by {gap}"
        );
    }
    true
}

fn weights(setting: &Setting, about: &str) -> bool {
    let x = noise([BATCH, LENGTH, WIDTH], 1, &Device::flex());
    let AttentionOutput { output, weights } = setting.observed(x.clone());
    let gap = gap(setting.output(x), output);
    assert!(
        gap < 1e-5,
        "{about}: looking on changes the output by {gap}"
    );
    let Some(weights) = weights else {
        return false;
    };
    let [batch, _, queries, _] = weights.dims();
    assert_eq!(
        [batch, queries],
        [BATCH, LENGTH],
        "{about}: the weights' shape"
    );
    let sums = numbers(weights.clone().sum_dim(3));
    assert!(
        sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5),
        "{about}: the weights sum to {sums:?}"
    );
    assert!(
        numbers(weights).iter().all(|it| *it >= 0.0),
        "{about}: a weight is negative"
    );
    true
}

/// Dropout that is accepted has an effect in training and none in use.
fn dropout(setting: &Setting, about: &str) -> bool {
    let mut words = serde_json::to_value(&setting.config).unwrap();
    words["dropout"] = serde_json::json!(0.5);
    let config: AttentionConfig = serde_json::from_value(words).unwrap();
    let device = Device::flex();
    let Ok(dropping) = Setting::new(&config, setting.role, &device) else {
        return false;
    };
    let x = noise([BATCH, LENGTH, WIDTH], 1, &device);
    let plain = setting.output(x.clone());
    assert!(
        gap(plain.clone(), dropping.output(x.clone())) == 0.0,
        "{about}: dropout has an effect outside of training"
    );
    let [one, same, other] = [1, 1, 2].map(|seed| dropping.output_with_dropout(x.clone(), seed));
    assert!(
        gap(one.clone(), same) == 0.0,
        "{about}: dropout is not a function of its seed"
    );
    assert!(
        gap(one.clone(), other) > 1e-3 && gap(one, plain) > 1e-3,
        "{about}: dropout has no effect"
    );
    true
}
