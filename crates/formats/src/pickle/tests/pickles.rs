//! Handmade pickles: what is refused, and with which message.

use super::{STORAGE, bare, check, legacy, pickle, refused, tensor, unsupported};
use crate::{DType, ParseError};

const ZERO: &[u8] = b"K\0";

#[test]
fn a_tensor_written_by_hand_is_read() {
    let tensors = check(&legacy(&tensor(b"K\x01", b"K\x03\x85", b"K\x01\x85"))).unwrap();
    let info = &tensors["name"];
    assert_eq!((info.dtype, info.shape.as_slice()), (DType::F32, &[3][..]));
    assert_eq!((info.bytes.len(), &info.strides), (12, &None));
}

#[test]
fn only_functions_that_build_tensors_may_be_named() {
    for (opcodes, name) in [
        (&b"cos\nsystem\nU\x02ls\x85R"[..], "os.system"),
        (b"cbuiltins\neval\n", "builtins.eval"),
        (b"c__builtin__\nset\n", "__builtin__.set"),
        (
            b"ctorch.storage\n_load_from_bytes\n",
            "torch.storage._load_from_bytes",
        ),
        (b"ctorch\nload\n", "torch.load"),
        (
            b"ctorch._utils\n_rebuild_tensor\n",
            "torch._utils._rebuild_tensor",
        ),
        (
            b"ctorch.FloatStorage\n__init__\n",
            "torch.FloatStorage.__init__",
        ),
        (b"\x8c\x02os\x8c\x06system\x93", "os.system"),
        (b"X\x02\0\0\0os\x8c\x06sys\x1b[1\x93", "os.sys\\u{1b}[1"),
    ] {
        let message = format!(
            "it wants to call `{name}`, which is not among the few functions that build tensors"
        );
        unsupported(&legacy(opcodes), &message);
    }
}

/// What PyTorch writes for tensors that are not read here: the message says what they are.
#[test]
fn tensors_of_other_kinds_are_named() {
    for (opcodes, what) in [
        (
            &b"ctorch._utils\n_rebuild_sparse_tensor\n"[..],
            "it has sparse tensors (`torch._utils._rebuild_sparse_tensor`), which are not supported",
        ),
        (
            b"ctorch._utils\n_rebuild_qtensor\n",
            "it has quantized tensors (`torch._utils._rebuild_qtensor`)",
        ),
        (
            b"ctorch._utils\n_rebuild_nested_tensor\n",
            "it has nested tensors",
        ),
        (
            b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
            "it has tensors without values",
        ),
        (
            b"ctorch._tensor\n_rebuild_from_type_v2\n",
            "it has tensors of other classes or with attributes",
        ),
        (
            b"ctorch\nComplexFloatStorage\n",
            "it has tensors of the type `torch.ComplexFloatStorage`, which is not supported",
        ),
        (
            b"ctorch\nQInt8Storage\n",
            "it has tensors of the type `torch.QInt8Storage`",
        ),
        (
            b"ctorch\nfloat8_e4m3fn\n",
            "it has tensors of the type `torch.float8_e4m3fn`",
        ),
        (
            b"ctorch\ncomplex32\n",
            "it has tensors of the type `torch.complex32`",
        ),
        (
            b"cnumpy._core.multiarray\n_reconstruct\n",
            "it wants to call `numpy._core.multiarray._reconstruct`",
        ),
    ] {
        unsupported(&legacy(opcodes), what);
    }
}

/// An expanded tensor is legal in PyTorch. One beyond its storage is broken.
#[test]
fn an_expanded_tensor_is_not_supported_and_one_beyond_its_storage_is_broken() {
    let expanded = legacy(&tensor(ZERO, b"K\x05\x85", b"K\0\x85"));
    let message = "tensor name: it has 5 elements, and its storage has 4: it was expanded";
    unsupported(&expanded, message);
    let beyond = legacy(&tensor(ZERO, b"K\x05\x85", b"K\x01\x85"));
    let error = check(&beyond).unwrap_err();
    assert!(matches!(error, ParseError::Broken(_)), "{error}");
}

