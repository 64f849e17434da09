//! Sliding windows, layer by layer.

use serde::{Deserialize, Serialize};

use attentive_model::ModelConfig;
use attentive_model::attention::AttentionConfig;

/// Consecutive layers with the same window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowRun {
    pub layers: usize,
    /// How many positions a query attends to, including its own; None is full attention.
    pub window: Option<usize>,
}

impl WindowRun {
    /// The same window in all layers.
    pub fn uniform(layers: usize, window: Option<usize>) -> Vec<Self> {
        vec![Self { layers, window }]
    }

    /// The runs of a model; None where it has another kind of attention.
    pub fn of(config: &ModelConfig) -> Option<Vec<Self>> {
        let run = |layers: usize, attention: &AttentionConfig| {
            let window = match attention {
                AttentionConfig::Full(_) => None,
                AttentionConfig::SlidingWindow(config) => Some(config.window),
                _ => return None,
            };
            Some(Self { layers, window })
        };
        let blocks = config.stack.blocks.iter();
        let runs = blocks.map(|block| run(block.repeat, &block.attention));
        runs.collect()
    }

    /// The window of all layers, if it is the same.
    pub fn common(runs: &[Self]) -> Option<Option<usize>> {
        let first = runs.first()?.window;
        let same = runs.iter().all(|run| run.window == first);
        same.then_some(first)
    }
}

/// The keys of Qwen2 and Qwen3 for windows.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(super) struct QwenWindowConfig {
    use_sliding_window: bool,
    sliding_window: Option<usize>,
    /// How many of the first layers have full attention, where there is no `layer_types`.
    max_window_layers: usize,
    /// Since transformers 4.52.
    layer_types: Option<Vec<String>>,
}

/// Hugging Face leaves out keys with default values.
impl Default for QwenWindowConfig {
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

impl QwenWindowConfig {
    /// The runs of a model with this number of layers.
    pub fn runs(&self, layers: usize) -> Result<Vec<WindowRun>, String> {
        let window = self.sliding_window.filter(|_| self.use_sliding_window);
        let Some(types) = &self.layer_types else {
            let full = match window {
                None => layers,
                Some(_) => self.max_window_layers.min(layers),
            };
            let runs = [(full, None), (layers - full, window)];
            return Ok(merge_adjacent(
                runs.map(|(layers, window)| WindowRun { layers, window }),
            ));
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
                        "layer_types has {SLIDING:?}, but use_sliding_window is {} and sliding_window is {}; set both, or use {FULL:?}",
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
            Ok(WindowRun { layers: 1, window })
        };
        let runs: Result<Vec<WindowRun>, String> = types.iter().map(run).collect();
        Ok(merge_adjacent(runs?))
    }

    /// The keys for runs, if they have one window size.
    pub fn of(runs: &[WindowRun]) -> Option<Self> {
        let mut windows = runs.iter().filter_map(|run| run.window);
        let window = windows.next();
        if windows.any(|other| Some(other) != window) {
            return None;
        }
        let kind = |run: &WindowRun| match run.window {
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
            // Older versions of transformers read only this key.
            max_window_layers: full,
            layer_types: Some(types),
        })
    }
}

/// Merges adjacent runs of the same window and drops empty ones. Without layers one empty run remains, which validation
/// refuses.
fn merge_adjacent(runs: impl IntoIterator<Item = WindowRun>) -> Vec<WindowRun> {
    let mut merged: Vec<WindowRun> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if last.window == run.window || run.layers == 0 => last.layers += run.layers,
            Some(last) if last.layers == 0 => *last = run,
            _ => merged.push(run),
        }
    }
    match merged.is_empty() {
        true => WindowRun::uniform(0, None),
        false => merged,
    }
}
