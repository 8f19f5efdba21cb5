# ruff: noqa: RUF001, RUF002 -- formulas keep the letters of the text they restate
"""Indices (2.1, 2.2) and queues (2.3)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.spec.ic.errors import IndexOverflow, NotInQueue

T = TypeVar("T")

Index = tuple[Any, ...]
"""`X × ... × Y × ℕ`. IngressIndex = (canister, n), QueueIndex = (sender, receiver, n), StreamIndex = (substream, n)."""

QueueIndex = tuple[int, int, int]
StreamIndex = tuple[Any, int]

MAX_NATURAL = 2**64 - 1


def prefix(i: Index) -> Any:
    """All but the last element. A product of one factor is that factor: prefix((canister, n)) = canister."""
    return i[0] if len(i) == 2 else i[:-1]


def postfix(i: Index) -> int:
    """The last element, a natural number."""
    last: int = i[-1]
    return last


def concatenate(*parts: Any) -> Index:
    """`concatenate(subnet, (substream, n))` = (subnet, substream, n). A tuple among `parts` is taken apart, but for
    the unit substream `()`, which only ever stands inside a StreamIndex."""
    return tuple(element for part in parts for element in (part if isinstance(part, tuple) else (part,)))


def successor(i: Index) -> Index:
    """i + 1."""
    return (*i[:-1], postfix(i) + 1)


def comparable(i: Index, j: Index) -> bool:
    """Indices with different prefixes are incomparable."""
    return i[:-1] == j[:-1]


def less_or_equal(i: Index, j: Index) -> bool:
    """i <= j iff the prefixes are equal and postfix(i) <= postfix(j)."""
    return comparable(i, j) and postfix(i) <= postfix(j)


def less(i: Index, j: Index) -> bool:
    """i < j."""
    return less_or_equal(i, j) and i != j


def minimum(indices: Iterable[Index]) -> set[Index]:
    """min(X): a set, one element a prefix."""
    everything = set(indices)
    return {i for i in everything if not any(less(j, i) for j in everything)}


def maximum(indices: Iterable[Index]) -> set[Index]:
    """max(X): a set, one element a prefix."""
    everything = set(indices)
    return {i for i in everything if not any(less(i, j) for j in everything)}


def rank(j: int | Index, indices: Iterable[int | Index]) -> int:
    """|{ i in X | i <= j }|: the first element has rank 1."""
    return sum(1 for i in set(indices) if less_or_equal(_as_index(i), _as_index(j)))


def _as_index(i: int | Index) -> Index:
    """A natural number is an index with the empty prefix."""
    return i if isinstance(i, tuple) else (i,)


@dataclass(frozen=True)
class Queue(Generic[T]):
    """Queue<T>. The functions below give new queues and never change one."""

    next_index: int
    elements: Mapping[int, T]


def new_queue(index_base: int = 1) -> Queue[Any]:
    """{ next_index: 1, elements: {} }, where 1 is the option `index_base` (D-1)."""
    return Queue(next_index=index_base, elements={})


def push(queue: Queue[T], values: Mapping[int, T]) -> Queue[T]:
    """Append `values`. Their keys give the order only; push renumbers."""
    next_index = queue.next_index + len(values)
    if next_index > MAX_NATURAL:
        raise IndexOverflow(f"next_index {next_index}")
    pushed = {queue.next_index - 1 + rank(j, values): value for j, value in values.items()}
    return Queue(next_index=next_index, elements={**queue.elements, **pushed})


def delete(queue: Queue[T], values: Mapping[int, T]) -> Queue[T]:
    """Remove `values`, which must be there; next_index stays."""
    for index, value in values.items():
        if index not in queue.elements or queue.elements[index] != value:
            raise NotInQueue(f"no such element at index {index}")
    elements = {index: value for index, value in queue.elements.items() if index not in values}
    return Queue(next_index=queue.next_index, elements=elements)


def clear(queue: Queue[T]) -> Queue[T]:
    """Remove everything; next_index stays."""
    return Queue(next_index=queue.next_index, elements={})


def by_identifier(values: Mapping[Index, T]) -> dict[Any, dict[int, T]]:
    """`(SomeId × ℕ) ↦ T` read as `SomeId ↦ (ℕ ↦ T)` (2.1)."""
    nested: dict[Any, dict[int, T]] = {}
    for index, value in values.items():
        nested.setdefault(prefix(index), {})[postfix(index)] = value
    return nested


def push_map(queues: Mapping[Any, Queue[T]], values: Mapping[Index, T], index_base: int = 1) -> dict[Any, Queue[T]]:
    """push_map(q, v), written push(q, v) in the text."""
    nested = by_identifier(values)
    in_both = {name: push(queue, nested[name]) for name, queue in queues.items() if name in nested}
    only_in_values = {name: push(new_queue(index_base), nested[name]) for name in nested if name not in queues}
    only_in_queues = {name: queue for name, queue in queues.items() if name not in nested}
    return {**in_both, **only_in_values, **only_in_queues}


def delete_map(queues: Mapping[Any, Queue[T]], values: Mapping[Index, T]) -> dict[Any, Queue[T]]:
    """delete_map(q, v). An absent queue is NotInQueue and none is made (D-2)."""
    nested = by_identifier(values)
    for name in nested:
        if name not in queues:
            raise NotInQueue(f"no queue {name}")
    return {name: delete(queue, nested[name]) if name in nested else queue for name, queue in queues.items()}


def clear_map(queues: Mapping[Any, Queue[T]]) -> dict[Any, Queue[T]]:
    """clear_map(q): every queue is cleared."""
    return {name: clear(queue) for name, queue in queues.items()}


def flat_elements(queues: Mapping[Any, Queue[T]]) -> dict[Index, T]:
    """`queues.elements : (SomeId × ℕ) ↦ T`, in ascending order of (identifier, index)."""
    pairs = {
        (*(name if isinstance(name, tuple) and name != () else (name,)), index): value
        for name, queue in queues.items()
        for index, value in queue.elements.items()
    }
    return dict(sorted(pairs.items()))
