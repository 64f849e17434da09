//! One fuzzer per target; each file in the parent folder only names its target.

use std::sync::LazyLock;

use attentive_fuzz::{Target, mutated, target};
pub use libfuzzer_sys;

/// A lazily resolved target.
pub type Parser = LazyLock<Target>;

/// The target of a name.
pub fn parser(name: &str) -> Target {
    target(name)
}

/// Mutates an input: half of the mutations are structure-aware, half are libFuzzer's.
pub fn change(parser: &Target, data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed % 2 == 0 {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let changed = mutated(parser.form, &data[..size], u64::from(seed));
    let size = changed.len().min(max_size);
    data[..size].copy_from_slice(&changed[..size]);
    size
}

/// The fuzzer of a target.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        static PARSER: $crate::Parser = $crate::Parser::new(|| $crate::parser($name));

        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (PARSER.run)(bytes));

        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8],
                                              size: usize,
                                              max_size: usize,
                                              seed: u32| {
            $crate::change(&PARSER, data, size, max_size, seed)
        });
    };
}
