//! What the machine can do at most: multiplications and additions, and bytes read.

use attentive_kernels::limits::{peak_operations, peak_reads};
use serde_json::json;

/// Prints both peaks, with all threads.
pub fn measure() {
    let line = json!({
        "work": "limits",
        "operations_per_second": peak_operations(),
        "bytes_per_second": peak_reads(),
    });
    println!("{line}");
}
