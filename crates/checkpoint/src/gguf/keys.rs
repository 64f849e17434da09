//! The metadata keys of a GGUF architecture, with errors that name the key.

use attentive_formats::error_text::excerpt;
use attentive_formats::gguf::Metadata;

/// The keys of one architecture.
pub(super) struct Keys<'m> {
    pub metadata: &'m Metadata,
    pub architecture: &'static str,
}

impl Keys<'_> {
    /// The full name of a key.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// Refuses every key of the architecture that is not in `known`.
    pub fn refuse_others(&self, known: &[&str]) -> Result<(), String> {
        let prefix = self.name("");
        let mut keys = self
            .metadata
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix));
        match keys.find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => Err(format!(
                "{} is not supported; supported are {}",
                excerpt(&self.name(key)),
                known.join(", ")
            )),
        }
    }

    /// A non-negative integer, if present.
    pub fn size(&self, key: &str) -> Result<Option<usize>, String> {
        let size = |metadata: &Metadata, name: &str| {
            let integer = metadata.integer(name)?;
            usize::try_from(integer).ok()
        };
        self.typed(key, "a non-negative integer", size)
    }

    /// A required non-negative integer.
    pub fn required_size(&self, key: &str) -> Result<usize, String> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A float, if present.
    pub fn float(&self, key: &str) -> Result<Option<f64>, String> {
        let float = |metadata: &Metadata, name: &str| metadata.float(name);
        Ok(self.typed(key, "a float", float)?.map(shortest))
    }

    /// A required float.
    pub fn required_float(&self, key: &str) -> Result<f64, String> {
        self.float(key)?.ok_or_else(|| self.missing(key))
    }

    /// A string, if present.
    pub fn string(&self, key: &str) -> Result<Option<String>, String> {
        let string = |metadata: &Metadata, name: &str| metadata.string(name).map(str::to_owned);
        self.typed(key, "a string", string)
    }

    fn missing(&self, key: &str) -> String {
        format!(
            "{} is missing; download or convert the file again",
            self.name(key)
        )
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        get: impl Fn(&Metadata, &str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let name = self.name(key);
        let Some(value) = self.metadata.get(&name) else {
            return Ok(None);
        };
        let problem = || format!("{name} is {}, but must be {expected}", value.type_name());
        get(self.metadata, &name).map(Some).ok_or_else(problem)
    }
}

/// The shortest decimal that rounds to the same f32, the precision of these files: 1e-5 rather than 9.99999974737875e-6.
fn shortest(value: f64) -> f64 {
    let single = value as f32;
    match f64::from(single) == value {
        true => single.to_string().parse().unwrap_or(value),
        false => value,
    }
}
