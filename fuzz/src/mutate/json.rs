//! Changes of JSON values that leave it JSON: other numbers, other types, missing and foreign keys, deep nesting.

use serde_json::{Value, json};

use super::Draw;

/// Changes one value of the tree.
pub(super) fn change(tree: &mut Value, draw: &mut Draw) {
    let count = count(tree);
    // The whole is the least interesting value.
    let number = 1 + draw.below(count.saturating_sub(1));
    let other = nth(tree, draw.below(count)).clone();
    let value = nth_mut(tree, number.min(count - 1));
    match draw.below(10) {
        0..=4 => *value = extreme(value, draw),
        5 => *value = odd(draw),
        // A value from elsewhere, unless it would grow without end.
        6 if self::count(&other) < 50 => *value = other,
        _ => change_members(value, draw),
    }
}

/// A value of the same type that is at an end of its range.
fn extreme(value: &Value, draw: &mut Draw) -> Value {
    match value {
        Value::Number(_) => number(draw),
        Value::Bool(set) => json!(!set),
        Value::String(text) => match draw.below(4) {
            0 => json!(""),
            1 => json!("x".repeat(1000)),
            2 => json!(format!("{text}\n\u{0}\u{202e}")),
            _ => json!(text.to_uppercase()),
        },
        Value::Array(values) => match draw.below(3) {
            0 => json!([]),
            1 => Value::Array(values.iter().cycle().take(100).cloned().collect()),
            _ => Value::Array(values.iter().rev().cloned().collect()),
        },
        Value::Object(_) => json!({}),
        Value::Null => odd(draw),
    }
}

fn number(draw: &mut Draw) -> Value {
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
    match draw.below(4) {
        0 => json!(*draw.one_of(&[0.5, -0.0, 1e308, -1e308, 1e-320, 1.5])),
        1 => json!(*draw.one_of(&[u64::MAX, u64::MAX - 1, 1 << 63])),
        _ => json!(*draw.one_of(&whole)),
    }
}

/// A value of any type.
fn odd(draw: &mut Draw) -> Value {
    match draw.below(8) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!("text"),
        3 => json!([1, 2]),
        4 => json!({ "a": 1 }),
        5 => nested(100, |inner| json!([inner])),
        6 => nested(100, |inner| json!({ "a": inner })),
        _ => number(draw),
    }
}

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!(0), |inner, _| wrap(inner))
}

/// Takes a member away, or adds one that nobody asked for.
fn change_members(value: &mut Value, draw: &mut Draw) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let taken = members.remove(draw.one_of(&names).as_str());
            if draw.below(2) == 0 {
                members.insert(draw.one_of(&names).clone(), taken.unwrap_or_default());
            }
        }
        Value::Array(values) if !values.is_empty() => {
            let at = draw.below(values.len());
            match draw.below(2) {
                0 => drop(values.remove(at)),
                _ => values.push(values[at].clone()),
            }
        }
        other => *other = odd(draw),
    }
}

/// How many values there are, the whole among them.
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

/// The value of a number, counted from the whole down, each before its parts.
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
