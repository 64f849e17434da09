//! A team of threads that shares the work of a kernel, the caller being one of them.
//!
//! A step of a small transformer is hundreds of kernels of some ten or hundred microseconds. A pool that sleeps between
//! them and is woken for each (rayon, called from outside its pool) loses as much time as it saves on the short ones. Here
//! helpers keep looking for a moment before they sleep, so that the next kernel finds them awake.
//!
//! ```text
//! caller   open the job ─ take tasks ─ … ─ close it ─ wait until nobody is inside
//! helper        enter if open ─ take tasks ─ … ─ leave ─ look for the next ─ sleep
//! ```
//!
//! A helper that wakes too late finds the job closed, and nobody has waited for it.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Rows of so many numbers are worth handing to another thread.
pub const GRAIN: usize = 1 << 14;

/// How long a helper looks for more work before it sleeps: longer than the serial stretches of a training step.
const PATIENCE: Duration = Duration::from_micros(500);

/// The most threads: their number has to fit beside the job's.
const MOST: usize = 1024;

/// How many threads share the work: `ATTENTIVE_THREADS`, or as many as the processor runs.
///
/// # Panics
/// When `ATTENTIVE_THREADS` is no number of threads.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| from_environment().unwrap_or_else(|problem| panic!("{problem}")))
}

/// What [`count`] says, or what is wrong with `ATTENTIVE_THREADS`.
pub fn from_environment() -> Result<usize, String> {
    let Some(said) = std::env::var_os("ATTENTIVE_THREADS") else {
        return Ok(thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MOST));
    };
    let number = said.to_str().and_then(|said| said.parse().ok());
    number
        .filter(|it| (1..=MOST).contains(it))
        .ok_or_else(|| format!("ATTENTIVE_THREADS is {said:?}; say a number from 1 to {MOST}"))
}

thread_local! {
    /// Set while a thread works on a task: what the task hands out in turn, it does itself.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` without helpers.
pub(crate) fn alone<T>(work: impl FnOnce() -> T) -> T {
    let before = BUSY.replace(true);
    let result = work();
    BUSY.set(before);
    result
}

/// Runs the tasks `0..tasks`, in any order, on all threads that are free.
///
/// # Panics
/// When a task panics, with what it panicked with.
pub fn each(tasks: usize, task: impl Fn(usize) + Sync) {
    let threads = count().min(tasks);
    let shares = (0..threads).map(|index| share(tasks, index, threads));
    in_shares(shares, &task);
}

/// Runs as many tasks for each of some threads, `task(thread, index)`, in any order; whoever is done helps the others.
///
/// # Panics
/// When a task panics, with what it panicked with.
pub(crate) fn each_of(threads: usize, tasks: usize, task: impl Fn(usize, usize) + Sync) {
    let shares = (0..threads).map(|thread| thread * tasks..(thread + 1) * tasks);
    in_shares(shares, &|index| task(index / tasks, index % tasks));
}

/// Runs tasks that are shared out among the threads: one range each, none twice.
fn in_shares(shares: impl Iterator<Item = Range<usize>> + Clone, task: &(dyn Fn(usize) + Sync)) {
    let serially = || shares.clone().flatten().for_each(task);
    let filled = shares.clone().filter(|share| !share.is_empty()).count();
    if filled < 2 || BUSY.get() {
        return serially();
    }
    let team = team();
    // Somebody else has the team: its threads are busy, and waiting for them would gain nothing.
    let _turn = match team.turn.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return serially(),
    };
    let untaken = |tasks| Share {
        tasks,
        taken: AtomicUsize::new(0),
    };
    team.run(&Job {
        task,
        shares: shares.map(untaken).collect(),
        panic: Mutex::new(None),
    });
}

/// Work that is cut into tasks, which can be done in any order.
pub(crate) trait Work: Sync {
    /// How many.
    fn tasks(&self) -> usize;

    /// Does one of them.
    ///
    /// # Safety
    /// Each task may be done once in the life of the work: it writes to its part of the results without asking.
    unsafe fn run(&self, task: usize);
}

/// Runs the tasks of several works as one job: nobody waits between them.
pub(crate) fn together(works: &[&dyn Work]) {
    let sizes: Vec<usize> = works.iter().map(|work| work.tasks()).collect();
    let threads = count().min(sizes.iter().sum());
    let (in_order, shares) = share_works(&sizes, threads);
    in_shares(shares.iter().cloned(), &|task| {
        let (work, task) = in_order[task];
        // SAFETY: each pair stands in the list once, and every place of the list is visited once.
        unsafe { works[work].run(task) };
    });
}

