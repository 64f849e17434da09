//! The allowlist of functions and classes that a pickle may reference: those that build tensors.

use crate::error_text::excerpt;
use crate::{DType, ParseError};

/// A Python global that a pickle may reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Global {
    /// `collections.OrderedDict`.
    OrderedDict,
    /// `torch.Size`.
    Size,
    /// A tensor with the dtype of its storage.
    RebuildTensorV2,
    /// A tensor with an explicit dtype.
    RebuildTensorV3,
    /// `torch.nn.Parameter`.
    RebuildParameter,
    /// A storage class; an untyped one counts bytes.
    Storage(DType),
    /// A `torch.dtype`.
    DType(DType),
}

/// Resolves a global; the error names one that is not allowed.
pub(super) fn find_class(module: &str, name: &str) -> Result<Global, ParseError> {
    let found = match module {
        "collections" => (name == "OrderedDict").then_some(Global::OrderedDict),
        "torch._utils" => rebuild(name),
        "torch.storage" => untyped(name),
        "torch" if name == "Size" => Some(Global::Size),
        "torch" => storage(name)
            .map(Global::Storage)
            .or_else(|| dtype(name).map(Global::DType))
            .or_else(|| untyped(name)),
        _ => None,
    };
    found.ok_or_else(|| refused(module, name))
}

/// The error for a global that is not allowed. What PyTorch itself writes is named by what it makes.
fn refused(module: &str, name: &str) -> ParseError {
    let global = format!("`{}.{}`", excerpt(module), excerpt(name));
    let made = match (module, name) {
        ("torch._utils", "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor") => {
            "sparse tensors"
        }
        ("torch._utils", "_rebuild_qtensor") => "quantized tensors",
        ("torch._utils", "_rebuild_nested_tensor") => "nested tensors",
        ("torch._utils", "_rebuild_meta_tensor_no_storage") => "tensors without values",
        ("torch._utils", "_rebuild_wrapper_subclass")
        | ("torch._tensor", "_rebuild_from_type" | "_rebuild_from_type_v2") => {
            "tensors of other classes or with attributes"
        }
        ("torch" | "torch.storage", name) if is_tensor_type(name) => {
            return ParseError::Unsupported(format!(
                "it has tensors of the type {global}, which is not supported; \
                 supported are float64, float32, float16, bfloat16, integers and bool"
            ));
        }
        _ => {
            return ParseError::Unsupported(format!(
                "it wants to call {global}, which is not among the few functions that build tensors; \
                 use the model's safetensors file"
            ));
        }
    };
    ParseError::Unsupported(format!(
        "it has {made} ({global}), which are not supported; save plain tensors"
    ))
}

/// Whether this is the name of a storage class, or of a dtype that ends in its width.
fn is_tensor_type(name: &str) -> bool {
    const DTYPES: [&str; 7] = ["bits", "complex", "float", "int", "qint", "quint", "uint"];
    let is_dtype = |kind: &&str| {
        let width = name.strip_prefix(*kind);
        width.is_some_and(|width| width.starts_with(|it: char| it.is_ascii_digit()))
    };
    name.ends_with("Storage") || DTYPES.iter().any(is_dtype)
}

fn rebuild(name: &str) -> Option<Global> {
    Some(match name {
        "_rebuild_tensor_v2" => Global::RebuildTensorV2,
        "_rebuild_tensor_v3" => Global::RebuildTensorV3,
        "_rebuild_parameter" | "_rebuild_parameter_with_state" => Global::RebuildParameter,
        _ => return None,
    })
}

fn untyped(name: &str) -> Option<Global> {
    (name == "UntypedStorage").then_some(Global::Storage(DType::U8))
}

fn storage(name: &str) -> Option<DType> {
    Some(match name {
        "DoubleStorage" => DType::F64,
        "FloatStorage" => DType::F32,
        "HalfStorage" => DType::F16,
        "BFloat16Storage" => DType::BF16,
        "LongStorage" => DType::I64,
        "IntStorage" => DType::I32,
        "ShortStorage" => DType::I16,
        "CharStorage" => DType::I8,
        "ByteStorage" => DType::U8,
        "BoolStorage" => DType::Bool,
        _ => return None,
    })
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "float64" => DType::F64,
        "float32" => DType::F32,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int64" => DType::I64,
        "int32" => DType::I32,
        "int16" => DType::I16,
        "int8" => DType::I8,
        "uint64" => DType::U64,
        "uint32" => DType::U32,
        "uint16" => DType::U16,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        _ => return None,
    })
}
