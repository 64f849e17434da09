//! The directives of Python's `strftime` that templates use, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const SECONDS_PER_DAY: u64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Formats `now`; an unknown directive is an error.
pub(super) fn format(now: SystemTime, format: &str) -> Result<String, Error> {
    let seconds = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |passed| passed.as_secs());
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let (year, month, day) = date(days);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[(days % 7) as usize];
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let part = match letters.next() {
            Some('Y') => format!("{year:04}"),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('d') => format!("{day:02}"),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{:02}", (hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{:02}", second % 60),
            Some('B') => month_name.to_owned(),
            Some('b') => month_name[..3].to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('%') => "%".to_owned(),
            other => {
                let what = format!(
                    "strftime_now does not support %{}",
                    other.map_or(String::new(), String::from)
                );
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
        };
        text.push_str(&part);
    }
    Ok(text)
}

/// Year, month and day of a day number since the Unix epoch.
fn date(mut days: u64) -> (u64, u64, u64) {
    // The calendar repeats every 400 years, which keeps the loop short for any representable time.
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let mut year = 1970 + 400 * (days / DAYS_OF_400_YEARS);
    days %= DAYS_OF_400_YEARS;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn check(seconds: u64, expected: &str) {
        let now = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(
            format(now, "%d %b %Y %A %a %B %m %y %H:%M:%S %I%p 100%%").expect("known directives"),
            expected
        );
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        check(
            0,
            "01 Jan 1970 Thursday Thu January 01 70 00:00:00 12AM 100%",
        );
        check(
            951_827_696,
            "29 Feb 2000 Tuesday Tue February 02 00 12:34:56 12PM 100%",
        );
        check(
            1_735_689_599,
            "31 Dec 2024 Tuesday Tue December 12 24 23:59:59 11PM 100%",
        );
        check(
            1_772_323_200,
            "01 Mar 2026 Sunday Sun March 03 26 00:00:00 12AM 100%",
        );
        check(
            13_574_563_200,
            "29 Feb 2400 Tuesday Tue February 02 00 00:00:00 12AM 100%",
        );
        assert!(format(UNIX_EPOCH, "%Q").is_err());
    }
}