/// All tasks of works of these sizes, as pairs of work and task, and which part of the list is each thread's.
///
/// Every work is cut by itself, so that each thread has its part of each; those with fewer tasks than threads are dealt out in
/// turn.
fn share_works(sizes: &[usize], threads: usize) -> (Vec<(usize, usize)>, Vec<Range<usize>>) {
    let mut in_order = Vec::with_capacity(sizes.iter().sum());
    let shares = (0..threads).map(|thread| {
        let start = in_order.len();
        let mut dealt = 0;
        for (work, tasks) in sizes.iter().copied().enumerate() {
            if tasks >= threads {
                in_order.extend(share(tasks, thread, threads).map(|task| (work, task)));
                continue;
            }
            let mine = (0..tasks).filter(|task| (dealt + task) % threads == thread);
            in_order.extend(mine.map(|task| (work, task)));
            dealt += tasks;
        }
        start..in_order.len()
    });
    let shares = shares.collect();
    (in_order, shares)
}

/// The tasks of one kernel. Each thread has a share of them that follow each other, the same part in every job, because what
/// it wrote in the last is still in its cache; when it is done with its own it takes from the others'.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    shares: Vec<Share>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The tasks of one thread, and how many of them are taken.
struct Share {
    tasks: Range<usize>,
    taken: AtomicUsize,
}

impl Job<'_> {
    /// Takes tasks until there are none left, those of its own share first.
    fn work(&self, own: usize) {
        alone(|| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                for place in 0..self.shares.len() {
                    let Share { tasks, taken } = &self.shares[(own + place) % self.shares.len()];
                    loop {
                        let next = taken.fetch_add(1, Ordering::Relaxed);
                        if next >= tasks.len() {
                            break;
                        }
                        (self.task)(tasks.start + next);
                    }
                }
            }));
            if let Err(panic) = result {
                for Share { tasks, taken } in &self.shares {
                    taken.store(tasks.len(), Ordering::Relaxed);
                }
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        });
    }
}

/// One of several nearly equal parts of `0..count`, which follow each other.
#[inline(always)]
pub(crate) fn share(count: usize, index: usize, shares: usize) -> Range<usize> {
    index * count / shares..(index + 1) * count / shares
}

struct Team {
    /// One caller at a time.
    turn: Mutex<()>,
    /// Bit 0: the job is open. Bits 1 to 15: how many helpers are inside. The rest: the number of the job.
    state: AtomicU64,
    job: UnsafeCell<*const Job<'static>>,
    helpers: OnceLock<Vec<Thread>>,
}

const OPEN: u64 = 1;
const ONE_INSIDE: u64 = 2;
const INSIDE: u64 = 0xFFFE;
const NUMBER: u32 = 16;

// SAFETY: the job's pointer is written by the caller that holds the turn, while nobody is inside, and read only by helpers
// that are inside.
unsafe impl Sync for Team {}

fn team() -> &'static Team {
    static TEAM: Team = Team {
        turn: Mutex::new(()),
        state: AtomicU64::new(0),
        job: UnsafeCell::new(std::ptr::null()),
        helpers: OnceLock::new(),
    };
    TEAM.helpers.get_or_init(|| {
        let helper = |number| {
            thread::Builder::new()
                .name(format!("kernels-{number}"))
                .spawn(move || TEAM.help(number))
        };
        // Where the system refuses more threads, fewer do.
        (1..count())
            .map_while(|number| helper(number).ok())
            .map(|handle| handle.thread().clone())
            .collect()
    });
    &TEAM
}

