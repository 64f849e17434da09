//! Every parser over its good inputs, over all that once broke it, and over changes of both: none may panic, abort, or take
//! memory that its input does not justify.
//!
//! `ATTENTIVE_FUZZ_CHANGES=100000` makes more changes of each input than a test run has time for. An input that ended the
//! program (a panic tells which one it was) is left in `fuzz-last` in the folder for temporary files of cargo's target.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use attentive_fuzz::{Target, mutated, target, targets};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The peak is of the whole process, so targets take turns.
static TURN: Mutex<()> = Mutex::new(());

/// How long the processor may be busy with an input.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many changed inputs each parser gets, and how long they may take together, unless a number of changes is asked for.
const RUNS: usize = 2000;
const BUDGET: Duration = Duration::from_secs(3);

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

/// How long this thread has been at work, where the system tells, for the machine may have other things to do; elsewhere
/// the time itself.
fn busy() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    nanoseconds.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

fn run(target: &Target, what: &str, input: &[u8]) {
    let last = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-last");
    std::fs::write(&last, input).unwrap();
    let (before, started) = (MEMORY.current_usage(), busy());
    MEMORY.reset_peak_usage();
    let ended = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let taken = MEMORY.peak_usage().saturating_sub(before);
    let allowed = target.memory + 64 * input.len();
    let kept = || last.with_file_name(format!("fuzz-{}", target.name));
    let took = busy().saturating_sub(started);
    let fails = ended.is_err() || taken > allowed || took > PATIENCE;
    if fails {
        std::fs::copy(&last, kept()).unwrap();
        panic!(
            "{}, {what}: panicked: {}, memory {taken} of {allowed}, time {took:?}; the input is {}",
            target.name,
            ended.is_err(),
            kept().display()
        );
    }
}

fn check(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let target = target(name);
    let seeds = (target.seeds)().into_iter().enumerate();
    let mut inputs: Vec<(String, Vec<u8>)> = seeds
        .map(|(number, seed)| (format!("seed {number}"), seed))
        .collect();
    inputs.extend(corpus(name));
    for (what, input) in &inputs {
        run(&target, what, input);
    }
    let asked = std::env::var("ATTENTIVE_FUZZ_CHANGES").ok();
    let asked: Option<u64> = asked.map(|number| number.parse().expect("a number of changes"));
    let started = Instant::now();
    for change in 0..asked.unwrap_or((RUNS / inputs.len()) as u64) {
        for (what, input) in &inputs {
            if asked.is_none() && started.elapsed() > BUDGET {
                return;
            }
            let changed = mutated(target.form, input, change);
            run(&target, &format!("{what}, change {change}"), &changed);
        }
    }
}

/// A test for each name, and the list of them.
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
    OF_MODELS: config,
    gguf_model,
    inputs,
    recipe,
    run_folder,
    sentence_folder,
);

#[cfg(not(feature = "models"))]
const OF_MODELS: &[&str] = &[];

#[test]
fn every_parser_is_here() {
    let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
    assert_eq!(names, [LIGHT, OF_MODELS].concat());
}

/// The fuzzers are no part of the workspace, so no compiler looks after them here.
#[test]
fn every_parser_has_a_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for target in targets() {
        let name = target.name;
        let file = std::fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        assert!(file.contains(&format!("fuzz!(\"{name}\")")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
