//! Runs every target on its seeds, its past crashes, and mutations of both: none may panic, abort, or exceed its memory limit.
//!
//! `ATTENTIVE_FUZZ_MUTATIONS=100000` sets the number of mutations per input, for longer runs. The last input is written to
//! `fuzz-last` in `CARGO_TARGET_TMPDIR`, in case it aborts the process; a failure names its input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use attentive_fuzz::{Target, mutated, target, targets};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Peak memory is per process, so targets run serially.
static SERIAL: Mutex<()> = Mutex::new(());

/// The CPU time limit per input.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Mutated inputs per target, and their total time, unless `ATTENTIVE_FUZZ_MUTATIONS` is set.
const MUTATIONS: usize = 2000;
const TIME_BUDGET: Duration = Duration::from_secs(3);

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The CPU time of this thread on Linux, which does not depend on load; elsewhere wall time.
fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn run(target: &Target, what: &str, input: &[u8]) {
    let last = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-last");
    std::fs::write(&last, input).unwrap();
    let (before, started) = (MEMORY.current_usage(), cpu_time());
    MEMORY.reset_peak_usage();
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let peak = MEMORY.peak_usage().saturating_sub(before);
    let limit = target.memory + 64 * input.len();
    let saved_input = || last.with_file_name(format!("fuzz-{}", target.name));
    let elapsed = cpu_time().saturating_sub(started);
    let fails = result.is_err() || peak > limit || elapsed > TIME_LIMIT;
    if fails {
        std::fs::copy(&last, saved_input()).unwrap();
        panic!(
            "{}, {what}: panicked: {}, memory {peak} of {limit}, time {elapsed:?}; the input is {}",
            target.name,
            result.is_err(),
            saved_input().display()
        );
    }
}

fn check(name: &str) {
    let _guard = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    let target = target(name);
    let seeds = (target.seeds)().into_iter().enumerate();
    let mut inputs: Vec<(String, Vec<u8>)> = seeds
        .map(|(number, seed)| (format!("seed {number}"), seed))
        .collect();
    inputs.extend(corpus(name));
    for (what, input) in &inputs {
        run(&target, what, input);
    }
    let requested = std::env::var("ATTENTIVE_FUZZ_MUTATIONS").ok();
    let requested: Option<u64> =
        requested.map(|number| number.parse().expect("a number of changes"));
    let started = Instant::now();
    for change in 0..requested.unwrap_or((MUTATIONS / inputs.len()) as u64) {
        for (what, input) in &inputs {
            if requested.is_none() && started.elapsed() > TIME_BUDGET {
                return;
            }
            let changed = mutated(target.form, input, change);
            run(&target, &format!("{what}, change {change}"), &changed);
        }
    }
}

/// Defines a test for each name, and the list of names.
macro_rules! each {
    ($list:ident: $($name:ident),* $(,)?) => {
        const $list: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { check(stringify!($name)); })*
    };
}

each!(
    LIGHT: safetensors,
    index,
    gguf,
    pickle,
    tokenizer,
    chat,
    corpus_text,
    image,
    preprocessor,
    model_id,
    cache,
);

#[cfg(feature = "models")]
each!(
    WITH_MODELS: config,
    gguf_model,
    inputs,
    recipe,
    run_folder,
    sentence_folder,
);

#[cfg(not(feature = "models"))]
const WITH_MODELS: &[&str] = &[];

#[test]
fn every_target_is_tested() {
    let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
    assert_eq!(names, [LIGHT, WITH_MODELS].concat());
}

/// The fuzzers are not part of the workspace, so the compiler does not check them here.
#[test]
fn every_target_has_a_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in targets() {
        let name = target.name;
        let file = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        assert!(file.contains(&format!("fuzz!(\"{name}\")")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
