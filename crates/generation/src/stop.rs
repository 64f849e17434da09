//! Stop strings in streamed text: text that may be the start of one is held back.

/// Searches a stream of text for strings that end it.
#[derive(Clone, Debug)]
pub struct StopStrings {
    strings: Vec<String>,
    held: String,
}

impl StopStrings {
    /// Searches for these strings; empty ones are ignored.
    pub fn new(strings: &[String]) -> Self {
        Self {
            strings: strings
                .iter()
                .filter(|it| !it.is_empty())
                .cloned()
                .collect(),
            held: String::new(),
        }
    }

    /// Appends a chunk; returns the text that is now final, and whether a stop string ended it.
    pub fn push(&mut self, chunk: &str) -> (String, bool) {
        self.held.push_str(chunk);
        let first = self
            .strings
            .iter()
            .filter_map(|stop| self.held.find(stop))
            .min();
        if let Some(at) = first {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let safe = self.held.len() - self.longest_partial_match();
        let rest = self.held.split_off(safe);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// The text that is still held back at the end of the stream.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The length of the longest suffix of the held text that is a prefix of a stop string.
    fn longest_partial_match(&self) -> usize {
        let suffixes = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        let matches = |suffix: &&str| self.strings.iter().any(|stop| stop.starts_with(*suffix));
        let mut suffixes = suffixes.filter(matches);
        suffixes.next().map_or(0, str::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_final_text_is_what_precedes_the_first_stop_string(
            chunks in proptest::collection::vec("[abé]{0,3}", 0..12),
            stops in proptest::collection::vec("[abé]{1,3}", 0..3),
        ) {
            // The stream ends at the first chunk that completes a stop string; the text ends before the earliest match.
            let end = (1..=chunks.len()).find_map(|count| {
                let seen = chunks[..count].concat();
                let at = stops.iter().filter_map(|stop| seen.find(stop)).min()?;
                Some(seen[..at].to_owned())
            });
            let mut stop_strings = StopStrings::new(&stops);
            let mut text = String::new();
            let mut stopped = false;
            for chunk in &chunks {
                let (safe, ended) = stop_strings.push(chunk);
                text += &safe;
                if ended {
                    stopped = true;
                    break;
                }
            }
            if !stopped {
                text += &stop_strings.finish();
            }
            prop_assert_eq!(stopped, end.is_some());
            prop_assert_eq!(text, end.unwrap_or_else(|| chunks.concat()));
        }
    }
}
