//! When a run saves besides its evaluations: after so many steps, or after so much time.

use std::fmt;
use std::time::{Duration, Instant};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Far above any run.
const MAX_STEPS: u64 = 1_000_000_000_000;

/// Units of a time, and their seconds.
const UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];

/// How often a run saves: in recipes, a number of steps (`500`) or a time (`"90s"`, `"10m"`, `"2h"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveEvery {
    /// After this many steps.
    Steps(u64),
    /// When this much time has passed since the last save.
    Time(Duration),
}

impl SaveEvery {
    /// Whether a recipe can hold it.
    pub(crate) fn is_valid(self) -> bool {
        match self {
            Self::Steps(steps) => (1..=MAX_STEPS).contains(&steps),
            Self::Time(time) => time.as_secs() > 0 && time.subsec_nanos() == 0,
        }
    }
}

impl Default for SaveEvery {
    fn default() -> Self {
        Self::Time(Duration::from_secs(600))
    }
}

impl fmt::Display for SaveEvery {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let seconds = match self {
            Self::Steps(steps) => return write!(formatter, "{steps}"),
            Self::Time(time) => time.as_secs(),
        };
        let fits = |(_, size): &&(&str, u64)| seconds.is_multiple_of(*size);
        let (unit, size) = UNITS.iter().rfind(fits).expect("a second fits");
        write!(formatter, "{}{unit}", seconds / size)
    }
}

impl Serialize for SaveEvery {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Steps(steps) => serializer.serialize_u64(*steps),
            Self::Time(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for SaveEvery {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SaveEveryVisitor)
    }
}

struct SaveEveryVisitor;

impl Visitor<'_> for SaveEveryVisitor {
    type Value = SaveEvery;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a number of steps, or a time such as \"90s\", \"10m\" or \"2h\"")
    }

    fn visit_u64<E: de::Error>(self, steps: u64) -> Result<SaveEvery, E> {
        match steps {
            0 => Err(E::invalid_value(de::Unexpected::Unsigned(0), &self)),
            steps => Ok(SaveEvery::Steps(steps)),
        }
    }

    fn visit_i64<E: de::Error>(self, steps: i64) -> Result<SaveEvery, E> {
        match u64::try_from(steps) {
            Ok(steps) => self.visit_u64(steps),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(steps), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SaveEvery, E> {
        let seconds = UNITS.iter().find_map(|(unit, size)| {
            let digits = text.strip_suffix(unit)?;
            // `parse` would take a sign.
            let count: u64 = digits.parse().ok().filter(|_| !digits.starts_with('+'))?;
            count.checked_mul(*size).filter(|seconds| *seconds > 0)
        });
        match seconds {
            Some(seconds) => Ok(SaveEvery::Time(Duration::from_secs(seconds))),
            None => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

/// The saves of one session.
#[derive(Debug)]
pub(crate) struct SaveSchedule {
    every: SaveEvery,
    last: Instant,
}

impl SaveSchedule {
    pub fn new(every: SaveEvery) -> Self {
        Self {
            every,
            last: Instant::now(),
        }
    }

    /// Whether to save after `step`.
    pub fn is_due(&self, step: u64) -> bool {
        match self.every {
            SaveEvery::Steps(steps) => step.is_multiple_of(steps),
            SaveEvery::Time(time) => self.last.elapsed() >= time,
        }
    }

    /// After a save.
    pub fn saved(&mut self) {
        self.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Table {
        save_every: SaveEvery,
    }

    #[test]
    fn steps_and_times_are_read_and_written() {
        let time = |seconds| SaveEvery::Time(Duration::from_secs(seconds));
        let cases = [
            ("save_every = 500\n", SaveEvery::Steps(500)),
            ("save_every = \"90s\"\n", time(90)),
            ("save_every = \"10m\"\n", time(600)),
            ("save_every = \"2h\"\n", time(7200)),
        ];
        for (text, save_every) in cases {
            assert_eq!(toml::from_str(text), Ok(Table { save_every }));
            assert_eq!(toml::to_string(&Table { save_every }).unwrap(), text);
        }
        for wrong in [
            "0", "-1", "1.5", "\"10\"", "\"0m\"", "\"m\"", "\"1d\"", "\"+5s\"", "true",
        ] {
            let error = toml::from_str::<Table>(&format!("save_every = {wrong}")).unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains("a number of steps, or a time such as"),
                "{wrong}: {message}"
            );
        }
    }

    #[test]
    fn a_save_is_due_after_its_steps_or_its_time() {
        let steps = SaveSchedule::new(SaveEvery::Steps(3));
        let due: Vec<u64> = (1..=7).filter(|step| steps.is_due(*step)).collect();
        assert_eq!(due, [3, 6]);
        let mut time = SaveSchedule::new(SaveEvery::Time(Duration::from_secs(3600)));
        assert!(!time.is_due(2));
        time.last = Instant::now()
            .checked_sub(Duration::from_secs(3600))
            .unwrap();
        assert!(time.is_due(2));
        time.saved();
        assert!(!time.is_due(2));
    }
}
