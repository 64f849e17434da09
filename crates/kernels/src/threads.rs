//! The thread pool of all kernels: fork-join with work stealing, in which the caller works too.
//!
//! A step of a small transformer is hundreds of kernels of ten to a hundred microseconds. A pool whose workers sleep between
//! kernels and are woken for each (rayon, called from outside its pool) loses on short kernels what it gains. Here workers spin
//! for a moment before they park, so that the next kernel finds them awake.
//!
//! ```text
//! caller   open the job ─ run tasks ─ … ─ close it ─ wait until no worker is inside
//! worker        enter if open ─ run tasks ─ … ─ leave ─ spin for the next job ─ park
//! ```
//!
//! A worker that wakes too late finds the job closed, and nobody has waited for it.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The minimum work, in elements, that is worth handing to another thread.
pub const GRAIN: usize = 1 << 14;

/// How long a worker spins before it parks: longer than the serial sections of a training step.
const SPIN_TIME: Duration = Duration::from_micros(500);

/// The maximum number of threads: the count of active workers shares a word with the job's number.
const MAX_THREADS: usize = 1024;

static COUNT: OnceLock<usize> = OnceLock::new();

/// Sets the number of threads, between 1 and 1024, instead of `ATTENTIVE_THREADS`; whether it could: no kernel has run yet.
pub fn set_count(threads: usize) -> bool {
    COUNT.set(threads.clamp(1, MAX_THREADS)).is_ok()
}

/// The number of threads: what [`set_count`] set, or `ATTENTIVE_THREADS`, or the available parallelism.
///
/// # Panics
/// When `ATTENTIVE_THREADS` is not a number of threads.
pub fn count() -> usize {
    *COUNT.get_or_init(|| from_environment().unwrap_or_else(|problem| panic!("{problem}")))
}

/// [`count`], read from the environment.
///
/// # Errors
/// When `ATTENTIVE_THREADS` is not a number of threads, with a message for the user.
pub fn from_environment() -> Result<usize, String> {
    let Some(value) = std::env::var_os("ATTENTIVE_THREADS") else {
        return Ok(thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_THREADS));
    };
    let number = value.to_str().and_then(|value| value.parse().ok());
    number
        .filter(|it| (1..=MAX_THREADS).contains(it))
        .ok_or_else(|| {
            format!("ATTENTIVE_THREADS is {value:?}; set it to a number from 1 to {MAX_THREADS}")
        })
}

thread_local! {
    /// Set while a thread runs a task: nested parallel loops run serially.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on this thread alone.
pub(crate) fn single_threaded<T>(work: impl FnOnce() -> T) -> T {
    let before = IN_TASK.replace(true);
    let result = work();
    IN_TASK.set(before);
    result
}

/// Runs the tasks `0..tasks`, in any order, on all threads.
///
/// # Panics
/// When a task panics, with its payload.
pub fn parallel_for(tasks: usize, task: impl Fn(usize) + Sync) {
    let threads = count().min(tasks);
    let ranges = (0..threads).map(|index| even_range(tasks, index, threads));
    parallel_for_ranges(ranges, &task);
}

/// Runs `task(thread, index)` for `tasks` tasks of each thread, in any order; idle threads steal from the others.
///
/// # Panics
/// When a task panics, with its payload.
pub(crate) fn parallel_for_grouped(
    threads: usize,
    tasks: usize,
    task: impl Fn(usize, usize) + Sync,
) {
    let ranges = (0..threads).map(|thread| thread * tasks..(thread + 1) * tasks);
    parallel_for_ranges(ranges, &|index| task(index / tasks, index % tasks));
}

/// Runs tasks that are assigned to threads as disjoint ranges.
fn parallel_for_ranges(
    ranges: impl Iterator<Item = Range<usize>> + Clone,
    task: &(dyn Fn(usize) + Sync),
) {
    let serially = || ranges.clone().flatten().for_each(task);
    let nonempty = ranges.clone().filter(|range| !range.is_empty()).count();
    if nonempty < 2 || IN_TASK.get() {
        return serially();
    }
    let pool = pool();
    // Another caller has the pool: its threads are busy, and waiting for them would gain nothing.
    let _guard = match pool.caller.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return serially(),
    };
    let queue = |tasks| TaskQueue {
        tasks,
        taken: AtomicUsize::new(0),
    };
    pool.run(&Job {
        task,
        queues: ranges.map(queue).collect(),
        panic: Mutex::new(None),
    });
}

/// Work split into independent tasks, which may run in any order.
pub(crate) trait TaskSet: Sync {
    /// How many tasks there are.
    fn tasks(&self) -> usize;

    /// Runs one of them.
    ///
    /// # Safety
    /// Each task may run only once: it writes to its part of the output without synchronization.
    unsafe fn run(&self, task: usize);
}

