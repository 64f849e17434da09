//! Learning rate schedule: linear warm-up, then cosine decay to a floor. Loshchilov and Hutter 2016.

use serde::{Deserialize, Serialize};

/// Settings of the learning rate schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleConfig {
    /// Warm-up steps.
    #[serde(default)]
    pub warmup_steps: u64,
    /// The final learning rate as a fraction of the peak; one keeps it constant.
    #[serde(default = "default_min_lr_ratio")]
    pub min_lr_ratio: f64,
}

fn default_min_lr_ratio() -> f64 {
    0.1
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self {
            warmup_steps: 0,
            min_lr_ratio: default_min_lr_ratio(),
        }
    }
}

impl ScheduleConfig {
    /// The learning rate at `step` (from zero) of `steps`, as a fraction of the peak.
    pub fn factor(&self, step: u64, steps: u64) -> f64 {
        if step < self.warmup_steps {
            return (step + 1) as f64 / (self.warmup_steps + 1) as f64;
        }
        let progress = (step - self.warmup_steps) as f64
            / (steps.saturating_sub(self.warmup_steps)).max(1) as f64;
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos());
        self.min_lr_ratio + (1.0 - self.min_lr_ratio) * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attentive_testing::{Scale, assert_near};

    #[test]
    fn rises_to_the_peak_and_falls_to_the_floor() {
        let schedule = ScheduleConfig {
            warmup_steps: 10,
            min_lr_ratio: 0.2,
        };
        let factors: Vec<f64> = (0..=100).map(|step| schedule.factor(step, 100)).collect();
        assert!(factors[..11].is_sorted() && factors[0] > 0.0);
        assert_eq!(factors[10], 1.0);
        assert!(factors[10..].is_sorted_by(|a, b| a >= b));
        assert_near("last", factors[100], 0.2, Scale::One, 1e-12);
        assert_near("middle", factors[55], 0.6, Scale::One, 1e-12);
    }
}
