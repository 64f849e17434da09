//! How far the layers of a model see: all of the past, or a window of it, layer by layer.

use serde::{Deserialize, Serialize};

use crate::{AttentionConfig, ModelConfig};

/// Layers in a row that see equally far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub layers: usize,
    /// How many positions a query sees, itself among them; all unless said.
    pub window: Option<usize>,
}

impl Run {
    /// One run of all layers.
    pub fn all(layers: usize, window: Option<usize>) -> Vec<Self> {
        vec![Self { layers, window }]
    }

    /// The runs of our settings; none where an attention is of another kind.
    pub fn of(config: &ModelConfig) -> Option<Vec<Self>> {
        let run = |layers: usize, attention: &AttentionConfig| {
            let window = match attention {
                AttentionConfig::Full(_) => None,
                AttentionConfig::SlidingWindow(config) => Some(config.window),
                _ => return None,
            };
            Some(Self { layers, window })
        };
        let blocks = config.blocks.iter();
        let runs = blocks.map(|block| run(block.repeat, &block.attention));
        runs.collect()
    }

    /// The window that all layers have in common, if they do.
    pub fn common(runs: &[Self]) -> Option<Option<usize>> {
        let first = runs.first()?.window;
        let same = runs.iter().all(|run| run.window == first);
        same.then_some(first)
    }
}

/// The words of Qwen2 and Qwen3 for windows.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(super) struct QwenWindows {
    use_sliding_window: bool,
    sliding_window: Option<usize>,
    /// The first layers, which see everything, where `layer_types` does not say it.
    max_window_layers: usize,
    /// Since transformers 4.52.
    layer_types: Option<Vec<String>>,
}

/// Hugging Face leaves out what equals its defaults.
impl Default for QwenWindows {
    fn default() -> Self {
        Self {
            use_sliding_window: false,
            sliding_window: Some(4096),
            max_window_layers: 28,
            layer_types: None,
        }
    }
}

const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

impl QwenWindows {
    /// The runs of so many layers.
    pub fn runs(&self, layers: usize) -> Result<Vec<Run>, String> {
        let window = self.sliding_window.filter(|_| self.use_sliding_window);
        let Some(types) = &self.layer_types else {
            let full = match window {
                None => layers,
                Some(_) => self.max_window_layers.min(layers),
            };
            let runs = [(full, None), (layers - full, window)];
            return Ok(joined(runs.map(|(layers, window)| Run { layers, window })));
        };
        if types.len() != layers {
            return Err(format!(
                "layer_types names {} layers and num_hidden_layers is {layers}; they must agree",
                types.len()
            ));
        }
        let run = |kind: &String| {
            let window = match (kind.as_str(), window) {
                (FULL, _) => None,
                (SLIDING, Some(window)) => Some(window),
                (SLIDING, None) => {
                    return Err(format!(
                        "layer_types has {SLIDING:?}, but use_sliding_window is {} and sliding_window is {}; say both, or {FULL:?}",
                        self.use_sliding_window,
                        self.sliding_window
                            .map_or("null".to_owned(), |it| it.to_string()),
                    ));
                }
                (other, _) => {
                    return Err(format!(
                        "layer_types has {other:?}, which is not supported; supported are {FULL}, {SLIDING}"
                    ));
                }
            };
            Ok(Run { layers: 1, window })
        };
        let runs: Result<Vec<Run>, String> = types.iter().map(run).collect();
        Ok(joined(runs?))
    }

    /// The words for runs, if all of their windows are equally wide.
    pub fn of(runs: &[Run]) -> Option<Self> {
        let mut windows = runs.iter().filter_map(|run| run.window);
        let window = windows.next();
        if windows.any(|other| Some(other) != window) {
            return None;
        }
        let kind = |run: &Run| match run.window {
            None => FULL,
            Some(_) => SLIDING,
        };
        let types = runs.iter();
        let types = types.flat_map(|run| std::iter::repeat_n(kind(run).to_owned(), run.layers));
        let types: Vec<String> = types.collect();
        let full = types.iter().take_while(|kind| *kind == FULL).count();
        Some(Self {
            use_sliding_window: window.is_some(),
            sliding_window: window,
            // For older versions of transformers, which know nothing else.
            max_window_layers: full,
            layer_types: Some(types),
        })
    }
}

/// Equal neighbours as one, and none of no layers; but of no layers at all there is one, which is then refused as such.
fn joined(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.window == run.window || run.layers == 0 => last.layers += run.layers,
            Some(last) if last.layers == 0 => *last = run,
            _ => joined.push(run),
        }
    }
    match joined.is_empty() {
        true => Run::all(0, None),
        false => joined,
    }
}
