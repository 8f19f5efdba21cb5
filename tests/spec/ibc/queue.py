"""Queue (2.2): a window on an infinite array, kept in a store under the keys of 2.3."""

from tests.spec.ibc.errors import AdvanceBackwards
from tests.spec.ibc.keys import HEAD, MAX_U64, TAIL, Place, key
from tests.spec.ibc.values import decode_state, encode_state

Store = dict[bytes, bytes]


class Queue:
    """The queue `ibc:<remote>:<purpose>` of a store. It holds nothing itself."""

    def __init__(self, store: Store, remote: str, purpose: str) -> None:
        self.store, self.remote, self.purpose = store, remote, purpose

    def key(self, place: Place) -> bytes:
        return key(self.remote, self.purpose, place)

    def exists(self) -> bool:
        return self.key(HEAD) in self.store

    def init(self) -> None:
        """Both keys are written (D-4)."""
        self._set(HEAD, 0)
        self._set(TAIL, 0)

    def head(self) -> int:
        return decode_state(self.store[self.key(HEAD)])

    def tail(self) -> int:
        return decode_state(self.store[self.key(TAIL)])

    def get(self, index: int) -> bytes | None:
        return self.store.get(self.key(index))

    def indices(self) -> list[int]:
        """Where there is data. All of head..tail-1, but for slots not yet written (X-9) and unordered queues (X-6)."""
        return [index for index in range(self.head(), self.tail()) if self.key(index) in self.store]

    def peek(self) -> bytes | None:
        return None if self.head() == self.tail() else self.store[self.key(self.head())]

    def pop(self) -> bytes | None:
        if self.head() == self.tail():
            return None
        value = self.store.pop(self.key(self.head()))
        self._set(HEAD, self.head() + 1)
        return value

    def push(self, value: bytes) -> int:
        index = self.tail()
        self.allocate(index)
        self.write(index, value)
        return index

    def advance(self, i: int) -> None:
        if i < self.head():
            raise AdvanceBackwards(f"advance to {i}, head is {self.head()}")
        for index in range(self.head(), min(i, self.tail())):
            self.store.pop(self.key(index), None)
        self._set(TAIL, max(self.tail(), i))
        self._set(HEAD, i)

    # ---- the tail moves at once, the value comes later; X-6: any index may come or go

    def allocate(self, index: int) -> None:
        """Move the tail past `index`."""
        assert index < MAX_U64, "a tail has 64 bits"
        self._set(TAIL, max(self.tail(), index + 1))

    def write(self, index: int, value: bytes) -> None:
        """Write an allocated index, once (G5)."""
        assert self.head() <= index < self.tail() and self.key(index) not in self.store and value
        self.store[self.key(index)] = value

    def take(self, index: int) -> bytes:
        """Remove any element (X-6); the head moves to the oldest that is left."""
        value = self.store.pop(self.key(index))
        while self.head() < self.tail() and self.get(self.head()) is None:
            self._set(HEAD, self.head() + 1)
        return value

    def _set(self, place: str, index: int) -> None:
        self.store[self.key(place)] = encode_state(index)
