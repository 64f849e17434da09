//! The functions and classes that a pickle may name: those that build tensors, and no other.

use crate::Kind;
use crate::shown::shown;

/// Something of Python's that a pickle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// A dictionary.
    OrderedDict,
    /// A tuple of sizes.
    Size,
    /// A tensor whose kind is that of its storage.
    RebuildTensor,
    /// A tensor whose kind is said beside its storage.
    RebuildTensorOfKind,
    /// A tensor that is trained.
    RebuildParameter,
    /// A kind of storage; one without a kind counts bytes.
    Storage(Kind),
    /// A kind of number.
    Kind(Kind),
}

/// What a name stands for; the error names what may not be called.
pub(super) fn permitted(module: &str, name: &str) -> Result<Global, String> {
    let found = match module {
        "collections" => (name == "OrderedDict").then_some(Global::OrderedDict),
        "torch._utils" => rebuild(name),
        "torch.storage" => untyped(name),
        "torch" if name == "Size" => Some(Global::Size),
        "torch" => storage(name)
            .map(Global::Storage)
            .or_else(|| kind(name).map(Global::Kind))
            .or_else(|| untyped(name)),
        _ => None,
    };
    found.ok_or_else(|| {
        format!(
            "it wants to call `{}.{}`, which is not among the few functions that build tensors",
            shown(module),
            shown(name)
        )
    })
}

fn rebuild(name: &str) -> Option<Global> {
    Some(match name {
        "_rebuild_tensor_v2" => Global::RebuildTensor,
        "_rebuild_tensor_v3" => Global::RebuildTensorOfKind,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Global::RebuildParameter,
        _ => return None,
    })
}

fn untyped(name: &str) -> Option<Global> {
    (name == "UntypedStorage").then_some(Global::Storage(Kind::U8))
}

fn storage(name: &str) -> Option<Kind> {
    Some(match name {
        "DoubleStorage" => Kind::F64,
        "FloatStorage" => Kind::F32,
        "HalfStorage" => Kind::F16,
        "BFloat16Storage" => Kind::BF16,
        "LongStorage" => Kind::I64,
        "IntStorage" => Kind::I32,
        "ShortStorage" => Kind::I16,
        "CharStorage" => Kind::I8,
        "ByteStorage" => Kind::U8,
        "BoolStorage" => Kind::Bool,
        _ => return None,
    })
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "float64" => Kind::F64,
        "float32" => Kind::F32,
        "float16" => Kind::F16,
        "bfloat16" => Kind::BF16,
        "int64" => Kind::I64,
        "int32" => Kind::I32,
        "int16" => Kind::I16,
        "int8" => Kind::I8,
        "uint64" => Kind::U64,
        "uint32" => Kind::U32,
        "uint16" => Kind::U16,
        "uint8" => Kind::U8,
        "bool" => Kind::Bool,
        _ => return None,
    })
}
