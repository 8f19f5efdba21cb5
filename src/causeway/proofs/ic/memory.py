"""Words of eight bytes at addresses, big-endian as the Internet Computer writes numbers: for compiled loops.

A loop that writes a number byte by byte spends most of its time there. Whoever calls makes sure that all eight bytes
lie inside of an array, and that the array lives as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from causeway.model.compiled import INT64, NOTHING, UINT64, intrinsic, type_of
from causeway.proofs.hashing.vectors import address_of, copy

__all__ = ["address_of", "copy", "get_word", "put_byte", "put_word"]

_I8, _I64 = ir.IntType(8), ir.IntType(64)


def _put_word(context: Any, address: Any, word: Any) -> Any:
    """Write a number of 64 bits, the highest byte first."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        address, word = arguments
        builder.store(builder.bswap(word), builder.inttoptr(address, _I64.as_pointer()), align=1)
        return context.get_dummy_value()

    return type_of(NOTHING)(type_of(INT64), type_of(UINT64)), generate


def _put_byte(context: Any, address: Any, byte: Any) -> Any:
    """Write the lowest byte of a number."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        address, byte = arguments
        builder.store(builder.trunc(byte, _I8), builder.inttoptr(address, _I8.as_pointer()), align=1)
        return context.get_dummy_value()

    return type_of(NOTHING)(type_of(INT64), type_of(UINT64)), generate


def _get_word(context: Any, address: Any) -> Any:
    """Read a number of 64 bits, the highest byte first."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.bswap(builder.load(builder.inttoptr(arguments[0], _I64.as_pointer()), align=1))

    return type_of(UINT64)(type_of(INT64)), generate


put_word: Any = intrinsic(_put_word)
put_byte: Any = intrinsic(_put_byte)
get_word: Any = intrinsic(_get_word)
