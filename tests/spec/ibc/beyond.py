"""IBCtimeout (X-1), IBCcleanup (X-2), disconnection (X-5)."""

from tests.spec.ibc.calls import DISCONNECT, push_packet, settle
from tests.spec.ibc.errors import (
    CallNotOffered,
    CleanupBackwards,
    InvalidProof,
    MustBeReceipt,
    MustBeSendQueue,
    NotAHeadProof,
    NotATailProof,
    NotClosable,
    OnlyMessageProofs,
    ReceiptExists,
    TimeoutNotReached,
)
from tests.spec.ibc.events import Abandoned, Cleaned, TimedOut
from tests.spec.ibc.headers import Proof, proves
from tests.spec.ibc.keys import HEAD, TAIL, parse
from tests.spec.ibc.values import TIMEOUT, Packet, Receipt, decode_packet, decode_state
from tests.spec.ibc.zone import SUCCESS_, Zone, check_proof, ensure, expired, for_this_chain, registered, trusted_header


def IBCtimeout(S: Zone, A: str, M: Proof, relayer: str = "") -> str:
    """X-1: M proves the tail of A's receipt queue for us; in unordered queues, the absence of one receipt (X-6)."""
    ensure(S.options.timeouts == "on", CallNotOffered("IBCtimeout"))
    connection = registered(S, A)  # 1
    d, purpose, p = parse(M.key)  # 2
    ensure(purpose == "receipt", MustBeReceipt())
    for_this_chain(S, d)  # 3
    header = trusted_header(S, connection, M.height)  # 4
    if S.options.order == "ordered":
        value = check_proof(S, header, M)  # 5
        ensure(p == TAIL, NotATailProof())  # 6
        i = connection.send.head()
        ensure(decode_state(value) <= i, ReceiptExists())  # 7
    else:
        ensure(proves(header, M, S.stores), InvalidProof())
        if isinstance(p, str):
            raise OnlyMessageProofs
        i = p
        ensure(M.value is None, ReceiptExists())
    waiting = connection.send.get(i)  # 8
    if waiting is None or not expired(S, header.height, header.time, decode_packet(waiting)):
        raise TimeoutNotReached
    tx, place = S.next_tx(), len(S.log)
    settle(S, connection, i, Receipt(b"", TIMEOUT))  # 9
    S.log.insert(place, TimedOut(S.chain_id, S.height, tx, A, i, relayer, M.height))
    return SUCCESS_


def IBCcleanup(S: Zone, A: str, M: Proof, relayer: str = "") -> str:
    """X-2: M proves the head of A's send queue for us."""
    ensure(S.options.cleanup == "on", CallNotOffered("IBCcleanup"))
    connection = registered(S, A)  # 1
    d, purpose, p = parse(M.key)
    ensure(purpose == "send", MustBeSendQueue())  # 2
    for_this_chain(S, d)  # 3
    ensure(p == HEAD, NotAHeadProof())  # 4
    header = trusted_header(S, connection, M.height)  # 5
    v = decode_state(check_proof(S, header, M))  # 6
    begin = connection.receipt.head()
    ensure(v > begin, CleanupBackwards())  # 7
    connection.receipt.advance(v)  # 8
    connection.unwritten = {slot for slot in connection.unwritten if slot >= v}
    S.log.append(Cleaned(S.chain_id, S.height, S.next_tx(), A, begin, v, relayer, M.height))
    return SUCCESS_


# ----


def disconnect(zone: Zone, R: str) -> int:
    """Push the final packet and refuse new sends; incoming packets are answered with errors from now on."""
    connection = registered(zone, R)
    index = push_packet(zone, connection, Packet(DISCONNECT, b""), zone.chain_id)
    connection.disconnecting = True
    return index


def close(zone: Zone, R: str) -> None:
    """When no receipt is outstanding: valid(T, ·) is false for ever."""
    connection = zone.connections[R]
    ensure(connection.disconnecting and not connection.send.indices(), NotClosable(R))
    connection.closed = True


def shut_down(zone: Zone, R: str) -> None:
    """Hard: everything outstanding counts as failed at once."""
    connection = zone.connections[R]
    connection.disconnecting = connection.closed = True
    for index in connection.send.indices():
        settle(zone, connection, index, Receipt(b"", TIMEOUT))
        zone.log.append(Abandoned(zone.chain_id, zone.height, zone.next_tx(), R, index))