impl Team {
    /// Runs a job to its end. The caller has the turn.
    fn run(&self, job: &Job) {
        let number = (self.state.load(Ordering::Relaxed) >> NUMBER) + 1;
        // SAFETY: nobody is inside (the last caller waited for that), and nobody else has the turn. The job outlives its
        // pointer: this function does not return before the job is closed and all helpers have left it.
        unsafe { *self.job.get() = std::ptr::from_ref(job).cast() };
        self.state.store(number << NUMBER | OPEN, Ordering::Release);
        for helper in self
            .helpers
            .get()
            .iter()
            .flat_map(|it| it.iter())
            .take(job.shares.len() - 1)
        {
            helper.unpark();
        }
        job.work(0);
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut turns = 0;
        while self.state.load(Ordering::Acquire) & INSIDE != 0 {
            turns += 1;
            if turns < 10_000 {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        if let Some(panic) = job
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            resume_unwind(panic);
        }
    }

    /// The life of a helper.
    fn help(&self, number: usize) {
        let mut last = 0;
        loop {
            last = self.enter_after(last);
            // SAFETY: while this thread counts as inside, the caller keeps the job.
            unsafe { (**self.job.get()).work(number) };
            self.state.fetch_sub(ONE_INSIDE, Ordering::Release);
        }
    }

    /// Enters the next job that is open and has another number than `last`, and gives its number.
    fn enter_after(&self, last: u64) -> u64 {
        let mut since = Instant::now();
        let mut turns = 0u32;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & OPEN != 0 && state >> NUMBER != last {
                let inside = state + ONE_INSIDE;
                let entered = self.state.compare_exchange_weak(
                    state,
                    inside,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if entered.is_ok() {
                    return state >> NUMBER;
                }
                continue;
            }
            turns += 1;
            if turns < 1000 {
                std::hint::spin_loop();
            } else if !turns.is_multiple_of(16) || since.elapsed() < PATIENCE {
                // Whoever else wants this processor may have it.
                thread::yield_now();
            } else {
                thread::park();
                (since, turns) = (Instant::now(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_task_runs_once_whoever_calls() {
        thread::scope(|scope| {
            for caller in 0..4 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let tasks = (caller * 7 + round) % 23;
                        let counts: Vec<AtomicUsize> =
                            (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        each(tasks, |index| {
                            counts[index].fetch_add(1, Ordering::Relaxed);
                            // A task that hands out tasks does them itself.
                            each(3, |_| {
                                counts[index].fetch_add(10, Ordering::Relaxed);
                            });
                        });
                        assert!(counts.iter().all(|it| it.load(Ordering::Relaxed) == 31));
                        if round % 50 == 0 {
                            thread::sleep(2 * PATIENCE);
                        }
                    }
                });
            }
        });
    }

    struct Counts(Vec<AtomicUsize>);

    impl Counts {
        fn of(tasks: usize) -> Self {
            Self((0..tasks).map(|_| AtomicUsize::new(0)).collect())
        }
    }

    impl Work for Counts {
        fn tasks(&self) -> usize {
            self.0.len()
        }

        unsafe fn run(&self, task: usize) {
            self.0[task].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_task_of_several_works_runs_once() {
        for sizes in [
            &[][..],
            &[0],
            &[1],
            &[0, 1, 0],
            &[1, 1],
            &[5, 0, 7, 1],
            &[64, 3],
        ] {
            let works: Vec<Counts> = sizes.iter().map(|size| Counts::of(*size)).collect();
            let all: Vec<&dyn Work> = works.iter().map(|work| work as &dyn Work).collect();
            together(&all);
            for count in works.iter().flat_map(|work| &work.0) {
                assert_eq!(count.load(Ordering::Relaxed), 1, "{sizes:?}");
            }
        }
    }

    #[test]
    fn every_thread_has_its_part_of_every_work() {
        // Products in halves and then sums of one task each, as gradients of linear maps are.
        let (in_order, shares) = share_works(&[2, 2, 1, 1, 1], 2);
        let first = [(0, 0), (1, 0), (2, 0), (4, 0)];
        let second = [(0, 1), (1, 1), (3, 0)];
        assert_eq!(in_order[shares[0].clone()], first);
        assert_eq!(in_order[shares[1].clone()], second);
    }

    proptest! {
        #[test]
        fn every_task_of_every_work_is_in_one_share(
            threads in 1usize..=17,
            sizes in prop::collection::vec(0usize..40, 0..6),
        ) {
            let (in_order, shares) = share_works(&sizes, threads);
            let mut end = 0;
            for share in shares {
                prop_assert_eq!(share.start, end);
                end = share.end;
            }
            prop_assert_eq!(end, in_order.len());
            let mut found = in_order;
            found.sort();
            let tasks = |(work, tasks): (usize, &usize)| (0..*tasks).map(move |task| (work, task));
            let all: Vec<(usize, usize)> = sizes.iter().enumerate().flat_map(tasks).collect();
            prop_assert_eq!(found, all);
        }
    }

    #[test]
    fn one_thread_does_what_no_helper_came_for() {
        let counts = Counts::of(5);
        let share = |tasks| Share {
            tasks,
            taken: AtomicUsize::new(0),
        };
        let job = Job {
            task: &|task| {
                counts.0[task].fetch_add(1, Ordering::Relaxed);
            },
            shares: [0..2, 2..2, 2..5, 5..5].map(share).into(),
            panic: Mutex::new(None),
        };
        // The number of a helper that has no share.
        job.work(7);
        assert!(counts.0.iter().all(|it| it.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn shares_follow_each_other_and_leave_nothing_out() {
        for (tasks, shares) in [(0, 3), (1, 4), (7, 2), (8, 3), (100, 16)] {
            let all: Vec<usize> = (0..shares)
                .flat_map(|it| share(tasks, it, shares))
                .collect();
            assert_eq!(all, (0..tasks).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        for _ in 0..3 {
            let result = catch_unwind(|| each(8, |index| assert_ne!(index, 5, "five")));
            let panic = result.expect_err("a task panicked");
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.contains("five"), "{message}");
            each(8, |_| ());
        }
    }
}
