"""Emit LLVM instructions that hash many messages in vectors, one message a lane.

A compiler vectorizes plain loops over lanes only in part, at five times the cost. So the instructions of a hash
function for one block of each lane are emitted here in LLVM's intermediate language; the loops around them are plain.

A loop passes a matrix of 64-bit numbers: a row a kind (``ADDRESS`` and so on), a column a lane. A lane whose message
has no further block keeps its state, but must still point at readable bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features

from causeway_proofs.jit import INT64, NOTHING, compiler_type, intrinsic

ADDRESS, TOTAL, LAST, SHARED = range(4)
"""Rows of the lane matrix.

- ADDRESS: address of the message, as if the prefix preceded it in memory, or of the digest to write.
- TOTAL: bytes of prefix and message.
- LAST: index of the last block.
- SHARED: values shared by all lanes.
"""

INDEX, OWN = range(2)
"""Columns of the shared row: index of the current block, and bytes of the prefix."""

KINDS = 4

DIGEST_BYTES = 32

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)

Value = Any
"""An LLVM value; llvmlite exports no types for it."""


def has_feature(name: str) -> bool:
    """Return True if the target processor has an instruction set, by LLVM's name."""
    given = os.environ.get("NUMBA_CPU_FEATURES")
    return f"+{name}" in (given or get_host_cpu_features().flatten()).split(",")


def vector_bytes() -> int:
    """Return the vector width of the processor in bytes."""
    return 64 if has_feature("avx512bw") else 32 if has_feature("avx2") else 16


def compile_emitter(emit: Callable[[Emitter, Value, Value, Value], None]) -> Any:
    """Return a loop-callable function of state, lane numbers and prefix from an emitter."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        arrays = zip(signature.args, arguments, strict=True)
        addresses = [context.make_array(kind)(context, builder, value).data for kind, value in arrays]
        pointer = I8.as_pointer()
        function = builder.module.globals.get(emit.__name__)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), [pointer] * 3), emit.__name__)
            function.linkage = "internal"
            function.attributes.add("noinline")
            body = ir.IRBuilder(function.append_basic_block())
            emit(Emitter(body), *function.args)
            body.ret_void()
        builder.call(function, [builder.bitcast(address, pointer) for address in addresses])
        return context.get_dummy_value()

    def typed(context: Any, state: Any, lanes: Any, prefix: Any) -> Any:
        return compiler_type(NOTHING)(state, lanes, prefix), generate

    return intrinsic(typed)


def _address_of(context: Any, array: Any) -> Any:
    """Return the address of an array's first byte; an address does not keep the array alive."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, I64)

    return compiler_type(INT64)(array), generate


def _fetch(context: Any, address: Any) -> Any:
    """Prefetch the bytes at an address."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        settings = [ir.Constant(I32, number) for number in (0, 2, 1)]
        Emitter(builder).intrinsic("llvm.prefetch.p0", ir.VoidType(), [_pointer(builder, arguments[0]), *settings])
        return context.get_dummy_value()

    return compiler_type(NOTHING)(compiler_type(INT64)), generate


def _copy(context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy ``count`` bytes between addresses."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        target, source, count = arguments
        addresses = [_pointer(builder, target), _pointer(builder, source)]
        operation, fixed = "llvm.memcpy.p0.p0.i64", ir.Constant(I1, 0)
        Emitter(builder).intrinsic(operation, ir.VoidType(), [*addresses, count, fixed])
        return context.get_dummy_value()

    return compiler_type(NOTHING)(*[compiler_type(INT64)] * 3), generate


def _copy_digest(context: Any, target: Any, source: Any) -> Any:
    """Copy 32 bytes between addresses."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        emit, (target, source) = Emitter(builder), arguments
        emit.write(
            emit.read(_pointer(builder, source), 0, ir.VectorType(I8, DIGEST_BYTES)), _pointer(builder, target), 0
        )
        return context.get_dummy_value()

    return compiler_type(NOTHING)(*[compiler_type(INT64)] * 2), generate


def _pointer(builder: ir.IRBuilder, address: Value) -> Value:
    return builder.inttoptr(address, I8.as_pointer())


address_of: Any = intrinsic(_address_of)
fetch: Any = intrinsic(_fetch)
copy: Any = intrinsic(_copy)
copy_digest: Any = intrinsic(_copy_digest)