/// Runs the tasks of several sets as one job, without a barrier between them.
pub(crate) fn run_all(sets: &[&dyn TaskSet]) {
    let sizes: Vec<usize> = sets.iter().map(|set| set.tasks()).collect();
    let threads = count().min(sizes.iter().sum());
    let (schedule, ranges) = schedule(&sizes, threads);
    parallel_for_ranges(ranges.iter().cloned(), &|index| {
        let (set, task) = schedule[index];
        // SAFETY: each pair is in the schedule once, and every index is visited once.
        unsafe { sets[set].run(task) };
    });
}

/// All tasks of sets of these sizes, as pairs of set and task, and the range of this list that each thread gets.
///
/// Each thread gets its part of every set; sets with fewer tasks than threads are assigned round-robin.
fn schedule(sizes: &[usize], threads: usize) -> (Vec<(usize, usize)>, Vec<Range<usize>>) {
    let mut schedule = Vec::with_capacity(sizes.iter().sum());
    let ranges = (0..threads).map(|thread| {
        let start = schedule.len();
        let mut assigned = 0;
        for (set, tasks) in sizes.iter().copied().enumerate() {
            if tasks >= threads {
                schedule.extend(even_range(tasks, thread, threads).map(|task| (set, task)));
                continue;
            }
            let own = (0..tasks).filter(|task| (assigned + task) % threads == thread);
            schedule.extend(own.map(|task| (set, task)));
            assigned += tasks;
        }
        start..schedule.len()
    });
    let ranges = ranges.collect();
    (schedule, ranges)
}

/// The tasks of one kernel. Each thread has a queue of consecutive tasks, the same part in every job, because what it wrote in
/// the last is still in its cache; when its own queue is empty it steals from the others.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    queues: Vec<TaskQueue>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The tasks of one thread, and how many of them are taken.
struct TaskQueue {
    tasks: Range<usize>,
    taken: AtomicUsize,
}

impl Job<'_> {
    /// Runs tasks until there are none left, those of the thread's own queue first.
    fn run_tasks(&self, own: usize) {
        single_threaded(|| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                for offset in 0..self.queues.len() {
                    let TaskQueue { tasks, taken } =
                        &self.queues[(own + offset) % self.queues.len()];
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
                for TaskQueue { tasks, taken } in &self.queues {
                    taken.store(tasks.len(), Ordering::Relaxed);
                }
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        });
    }
}

/// One of `parts` nearly equal consecutive ranges of `0..count`.
#[inline(always)]
pub(crate) fn even_range(count: usize, index: usize, parts: usize) -> Range<usize> {
    index * count / parts..(index + 1) * count / parts
}

struct ThreadPool {
    /// One caller at a time.
    caller: Mutex<()>,
    /// Bit 0: the job is open. Bits 1 to 15: how many workers are inside. The rest: the number of the job.
    state: AtomicU64,
    job: UnsafeCell<*const Job<'static>>,
    workers: OnceLock<Vec<Thread>>,
}

const OPEN: u64 = 1;
const ONE_WORKER: u64 = 2;
const WORKERS: u64 = 0xFFFE;
const JOB_SHIFT: u32 = 16;

// SAFETY: the job's pointer is written by the caller that holds the lock, while no worker is inside, and read only by workers
// that are inside.
unsafe impl Sync for ThreadPool {}

fn pool() -> &'static ThreadPool {
    static POOL: ThreadPool = ThreadPool {
        caller: Mutex::new(()),
        state: AtomicU64::new(0),
        job: UnsafeCell::new(std::ptr::null()),
        workers: OnceLock::new(),
    };
    POOL.workers.get_or_init(|| {
        let worker = |number| {
            thread::Builder::new()
                .name(format!("kernels-{number}"))
                .spawn(move || POOL.worker_loop(number))
        };
        // If the system refuses to start more threads, the pool has fewer.
        (1..count())
            .map_while(|number| worker(number).ok())
            .map(|handle| handle.thread().clone())
            .collect()
    });
    &POOL
}

