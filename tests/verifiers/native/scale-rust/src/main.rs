//! Decodes SCALE with the crate `parity-scale-codec` and encodes again what it read.
//!
//! The argument names a file of records, a length (4 bytes, little-endian) and that many bytes each: a type, then an encoding.
//! A line each is the answer: the value's own encoding in hexadecimal after `0x`, or `refused`.
//!
//! A type is words: a number (`u8` to `i128`), `c` and the bits of a compact one, `bool`, `text`, `bits`, `bytes` (`Vec<u8>`),
//! `[` and a length and a type (array), `?` (option), `v` (list), `s` (set) and a type, `m` (map) and two, `t` (tuple, struct)
//! or `e` (enum) and a count and that many. The crate reads all of these but the byte that tells the variants of an enum.
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::str::SplitWhitespace;

use bitvec::order::Lsb0;
use bitvec::vec::BitVec;
use parity_scale_codec::{Compact, Decode, DecodeAll, Encode, Error, Input, Output};

#[derive(Clone)]
enum Shape {
    Plain(Plain),
    Array(usize, Box<Shape>),
    Optional(Box<Shape>),
    List(Box<Shape>),
    Set(Box<Shape>),
    Map(Box<(Shape, Shape)>),
    Tuple(Vec<Shape>),
    Enum(Vec<Shape>),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Plain(PlainValue),
    Sequence(Vec<Value>),
    Optional(Option<Box<At<0>>>),
    List(Vec<At<0>>),
    Set(BTreeSet<At<0>>),
    Map(BTreeMap<At<0>, At<1>>),
    Variant(u8, Box<Value>),
}

macro_rules! plain {
    ($($name:ident $word:literal $type:ty),*) => {
        #[derive(Clone)]
        enum Plain { $($name),* }

        #[derive(PartialEq, Eq, PartialOrd, Ord)]
        enum PlainValue { $($name($type)),* }

        fn plain_named(word: &str) -> Plain {
            match word {
                $($word => Plain::$name,)*
                _ => panic!("no type is called {word}"),
            }
        }

        fn read_plain<I: Input>(plain: &Plain, input: &mut I) -> Result<PlainValue, Error> {
            Ok(match plain { $(Plain::$name => PlainValue::$name(<$type>::decode(input)?)),* })
        }

        impl Encode for PlainValue {
            fn encode_to<W: Output + ?Sized>(&self, dest: &mut W) {
                match self { $(PlainValue::$name(value) => value.encode_to(dest)),* }
            }
        }
    };
}

plain!(
    U8 "u8" u8, U16 "u16" u16, U32 "u32" u32, U64 "u64" u64, U128 "u128" u128,
    I8 "i8" i8, I16 "i16" i16, I32 "i32" i32, I64 "i64" i64, I128 "i128" i128,
    C8 "c8" Compact<u8>, C16 "c16" Compact<u16>, C32 "c32" Compact<u32>, C64 "c64" Compact<u64>, C128 "c128" Compact<u128>,
    Bool "bool" bool, Text "text" String, Bytes "bytes" Vec<u8>, Bits "bits" BitVec<u8, Lsb0>
);

/// A value of the `N`th of the types that stand last in `INSIDE`: so the crate's own collections decode them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct At<const N: usize>(Value);

thread_local! {
    static INSIDE: RefCell<Vec<Vec<Shape>>> = const { RefCell::new(Vec::new()) };
}

impl<const N: usize> Decode for At<N> {
    fn decode<I: Input>(input: &mut I) -> Result<Self, Error> {
        let shape = INSIDE.with(|inside| inside.borrow().last().unwrap()[N].clone());
        read(&shape, input).map(At)
    }
}

impl<const N: usize> Encode for At<N> {
    fn encode_to<W: Output + ?Sized>(&self, dest: &mut W) {
        self.0.encode_to(dest)
    }
}

