//! Pickles written by hand: what is refused, and in which words.

use super::{STORAGE, bare, check, older, pickle, refused, tensor};
use crate::Kind;

const ZERO: &[u8] = b"K\0";

#[test]
fn a_tensor_written_by_hand_is_read() {
    let entries = check(&older(&tensor(b"K\x01", b"K\x03\x85", b"K\x01\x85"))).unwrap();
    let entry = &entries["name"];
    assert_eq!((entry.kind, entry.shape.as_slice()), (Kind::F32, &[3][..]));
    assert_eq!((entry.bytes.len(), &entry.strides), (12, &None));
}

#[test]
fn only_functions_that_build_tensors_may_be_named() {
    for (operations, name) in [
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
        let words = format!(
            "it wants to call `{name}`, which is not among the few functions that build tensors"
        );
        refused(&older(operations), &words);
    }
}

#[test]
fn sizes_strides_and_offsets_are_checked() {
    let largest = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let largest_pair = [&largest[..], largest, b"\x86"].concat();
    let empty_pair = [&largest[..], ZERO, b"\x86"].concat();
    let seventeen = [b"(", &b"K\x01".repeat(17)[..], b"t"].concat();
    let no_size = "a size, stride or offset of it is no whole number from 0 on";
    let beyond = "reach beyond the 4 numbers of its storage";
    for (offset, sizes, strides, words) in [
        (
            ZERO,
            &b"K\x05\x85"[..],
            &b"K\x01\x85"[..],
            "it has 5 numbers, and there are 4",
        ),
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
            "its sizes or strides are no tuple",
        ),
        (
            ZERO,
            b"K\x01\x85",
            b")",
            "it has the sizes [1] and the strides []",
        ),
        (ZERO, &seventeen, &seventeen, "it has 17 axes"),
    ] {
        refused(&older(&tensor(offset, sizes, strides)), words);
    }
    // No numbers are nowhere, so huge sizes beside a zero are harmless.
    let empty = older(&tensor(b"K\x04", &empty_pair, b"K\x01K\x01\x86"));
    let entry = &check(&empty).unwrap()["name"];
    assert_eq!((entry.bytes.len(), &entry.strides), (0, &None));
}

#[test]
fn what_python_2_wrote_is_read() {
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
    let entries = check(&older(&dictionary.concat())).unwrap();
    assert_eq!(entries["a"].shape, [4]);
}

#[test]
fn broken_pickles_are_refused() {
    for (operations, words) in [
        (&b""[..], "takes a value where there is none"),
        (b"N(", "takes a value where there is none"),
        (b"N(q\0", "takes a value where there is none"),
        (b"t", "ends a group of values that never began"),
        (b"j\xff\xff\xff\xff", "has no value number 4294967295"),
        (b"Nr\xff\xff\xff\xff", "it holds no dictionary of tensors"),
        (
            b"\x8b\xff\xff\xff\xff",
            "it ends where 4294967295 more bytes",
        ),
        (
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
            "it ends where 18446744073709551615 more",
        ),
        (b"T\xff\xff\xff\x7f", "it ends where 2147483647 more bytes"),
        (b"U\x01\xff", "it holds no dictionary of tensors"),
        (b"X\x01\0\0\0\xff", "no UTF-8"),
        (b"NNa", "appends to what is no list"),
        (b"NNNs", "sets keys of what is no dictionary"),
        (b"}(Nu", "sets a key without a value"),
        (b"NNb", "sets attributes of what is no dictionary"),
        (b"NQ", "refers to something outside"),
        (b"NNR", "what is no tuple"),
        (b"N)R", "other arguments than PyTorch"),
        (b"ctorch\nFloatStorage\n)R", "other arguments than PyTorch"),
        (b"NN\x93", "by what is no text"),
        (b"cos", "it ends in the line"),
        (b"\x81", "the operation 0x81"),
        (b"i", "the operation 0x69"),
        (b"}", "there is no tensor in it"),
        (b"]", "it holds no dictionary of tensors"),
    ] {
        refused(&bare(operations, b""), words);
    }
    refused(b"", "it is neither a zip archive nor");
    refused(&pickle(b"}"), "it is neither a zip archive nor");
    refused(b"\x80\x01}.", "it is neither a zip archive nor");
}

#[test]
fn a_tensor_needs_its_storage_and_a_name() {
    let good = older(&tensor(ZERO, b"K\x04\x85", b"K\x01\x85"));
    let with = |from: &[u8], to: &[u8]| {
        let place = good
            .windows(from.len())
            .rposition(|part| part == from)
            .unwrap();
        [&good[..place], to, &good[place + from.len()..]].concat()
    };
    check(&good).unwrap();
    refused(&with(b"U\x04name", b"K\x01"), "a name that is no text");
    refused(
        &with(b"U\x01ka.", b"U\x01ja."),
        "its list of storages has one",
    );
    refused(&with(b"]U\x01ka.", b"]."), "its storage k is not there");
    refused(
        &with(b"]U\x01ka.", b"]U\x01kaU\x01ka."),
        "it ends where 8 more bytes",
    );
    refused(
        &with(&4u64.to_le_bytes(), &5u64.to_le_bytes()),
        "storage k has 5 numbers",
    );
    refused(
        &with(b"cpuK\x04", b"cpuJ\xff\xff\xff\xff"),
        "a storage of -1 numbers",
    );
    refused(
        &with(b"cpuK\x04t", b"cpuK\x04(U\x01jK\0K\x04tt"),
        "or a view of one",
    );
    refused(
        &with(b"\x89}t", b"\x89}}U\x03neg\x88st"),
        "a tensor has metadata",
    );
    refused(
        &with(b"tRs", b"tRsU\x04nameNs."),
        "no pickle of versions 2 to 5",
    );
    refused(&with(&[0; 16], &[0; 15]), "it ends where 16 more bytes");
    let twice = [
        &tensor(ZERO, b"K\x04\x85", b"K\x01\x85")[..],
        &tensor(ZERO, b"K\x04\x85", b"K\x01\x85")[1..],
    ];
    refused(
        &older(&twice.concat()),
        "tensor name is there a second time",
    );
}

#[test]
fn deep_and_long_pickles_end() {
    const MANY: usize = 1 << 19;
    let nested = [vec![b']'; MANY], vec![b'a'; MANY - 1]].concat();
    refused(&bare(&nested, b""), "it holds no dictionary of tensors");
    let groups = [vec![b'('; MANY], vec![b't'; MANY]].concat();
    refused(&bare(&groups, b""), "it holds no dictionary of tensors");
    refused(
        &bare(&vec![b'('; 8 * MANY], b""),
        "too long to be one of tensors",
    );
    let circle = b"]q\0h\0a}q\x01h\x01h\x01sU\x05modelh\x01s";
    refused(&bare(circle, b""), "there is no tensor in it");
    // One list of many pairs, made into a dictionary again and again.
    let pairs = [b"](", &b"NN\x86".repeat(MANY / 4)[..], b"eq\0"].concat();
    let again = b"ccollections\nOrderedDict\nh\0\x85R".repeat(1000);
    refused(
        &bare(&[pairs, again].concat(), b""),
        "too long to be one of tensors",
    );
}
