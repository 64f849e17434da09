//! JSON mutations that keep it valid: other numbers, other types, missing and unknown keys, deep nesting.

use serde_json::{Value, json};

use super::Rng;

/// Mutates one value of the tree.
pub(super) fn change(tree: &mut Value, rng: &mut Rng) {
    let count = count(tree);
    // The root is the least interesting value.
    let number = 1 + rng.below(count.saturating_sub(1));
    let other = nth(tree, rng.below(count)).clone();
    let value = nth_mut(tree, number.min(count - 1));
    match rng.below(10) {
        0..=4 => *value = extreme(value, rng),
        5 => *value = any_value(rng),
        // A value from elsewhere, unless it is large.
        6 if self::count(&other) < 50 => *value = other,
        _ => change_members(value, rng),
    }
}

/// An extreme value of the same type.
fn extreme(value: &Value, rng: &mut Rng) -> Value {
    match value {
        Value::Number(_) => number(rng),
        Value::Bool(set) => json!(!set),
        Value::String(text) => match rng.below(4) {
            0 => json!(""),
            1 => json!("x".repeat(1000)),
            2 => json!(format!("{text}\n\u{0}\u{202e}")),
            _ => json!(text.to_uppercase()),
        },
        Value::Array(values) => match rng.below(3) {
            0 => json!([]),
            1 => Value::Array(values.iter().cycle().take(100).cloned().collect()),
            _ => Value::Array(values.iter().rev().cloned().collect()),
        },
        Value::Object(_) => json!({}),
        Value::Null => any_value(rng),
    }
}

fn number(rng: &mut Rng) -> Value {
    let whole: [i64; 12] = [
        0,
        -1,
        1,
        2,
        3,
        7,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 53,
        i64::MAX,
        i64::MIN,
    ];
    match rng.below(4) {
        0 => json!(*rng.choose(&[0.5, -0.0, 1e308, -1e308, 1e-320, 1.5])),
        1 => json!(*rng.choose(&[u64::MAX, u64::MAX - 1, 1 << 63])),
        _ => json!(*rng.choose(&whole)),
    }
}

/// A value of any type.
fn any_value(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!("text"),
        3 => json!([1, 2]),
        4 => json!({ "a": 1 }),
        5 => nested(100, |inner| json!([inner])),
        6 => nested(100, |inner| json!({ "a": inner })),
        _ => number(rng),
    }
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!(0), |inner, _| wrap(inner))
}

/// Removes, renames or duplicates a member.
fn change_members(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let taken = members.remove(rng.choose(&names).as_str());
            if rng.below(2) == 0 {
                members.insert(rng.choose(&names).clone(), taken.unwrap_or_default());
            }
        }
        Value::Array(values) if !values.is_empty() => {
            let at = rng.below(values.len());
            match rng.below(2) {
                0 => drop(values.remove(at)),
                _ => values.push(values[at].clone()),
            }
        }
        other => *other = any_value(rng),
    }
}

/// The number of values in a tree, including the root.
fn count(value: &Value) -> usize {
    1 + children(value).map(count).sum::<usize>()
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(values) => Box::new(values.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// The value at a pre-order index.
fn nth(value: &Value, mut number: usize) -> &Value {
    if number == 0 {
        return value;
    }
    number -= 1;
    for child in children(value) {
        let inside = count(child);
        if number < inside {
            return nth(child, number);
        }
        number -= inside;
    }
    value
}

fn nth_mut(value: &mut Value, mut number: usize) -> &mut Value {
    if number == 0 {
        return value;
    }
    number -= 1;
    let position = children(value).map(count).position(|inside| {
        let here = number < inside;
        if !here {
            number -= inside;
        }
        here
    });
    let Some(position) = position else {
        return value;
    };
    let child = match value {
        Value::Array(values) => values.get_mut(position),
        Value::Object(members) => members.values_mut().nth(position),
        _ => None,
    };
    nth_mut(child.expect("it was counted"), number)
}