impl Encode for Value {
    fn encode_to<W: Output + ?Sized>(&self, dest: &mut W) {
        match self {
            Value::Plain(value) => value.encode_to(dest),
            Value::Sequence(parts) => parts.iter().for_each(|part| part.encode_to(dest)),
            Value::Optional(value) => value.encode_to(dest),
            Value::List(elements) => elements.encode_to(dest),
            Value::Set(elements) => elements.encode_to(dest),
            Value::Map(entries) => entries.encode_to(dest),
            Value::Variant(number, content) => {
                number.encode_to(dest);
                content.encode_to(dest);
            }
        }
    }
}

/// Decode a collection whose elements are of the types `inside`.
fn read_inside<T: Decode, I: Input>(inside: Vec<Shape>, input: &mut I) -> Result<T, Error> {
    INSIDE.with(|all| all.borrow_mut().push(inside));
    let found = T::decode(input);
    INSIDE.with(|all| all.borrow_mut().pop());
    found
}

fn read_each<'a, I: Input>(parts: impl Iterator<Item = &'a Shape>, input: &mut I) -> Result<Value, Error> {
    parts.map(|part| read(part, input)).collect::<Result<_, _>>().map(Value::Sequence)
}

fn read<I: Input>(shape: &Shape, input: &mut I) -> Result<Value, Error> {
    Ok(match shape {
        Shape::Plain(plain) => Value::Plain(read_plain(plain, input)?),
        Shape::Array(length, inner) => read_each((0..*length).map(|_| &**inner), input)?,
        Shape::Tuple(parts) => read_each(parts.iter(), input)?,
        Shape::Optional(inner) => Value::Optional(read_inside::<Option<At<0>>, I>(vec![(**inner).clone()], input)?.map(Box::new)),
        Shape::List(inner) => Value::List(read_inside(vec![(**inner).clone()], input)?),
        Shape::Set(inner) => Value::Set(read_inside(vec![(**inner).clone()], input)?),
        Shape::Map(inner) => Value::Map(read_inside(vec![inner.0.clone(), inner.1.clone()], input)?),
        Shape::Enum(variants) => {
            let number = u8::decode(input)?;
            let Some(variant) = variants.get(number as usize) else {
                return Err("no such variant".into());
            };
            Value::Variant(number, Box::new(read(variant, input)?))
        }
    })
}

fn shape_of(words: &mut SplitWhitespace) -> Shape {
    let number = |words: &mut SplitWhitespace| words.next().unwrap().parse::<usize>().unwrap();
    match words.next().unwrap() {
        "[" => Shape::Array(number(words), Box::new(shape_of(words))),
        "?" => Shape::Optional(Box::new(shape_of(words))),
        "v" => Shape::List(Box::new(shape_of(words))),
        "s" => Shape::Set(Box::new(shape_of(words))),
        "m" => Shape::Map(Box::new((shape_of(words), shape_of(words)))),
        "t" => Shape::Tuple((0..number(words)).map(|_| shape_of(words)).collect()),
        "e" => Shape::Enum((0..number(words)).map(|_| shape_of(words)).collect()),
        word => Shape::Plain(plain_named(word)),
    }
}

fn records(data: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let length = u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize;
        found.push(&data[at + 4..at + 4 + length]);
        at += 4 + length;
    }
    found
}

fn main() {
    let data = fs::read(env::args().nth(1).unwrap()).unwrap();
    for pair in records(&data).chunks(2) {
        let shape = shape_of(&mut std::str::from_utf8(pair[0]).unwrap().split_whitespace());
        INSIDE.with(|inside| inside.borrow_mut().push(vec![shape]));
        match At::<0>::decode_all(&mut &pair[1][..]) {
            Ok(value) => {
                let digits: String = value.encode().iter().map(|byte| format!("{byte:02x}")).collect();
                println!("0x{digits}");
            }
            Err(_) => println!("refused"),
        }
        INSIDE.with(|inside| inside.borrow_mut().clear());
    }
}
