//! The measured part of `docs/performance.md`, with the date, the versions and the machine.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::root;

/// Replaces the measured part.
pub fn write(tables: &str, python: &Path) -> Result<()> {
    let path = root().join("docs").join("performance.md");
    let text = format!("{}\n\n{tables}", conditions(python));
    replace_between(&path, "measured by `cargo xtask bench`", &text)
}

/// Replaces the text between the two comments of this name.
pub fn replace_between(path: &Path, name: &str, text: &str) -> Result<()> {
    let start = format!("<!-- {name}: from here -->");
    let end = format!("<!-- {name}: to here -->");
    let file = path.display().to_string();
    let page = std::fs::read_to_string(path).with_context(|| file.clone())?;
    let (before, rest) = page
        .split_once(&start)
        .with_context(|| format!("{file}: the line {start} is missing"))?;
    let (_, after) = rest
        .split_once(&end)
        .with_context(|| format!("{file}: the line {end} is missing"))?;
    let page = format!("{before}{start}\n\n{}\n\n{end}{after}", text.trim());
    std::fs::write(path, page).with_context(|| file.clone())?;
    println!("\nwritten to {file}");
    Ok(())
}

/// The date and the machine.
pub fn date_and_machine() -> String {
    format!("{} on {}", today(), machine())
}

fn conditions(python: &Path) -> String {
    let version = "import torch; print(torch.__version__)";
    let torch = first_line(Command::new(python).args(["-c", version]));
    let rustc = first_line(Command::new("rustc").arg("--version"));
    format!(
        "Measured on {} on {}, with {} and PyTorch {}.",
        today(),
        machine(),
        rustc.unwrap_or_else(|| "an unknown rustc".to_owned()),
        torch.unwrap_or_else(|| "of an unknown version".to_owned())
    )
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned)
}

/// The CPU, its number of cores, and its widest vector instructions.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let flags = field("flags").unwrap_or_default();
    let widest = ["avx512f", "avx2", "avx"]
        .into_iter()
        .find(|flag| flags.split(' ').any(|it| it == *flag));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{cores} cores of {} ({})",
        field("model name").unwrap_or(std::env::consts::ARCH),
        widest.unwrap_or(std::env::consts::ARCH)
    )
}

/// The date in UTC.
fn today() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let days = now.map_or(0, |since| since.as_secs() / 86_400);
    let [year, month, day] = date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day, this many days after 1 January 1970.
fn date(mut days: u64) -> [u64; 3] {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    [year, month, days + 1]
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), [1970, 1, 1]);
        assert_eq!(date(31 + 28), [1970, 3, 1]);
        assert_eq!(date(10_957 + 59), [2000, 2, 29]);
        assert_eq!(date(20_088), [2024, 12, 31]);
    }
}
