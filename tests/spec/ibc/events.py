"""The event log: the relations of 1.1. Their columns come first; what stands after `# more` is this oracle's own.

`tx` is a running number inside the block, so (height, tx) is the order of one chain. Hashes are SHA-256.
"""

from dataclasses import dataclass
from hashlib import sha256


def digest(content: bytes) -> bytes:
    return sha256(content).digest()


@dataclass(frozen=True)
class Sent:
    chain: str
    height: int
    tx: int
    remote: str
    index: int
    type: str
    data_hash: bytes
    max_height: int | None
    max_time: int | None
    # more
    module: int | str


@dataclass(frozen=True)
class Received:
    """Without result and code when the handler said "later" (X-9); `Written` has them then."""

    chain: str
    height: int
    tx: int
    remote: str
    index: int
    result_hash: bytes | None
    code: int | None
    executed: bool
    relayer: str
    # more
    type: str
    data_hash: bytes
    proof_height: int | None


@dataclass(frozen=True)
class Written:
    """X-9: the receipt of an earlier `Received`."""

    chain: str
    height: int
    tx: int
    remote: str
    index: int
    result_hash: bytes
    code: int


@dataclass(frozen=True)
class Acked:
    chain: str
    height: int
    tx: int
    remote: str
    index: int
    outcome: str
    code: int
    relayer: str
    # more
    result_hash: bytes
    proof_height: int | None


@dataclass(frozen=True)
class TimedOut:
    chain: str
    height: int
    tx: int
    remote: str
    index: int
    # more
    relayer: str
    proof_height: int | None


@dataclass(frozen=True)
class Cleaned:
    """X-2: `begin` and `end` are the reference's `from` and `to`: the receipt queue's head before and after."""

    chain: str
    height: int
    tx: int
    remote: str
    begin: int
    end: int
    # more
    relayer: str
    proof_height: int | None


@dataclass(frozen=True)
class Abandoned:
    """X-5: an outstanding packet was rolled back by a hard shutdown."""

    chain: str
    height: int
    tx: int
    remote: str
    index: int


@dataclass(frozen=True)
class HeaderAdded:
    chain: str
    height: int
    tx: int
    remote: str
    remote_height: int
    relayer: str


@dataclass(frozen=True)
class Frozen:
    """X-3."""

    chain: str
    height: int
    tx: int
    remote: str
    remote_height: int | None
    relayer: str


@dataclass(frozen=True)
class Recovered:
    """X-3, X-11: the zone itself chose a header to go on from, its only trusted one from now on."""

    chain: str
    height: int
    tx: int
    remote: str
    remote_height: int


@dataclass(frozen=True)
class Refused:
    """A call that failed, or a redundant one that changed nothing (error NoOp, X-10)."""

    chain: str
    height: int
    call: str
    remote: str
    key: bytes
    error: str
    relayer: str
    fee: int


@dataclass(frozen=True)
class OutOfFunds:
    """A relayer could not pay for a call, which was not made (3.5)."""

    chain: str
    height: int
    relayer: str


@dataclass(frozen=True)
class Funded:
    """A relayer that was out of funds pays again, for all its calls of a block."""

    chain: str
    height: int
    relayer: str


@dataclass(frozen=True)
class Rejected:
    """A program's IBCsend failed, so its caller gets a synthetic reject (composition)."""

    chain: str
    height: int
    program: int
    callback: int
    error: str


@dataclass(frozen=True)
class Failed:
    """A handler raised on an input that has no answer (ingress, local reply); its changes are undone (composition)."""

    chain: str
    height: int
    program: int
    kind: str
    text: str


@dataclass(frozen=True)
class Root:
    chain: str
    height: int
    time: int
    root: bytes


Row = (
    Sent
    | Received
    | Written
    | Acked
    | TimedOut
    | Cleaned
    | Abandoned
    | HeaderAdded
    | Frozen
    | Recovered
    | Refused
    | OutOfFunds
    | Funded
    | Rejected
    | Failed
    | Root
)
