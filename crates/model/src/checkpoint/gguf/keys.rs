//! The settings of a GGUF file under its architecture's name, with errors that name the key.

use attentive_formats::gguf::Metadata;

/// The keys of one architecture.
pub(super) struct Keys<'m> {
    pub metadata: &'m Metadata,
    pub architecture: &'static str,
}

impl Keys<'_> {
    /// The whole name of a key, for messages.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// Refuses every key under the architecture's name that is not listed.
    pub fn refuse_others(&self, known: &[&str]) -> Result<(), String> {
        let prefix = self.name("");
        let mut ours = self
            .metadata
            .keys()
            .filter_map(|key| key.strip_prefix(&prefix));
        match ours.find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => Err(format!(
                "{} is not supported; supported are {}",
                self.name(key).escape_debug(),
                known.join(", ")
            )),
        }
    }

    /// A whole number, if it is there.
    pub fn size(&self, key: &str) -> Result<Option<usize>, String> {
        let number = |metadata: &Metadata, name: &str| {
            let number = metadata.integer(name)?;
            usize::try_from(number).ok()
        };
        self.typed(key, "one whole number of 0 or more", number)
    }

    /// A whole number that must be there.
    pub fn needed_size(&self, key: &str) -> Result<usize, String> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A float, if it is there.
    pub fn number(&self, key: &str) -> Result<Option<f64>, String> {
        let number = |metadata: &Metadata, name: &str| metadata.number(name);
        Ok(self.typed(key, "a float", number)?.map(shortest))
    }

    /// A float that must be there.
    pub fn needed_number(&self, key: &str) -> Result<f64, String> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A text, if it is there.
    pub fn text(&self, key: &str) -> Result<Option<String>, String> {
        let text = |metadata: &Metadata, name: &str| metadata.text(name).map(str::to_owned);
        self.typed(key, "a text", text)
    }

    fn missing(&self, key: &str) -> String {
        format!(
            "{} is missing; fetch or convert the file again",
            self.name(key)
        )
    }

    fn typed<T>(
        &self,
        key: &str,
        needed: &str,
        get: impl Fn(&Metadata, &str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let name = self.name(key);
        let Some(value) = self.metadata.get(&name) else {
            return Ok(None);
        };
        let problem = || format!("{name} is {}, and must be {needed}", value.type_name());
        get(self.metadata, &name).map(Some).ok_or_else(problem)
    }
}

/// The shortest decimal that is this number in single precision, in which these files have them: 1e-5, and not
/// 9.99999974737875e-6.
fn shortest(number: f64) -> f64 {
    let single = number as f32;
    match f64::from(single) == number {
        true => single.to_string().parse().unwrap_or(number),
        false => number,
    }
}