#[test]
fn sizes_strides_and_offsets_are_checked() {
    let largest = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let largest_pair = [&largest[..], largest, b"\x86"].concat();
    let empty_pair = [&largest[..], ZERO, b"\x86"].concat();
    let seventeen = [b"(", &b"K\x01".repeat(17)[..], b"t"].concat();
    let no_size = "a size, stride or offset of it is not a non-negative integer";
    let beyond = "reach beyond the 4 elements of its storage";
    for (offset, sizes, strides, message) in [
        (ZERO, &b"K\x05\x85"[..], &b"K\x01\x85"[..], beyond),
        (b"K\x01", b"K\x04\x85", b"K\x01\x85", beyond),
        (b"K\x04", b")", b")", beyond),
        (largest, b"K\x01\x85", b"K\x01\x85", beyond),
        (ZERO, b"K\x02\x85", b"K\x04\x85", beyond),
        (ZERO, b"K\x02K\x02\x86", &largest_pair, beyond),
        (
            ZERO,
            &largest_pair,
            b"K\x01K\x01\x86",
            "more than memory can hold",
        ),
        (b"J\xff\xff\xff\xff", b"K\x01\x85", b"K\x01\x85", no_size),
        (ZERO, b"J\xff\xff\xff\xff\x85", b"K\x01\x85", no_size),
        (ZERO, b"K\x01\x85", b"J\xff\xff\xff\xff\x85", no_size),
        (
            ZERO,
            b"\x8a\x09\0\0\0\0\0\0\0\0\x01\x85",
            b"K\x01\x85",
            no_size,
        ),
        (ZERO, b"U\x011\x85", b"K\x01\x85", no_size),
        (
            ZERO,
            b"K\x01",
            b"K\x01\x85",
            "its sizes or strides are not a tuple",
        ),
        (
            ZERO,
            b"K\x01\x85",
            b")",
            "it has the sizes [1] and the strides []",
        ),
        (ZERO, &seventeen, &seventeen, "it has 17 dimensions"),
    ] {
        refused(&legacy(&tensor(offset, sizes, strides)), message);
    }
    // An empty tensor occupies no bytes, so huge sizes beside a zero are harmless.
    let empty = legacy(&tensor(b"K\x04", &empty_pair, b"K\x01K\x01\x86"));
    let info = &check(&empty).unwrap()["name"];
    assert_eq!((info.bytes.len(), &info.strides), (0, &None));
}

#[test]
fn python_2_pickles_are_read() {
    let tensor = [
        b"ctorch._utils\n_rebuild_tensor_v2\n(",
        STORAGE,
        b"K\0K\x04\x85K\x01\x85\x89}tR",
    ];
    let dictionary = [
        b"ccollections\nOrderedDict\n](](U\x01a",
        &tensor.concat()[..],
        b"ee\x85R}U\x09_metadata}sb",
    ];
    let tensors = check(&legacy(&dictionary.concat())).unwrap();
    assert_eq!(tensors["a"].shape, [4]);
}

