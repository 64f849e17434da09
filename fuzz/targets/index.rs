#![no_main]
attentive_fuzz_targets::fuzz!("index");