impl ThreadPool {
    /// Runs a job to completion. The caller holds the lock.
    fn run(&self, job: &Job) {
        let number = (self.state.load(Ordering::Relaxed) >> JOB_SHIFT) + 1;
        // SAFETY: no worker is inside (the last caller waited for that), and nobody else holds the lock. The job outlives its
        // pointer: this function does not return before the job is closed and all workers have left it.
        unsafe { *self.job.get() = std::ptr::from_ref(job).cast() };
        self.state
            .store(number << JOB_SHIFT | OPEN, Ordering::Release);
        for worker in self
            .workers
            .get()
            .iter()
            .flat_map(|it| it.iter())
            .take(job.queues.len() - 1)
        {
            worker.unpark();
        }
        job.run_tasks(0);
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while self.state.load(Ordering::Acquire) & WORKERS != 0 {
            spins += 1;
            if spins < 10_000 {
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

    fn worker_loop(&self, number: usize) {
        let mut last = 0;
        loop {
            last = self.enter_after(last);
            // SAFETY: while this thread counts as inside, the caller keeps the job alive.
            unsafe { (**self.job.get()).run_tasks(number) };
            self.state.fetch_sub(ONE_WORKER, Ordering::Release);
        }
    }

    /// Waits for an open job with a number other than `last`, enters it, and returns its number.
    fn enter_after(&self, last: u64) -> u64 {
        let mut since = Instant::now();
        let mut spins = 0u32;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & OPEN != 0 && state >> JOB_SHIFT != last {
                let inside = state + ONE_WORKER;
                let entered = self.state.compare_exchange_weak(
                    state,
                    inside,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if entered.is_ok() {
                    return state >> JOB_SHIFT;
                }
                continue;
            }
            spins += 1;
            if spins < 1000 {
                std::hint::spin_loop();
            } else if !spins.is_multiple_of(16) || since.elapsed() < SPIN_TIME {
                // Let other threads use this core.
                thread::yield_now();
            } else {
                thread::park();
                (since, spins) = (Instant::now(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_task_runs_once_for_every_caller() {
        thread::scope(|scope| {
            for caller in 0..4 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let tasks = (caller * 7 + round) % 23;
                        let counts: Vec<AtomicUsize> =
                            (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                        parallel_for(tasks, |index| {
                            counts[index].fetch_add(1, Ordering::Relaxed);
                            // A nested loop runs serially.
                            parallel_for(3, |_| {
                                counts[index].fetch_add(10, Ordering::Relaxed);
                            });
                        });
                        assert!(counts.iter().all(|it| it.load(Ordering::Relaxed) == 31));
                        if round % 50 == 0 {
                            thread::sleep(2 * SPIN_TIME);
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

    impl TaskSet for Counts {
        fn tasks(&self) -> usize {
            self.0.len()
        }

        unsafe fn run(&self, task: usize) {
            self.0[task].fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn every_task_of_several_sets_runs_once() {
        for sizes in [
            &[][..],
            &[0],
            &[1],
            &[0, 1, 0],
            &[1, 1],
            &[5, 0, 7, 1],
            &[64, 3],
        ] {
            let sets: Vec<Counts> = sizes.iter().map(|size| Counts::of(*size)).collect();
            let all: Vec<&dyn TaskSet> = sets.iter().map(|set| set as &dyn TaskSet).collect();
            run_all(&all);
            for count in sets.iter().flat_map(|set| &set.0) {
                assert_eq!(count.load(Ordering::Relaxed), 1, "{sizes:?}");
            }
        }
    }

    #[test]
    fn every_thread_has_its_part_of_every_set() {
        // Split-K products and then sums of one task each, as in the backward pass of linear layers.
        let (schedule, ranges) = schedule(&[2, 2, 1, 1, 1], 2);
        let first = [(0, 0), (1, 0), (2, 0), (4, 0)];
        let second = [(0, 1), (1, 1), (3, 0)];
        assert_eq!(schedule[ranges[0].clone()], first);
        assert_eq!(schedule[ranges[1].clone()], second);
    }

    proptest! {
        #[test]
        fn every_task_of_every_set_is_in_one_range(
            threads in 1usize..=17,
            sizes in prop::collection::vec(0usize..40, 0..6),
        ) {
            let (schedule, ranges) = schedule(&sizes, threads);
            let mut end = 0;
            for range in ranges {
                prop_assert_eq!(range.start, end);
                end = range.end;
            }
            prop_assert_eq!(end, schedule.len());
            let mut found = schedule;
            found.sort();
            let tasks = |(set, tasks): (usize, &usize)| (0..*tasks).map(move |task| (set, task));
            let all: Vec<(usize, usize)> = sizes.iter().enumerate().flat_map(tasks).collect();
            prop_assert_eq!(found, all);
        }
    }

    #[test]
    fn one_thread_steals_all_tasks_if_no_other_takes_them() {
        let counts = Counts::of(5);
        let queue = |tasks| TaskQueue {
            tasks,
            taken: AtomicUsize::new(0),
        };
        let job = Job {
            task: &|task| {
                counts.0[task].fetch_add(1, Ordering::Relaxed);
            },
            queues: [0..2, 2..2, 2..5, 5..5].map(queue).into(),
            panic: Mutex::new(None),
        };
        // The number of a worker that has no queue.
        job.run_tasks(7);
        assert!(counts.0.iter().all(|it| it.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn even_ranges_are_consecutive_and_complete() {
        for (tasks, parts) in [(0, 3), (1, 4), (7, 2), (8, 3), (100, 16)] {
            let all: Vec<usize> = (0..parts)
                .flat_map(|it| even_range(tasks, it, parts))
                .collect();
            assert_eq!(all, (0..tasks).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_keeps_working() {
        for _ in 0..3 {
            let result = catch_unwind(|| parallel_for(8, |index| assert_ne!(index, 5, "five")));
            let panic = result.expect_err("a task panicked");
            let message = panic.downcast_ref::<String>().expect("a message");
            assert!(message.contains("five"), "{message}");
            parallel_for(8, |_| ());
        }
    }
}