class Emitter:
    """Emits vector instructions; wraps llvmlite's builder."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def intrinsic(self, name: str, result: Value, arguments: Sequence[Value]) -> Value:
        """Call an LLVM intrinsic by name."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [value.type for value in arguments]), name)
        return self.builder.call(function, arguments)

    def rotate_left(self, value: Value, bits: int) -> Value:
        """Rotate each element left."""
        kind = value.type
        name = f"llvm.fshl.v{kind.count}i{kind.element.width}"
        return self.intrinsic(name, kind, [value, value, constant(kind, bits)])

    def rotate_right(self, value: Value, bits: int) -> Value:
        """Rotate each element right."""
        return self.rotate_left(value, value.type.element.width - bits)

    def swapped(self, value: Value) -> Value:
        """Reverse the bytes of each element."""
        kind = value.type
        return self.intrinsic(f"llvm.bswap.v{kind.count}i{kind.element.width}", kind, [value])

    def xor(self, *values: Value) -> Value:
        """Return the exclusive or of several values."""
        result = values[0]
        for value in values[1:]:
            result = self.builder.xor(result, value)
        return result

    def total(self, *values: Value) -> Value:
        """Return the sum of several values."""
        result = values[0]
        for value in values[1:]:
            result = self.builder.add(result, value)
        return result

    def read(self, base: Value, offset: int | Value, kind: Value) -> Value:
        """Load a value ``offset`` bytes behind an address of any alignment."""
        return self.builder.load(self._at(base, offset, kind), align=1)

    def write(self, value: Value, base: Value, offset: int | Value) -> None:
        """Store a value ``offset`` bytes behind an address."""
        self.builder.store(value, self._at(base, offset, value.type), align=1)

    def _at(self, base: Value, offset: int | Value, kind: Value) -> Value:
        behind = ir.Constant(I64, offset) if isinstance(offset, int) else offset
        return self.builder.bitcast(self.builder.gep(base, [behind]), kind.as_pointer())

    def spread(self, scalar: Value, kind: Value) -> Value:
        """Return a vector with ``scalar`` in every element."""
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
        return self.shuffled(first, first, [0] * kind.count)

    def shuffled(self, one: Value, other: Value, order: Sequence[int]) -> Value:
        """Return the elements of two vectors selected by the indices in ``order``."""
        mask = ir.Constant(ir.VectorType(I32, len(order)), [ir.Constant(I32, number) for number in order])
        return self.builder.shuffle_vector(one, other, mask)

    def transpose_lanes(self, rows: Sequence[Value]) -> list[Value]:
        """Transpose n vectors of n elements: element i of vector k becomes element k of vector i."""
        done, count = list(rows), len(rows)
        inner = min(128 // rows[0].type.element.width, count)
        # Interleave pairs of rows within 16 bytes, then pairs of pairs: one instruction a vector each.
        step = 1
        while step < inner:
            before = list(done)
            for first in range(0, count, 2 * step):
                for row in range(step):
                    one, other = before[first + row], before[first + step + row]
                    low, high = self._interleaved(one, other, step, inner)
                    done[first + 2 * row], done[first + 2 * row + 1] = low, high
            step *= 2
        while step < count:
            for row in range(count):
                if row & step:
                    continue
                one, other = done[row], done[row + step]
                take = [(number & ~step) + (count if number & step else 0) for number in range(count)]
                done[row] = self.shuffled(one, other, take)
                done[row + step] = self.shuffled(one, other, [number + step for number in take])
            step *= 2
        return done

    def _interleaved(self, one: Value, other: Value, step: int, inner: int) -> tuple[Value, Value]:
        """Interleave the halves of each 16 bytes of two rows, ``step`` elements at a time."""
        count, halves = one.type.count, []
        for half in (0, inner // 2):
            order: list[int] = []
            for chunk in range(0, count, inner):
                for first in range(chunk + half, chunk + half + inner // 2, step):
                    order += range(first, first + step)
                    order += range(count + first, count + first + step)
            halves.append(self.shuffled(one, other, order))
        return halves[0], halves[1]

    def table(self, name: str, values: Sequence[int], kind: Value) -> Value:
        """Return the address of a constant table."""
        module = self.builder.module
        found = module.globals.get(name)
        if found is None:
            array = ir.ArrayType(kind, len(values))
            found = ir.GlobalVariable(module, array, name)
            found.linkage, found.global_constant = "internal", True
            found.initializer = ir.Constant(array, [ir.Constant(kind, value) for value in values])
        return self.builder.bitcast(found, I8.as_pointer())

    def repeated(
        self, times: int, values: Sequence[Value], step: Callable[[Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """Emit a loop; ``step`` maps an iteration's index and values to the next values."""
        builder = self.builder
        before, body = builder.block, builder.append_basic_block()
        after = builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        turn = builder.phi(I64)
        turn.add_incoming(ir.Constant(I64, 0), before)
        carried = []
        for value in values:
            phi = builder.phi(value.type)
            phi.add_incoming(value, before)
            carried.append(phi)
        results = step(turn, list(carried))
        following = builder.add(turn, ir.Constant(I64, 1))
        turn.add_incoming(following, builder.block)
        for phi, value in zip(carried, results, strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, ir.Constant(I64, times)), body, after)
        builder.position_at_end(after)
        return results


class LaneBlocks:
    """One block of each of ``count`` lanes, with its numbers."""

    def __init__(self, emit: Emitter, lanes: Value, prefix: Value, count: int, block: int) -> None:
        self.emit, self.lanes, self.prefix, self.count = emit, lanes, prefix, count
        self.kind = ir.VectorType(I64, count)
        builder, shared = emit.builder, 8 * SHARED * count
        index = emit.read(lanes, shared + 8 * INDEX, I64)
        self.offset = builder.mul(index, ir.Constant(I64, block))
        self._own = builder.sub(emit.read(lanes, shared + 8 * OWN, I64), self.offset)
        # The prefix ends within the first block, and its array one block later.
        size = ir.Constant(I64, block)
        self._own_offset = builder.select(builder.icmp_signed(">", self.offset, size), size, self.offset)
        self.total = emit.read(lanes, 8 * TOTAL * count, self.kind)
        self._length = builder.sub(self.total, emit.spread(self.offset, self.kind))
        last = emit.read(lanes, 8 * LAST * count, self.kind)
        self.active = builder.icmp_signed("<=", emit.spread(index, self.kind), last)
        self.last = builder.icmp_signed("==", emit.spread(index, self.kind), last)

    def in_last(self, numbers: Value) -> Value:
        """Return each lane's number if its block is the last one, else 0."""
        return self.emit.builder.select(self.last, numbers, constant(self.kind, 0))

    def windows(self, offset: int, size: int, pad: int) -> list[Value]:
        """Load ``size`` bytes of each block from ``offset``, with prefix and padding inserted."""
        emit, builder, kind = self.emit, self.emit.builder, ir.VectorType(I8, size)
        numbers = ir.Constant(kind, [ir.Constant(I8, number) for number in range(size)])
        own = builder.trunc(self._inside(self._own, offset, size), I8)
        is_own = builder.icmp_signed("<", numbers, emit.spread(own, kind))
        own_bytes = emit.read(self.prefix, builder.add(self._own_offset, ir.Constant(I64, offset)), kind)
        # One instruction broadcasts a byte of memory over a vector.
        lengths = builder.alloca(ir.VectorType(I8, self.count))
        builder.store(builder.trunc(self._inside(self._length, offset, size), lengths.type.pointee), lengths)
        found = []
        for lane in range(self.count):
            base = _pointer(builder, emit.read(self.lanes, 8 * (ADDRESS * self.count + lane), I64))
            window = emit.read(base, builder.add(self.offset, ir.Constant(I64, offset)), kind)
            length = emit.spread(emit.read(builder.bitcast(lengths, I8.as_pointer()), lane, I8), kind)
            behind = constant(kind, 0)
            if pad:
                behind = builder.select(builder.icmp_signed("==", numbers, length), constant(kind, pad), behind)
            prefixed = builder.select(is_own, own_bytes, window)
            found.append(builder.select(builder.icmp_signed("<", numbers, length), prefixed, behind))
        return found

    def _inside(self, bound: Value, offset: int, size: int) -> Value:
        """Return a byte bound relative to ``offset``, clamped to a window of ``size``."""
        builder, kind = self.emit.builder, bound.type
        low, moved, high = (
            constant(kind, number) if kind == self.kind else ir.Constant(kind, number) for number in (-1, offset, size)
        )
        bound = builder.sub(bound, moved)
        bound = builder.select(builder.icmp_signed("<", bound, low), low, bound)
        return builder.select(builder.icmp_signed(">", bound, high), high, bound)

    def words(self, kind: Value, words: int, pad: int) -> list[Value]:
        """Load the blocks as vectors of their first words, second words, and so on."""
        emit, builder = self.emit, self.emit.builder
        size = kind.element.width // 8
        found: list[Value] = []
        while len(found) + self.count <= words:
            loaded = self.windows(len(found) * size, self.count * size, pad)
            found += emit.transpose_lanes([builder.bitcast(row, kind) for row in loaded])
        while len(found) < words:
            word = ir.Constant(kind, ir.Undefined)
            for lane, part in enumerate(self.windows(len(found) * size, size, pad)):
                scalar = builder.bitcast(part, kind.element)
                word = builder.insert_element(word, scalar, ir.Constant(I32, lane))
            found.append(word)
        return found


class Targets:
    """Destinations of the digests of ``count`` lanes."""

    def __init__(self, emit: Emitter, lanes: Value, count: int) -> None:
        self.emit, self.lanes, self.count = emit, lanes, count

    def write(self, part: Value, lane: int, offset: int) -> None:
        """Write a part of a lane's digest."""
        address = self.emit.read(self.lanes, 8 * (ADDRESS * self.count + lane), I64)
        self.emit.write(part, _pointer(self.emit.builder, address), offset)

    def write_words(self, words: Sequence[Value]) -> None:
        """Write the digests of all lanes from vectors of first words, second words, and so on."""
        emit, width = self.emit, len(words)
        undefined = ir.Constant(words[0].type, ir.Undefined)
        for first in range(0, width, self.count):
            rows = list(words[first : first + self.count])
            turned = emit.transpose_lanes(rows + [undefined] * (self.count - len(rows)))
            for lane in range(self.count):
                part = turned[lane]
                if len(rows) < self.count:
                    part = emit.shuffled(part, part, range(len(rows)))
                self.write(part, lane, first * DIGEST_BYTES // width)


def constant(kind: Value, value: int) -> Value:
    """Return a vector of a constant."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