#[test]
fn broken_pickles_are_refused() {
    for (opcodes, message) in [
        (&b""[..], "pops an empty stack"),
        (b"N(", "pops an empty stack"),
        (b"N(q\0", "pops an empty stack"),
        (b"t", "pops a mark that is not there"),
        (b"j\xff\xff\xff\xff", "has no memo 4294967295"),
        (b"Nr\xff\xff\xff\xff", "it holds no state dict"),
        (
            b"\x8b\xff\xff\xff\xff",
            "it ends where 4294967295 more bytes",
        ),
        (
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            "it ends where 18446744073709551615 more",
        ),
        (b"T\xff\xff\xff\x7f", "it ends where 2147483647 more bytes"),
        (b"U\x01\xff", "it holds no state dict"),
        (b"X\x01\0\0\0\xff", "not UTF-8"),
        (b"NNa", "appends to something other than a list"),
        (b"NNNs", "sets keys of something other than a dict"),
        (b"}(Nu", "sets a key without a value"),
        (b"NNb", "sets attributes of something other than a dict"),
        (b"NQ", "has a persistent id that is not a storage"),
        (b"NNR", "something other than a tuple"),
        (b"N)R", "other arguments than PyTorch"),
        (b"ctorch\nFloatStorage\n)R", "other arguments than PyTorch"),
        (b"NN\x93", "by something other than a string"),
        (b"cos", "it ends in the line"),
        (b"\x81", "the opcode 0x81"),
        (b"\x01", "0x01 at byte"),
        (b"i", "the opcode 0x69"),
        (b"}", "it has no tensors"),
        (b"]", "it holds no state dict"),
    ] {
        refused(&bare(opcodes, b""), message);
    }
    refused(b"", "it is neither a zip archive nor");
    refused(&pickle(b"}"), "it is neither a zip archive nor");
    refused(b"\x80\x01}.", "it is neither a zip archive nor");
}

#[test]
fn a_tensor_needs_its_storage_and_a_name() {
    let good = legacy(&tensor(ZERO, b"K\x04\x85", b"K\x01\x85"));
    let with = |from: &[u8], to: &[u8]| {
        let index = good
            .windows(from.len())
            .rposition(|part| part == from)
            .unwrap();
        [&good[..index], to, &good[index + from.len()..]].concat()
    };
    check(&good).unwrap();
    refused(&with(b"U\x04name", b"K\x01"), "a name that is not a string");
    refused(
        &with(b"U\x01ka.", b"U\x01ja."),
        "its list of storages has one",
    );
    refused(&with(b"]U\x01ka.", b"]."), "its storage k is missing");
    refused(
        &with(b"]U\x01ka.", b"]U\x01kaU\x01ka."),
        "it ends where 8 more bytes",
    );
    refused(
        &with(&4u64.to_le_bytes(), &5u64.to_le_bytes()),
        "storage k has 5 elements",
    );
    refused(
        &with(b"cpuK\x04", b"cpuJ\xff\xff\xff\xff"),
        "a storage of -1 elements",
    );
    unsupported(
        &with(b"cpuK\x04t", b"cpuK\x04(U\x01jK\0K\x04tt"),
        "a storage that is a view of another one",
    );
    unsupported(
        &with(b"\x89}t", b"\x89}}U\x03neg\x88st"),
        "a tensor has metadata",
    );
    refused(
        &with(b"tRs", b"tRsU\x04nameNs."),
        "no pickle of protocols 2 to 5",
    );
    refused(&with(&[0; 16], &[0; 15]), "it ends where 16 more bytes");
    let twice = [
        &tensor(ZERO, b"K\x04\x85", b"K\x01\x85")[..],
        &tensor(ZERO, b"K\x04\x85", b"K\x01\x85")[1..],
    ];
    refused(&legacy(&twice.concat()), "tensor name is duplicated");
}

#[test]
fn deep_and_long_pickles_terminate() {
    const MANY: usize = 1 << 19;
    let nested = [vec![b']'; MANY], vec![b'a'; MANY - 1]].concat();
    refused(&bare(&nested, b""), "it holds no state dict");
    let groups = [vec![b'('; MANY], vec![b't'; MANY]].concat();
    refused(&bare(&groups, b""), "it holds no state dict");
    refused(
        &bare(&vec![b'('; 8 * MANY], b""),
        "too long for a state dict",
    );
    let cycle = b"]q\0h\0a}q\x01h\x01h\x01sU\x05modelh\x01s";
    refused(&bare(cycle, b""), "it has no tensors");
    // One list of many pairs, converted to a dict repeatedly.
    let pairs = [b"](", &b"NN\x86".repeat(MANY / 4)[..], b"eq\0"].concat();
    let again = b"ccollections\nOrderedDict\nh\0\x85R".repeat(1000);
    refused(
        &bare(&[pairs, again].concat(), b""),
        "too long for a state dict",
    );
}
