"""IBCsend (3.2), IBCreceive (3.3), IBCreceipt (3.4), the second call of X-9, and X-6 where they differ by it."""

from tests.spec.ibc.errors import (
    ConnectionFrozen,
    HandlerFault,
    InvalidPacket,
    MustBeReceipt,
    MustBeSend,
    OnlyMessageProofs,
    OutOfOrder,
    PermissionDenied,
    SlotNotOpen,
    TimeoutElapsed,
    UnregisteredDestination,
    UnsupportedType,
)
from tests.spec.ibc.events import Acked, Received, Sent, Written, digest
from tests.spec.ibc.headers import Proof
from tests.spec.ibc.keys import parse
from tests.spec.ibc.values import (
    HANDLER_FAILED,
    SUCCESS,
    TIMEOUT,
    UNKNOWN_TYPE,
    Packet,
    Receipt,
    decode_packet,
    decode_receipt,
    encode_packet,
    encode_receipt,
)
from tests.spec.ibc.zone import (
    LATER,
    NOOP,
    SUCCESS_,
    Arrived,
    Connection,
    Zone,
    check_proof,
    ensure,
    ensure_not_expired,
    expired,
    for_this_chain,
    registered,
    transaction,
    trusted_header,
)

DISCONNECT = "disconnect"
"""The type of the final packet of X-5. Only the protocol itself sends it."""


def IBCsend(
    A: Zone,
    D: str,
    type: str,
    data: bytes,
    M: int | str,
    max_height: int | None = None,
    max_time: int | None = None,
) -> int:
    """3.2, by module M. Gives the index."""
    ensure(D in A.connections, UnregisteredDestination(D))
    connection = A.connections[D]
    ensure(not connection.frozen and not connection.disconnecting, ConnectionFrozen(f"connection to {D}"))
    ensure_not_expired(A, connection)
    ensure(type in A.handlers, UnsupportedType(type))
    ensure(M in A.permissions.get(type, set()), PermissionDenied(f"module {M}, type {type}"))
    packet = Packet(type, data, max_height, max_time)
    ensure(len(data) <= A.options.max_data, InvalidPacket(f"data of {len(data)} bytes"))
    ensure(not packet.limited or A.options.timeouts == "on", InvalidPacket("a limit without timeouts"))
    return push_packet(A, connection, packet, M)


def push_packet(A: Zone, connection: Connection, packet: Packet, M: int | str) -> int:
    index = connection.send.push(encode_packet(packet))
    limits = packet.max_height, packet.max_time
    tx, data_hash = A.next_tx(), digest(packet.data)
    A.log.append(Sent(A.chain_id, A.height, tx, connection.remote, index, packet.type, data_hash, *limits, M))
    return index


def is_received(zone: Zone, connection: Connection, i: int) -> bool:
    """Whether the remote's packet `i` was received before. In order: iff it is below the tail (D-1)."""
    if zone.options.order == "ordered":
        return i < connection.receipt.tail()
    return i < connection.receipt.head() or connection.receipt.get(i) is not None or i in connection.unwritten


def IBCreceive(A: Zone, S: str, M: Proof, relayer: str = "") -> str:
    """3.3."""
    connection = registered(A, S)  # 1
    d, purpose, p = parse(M.key)  # 2
    ensure(purpose == "send", MustBeSend())
    for_this_chain(A, d)  # 3
    if isinstance(p, str):  # 4
        raise OnlyMessageProofs
    if is_received(A, connection, p) and A.options.redundant == "noop":  # 5, X-10
        return NOOP
    if A.options.order == "ordered":
        ensure(p == connection.receipt.tail(), OutOfOrder(connection.receipt.tail(), p))
    else:
        ensure(not is_received(A, connection, p) and p < A.options.indices, OutOfOrder(None, p))
    header = trusted_header(A, connection, M.height)  # 6
    packet = decode_packet(check_proof(A, header, M))  # 7, 8
    ensure(not packet.limited or A.options.timeouts == "on", InvalidPacket("a limit without timeouts"))
    if A.options.order == "unordered":
        ensure(not has_expired(A, packet), TimeoutElapsed(f"packet {p}"))  # 9, X-6
    arrived = Arrived(S, p, packet.type, packet.data)
    tx, place = A.next_tx(), len(A.log)
    receipt, executed = outcome(A, connection, arrived, packet)  # 9, 10, 11
    connection.receipt.allocate(p)  # 12
    if receipt is None:
        connection.unwritten.add(p)
    else:
        connection.receipt.write(p, encode_receipt(receipt))
    result_hash, code = (None, None) if receipt is None else (digest(receipt.result), receipt.code)
    more = packet.type, digest(packet.data), M.height
    A.log.insert(place, Received(A.chain_id, A.height, tx, S, p, result_hash, code, executed, relayer, *more))
    return SUCCESS_


def has_expired(A: Zone, packet: Packet) -> bool:
    """Step 9, by A's own header."""
    return A.options.timeouts == "on" and expired(A, A.height, A.time, packet)


def outcome(A: Zone, connection: Connection, arrived: Arrived, packet: Packet) -> tuple[Receipt | None, bool]:
    """Steps 9 to 11: the receipt (None: later) and whether the message was executed."""
    if has_expired(A, packet):
        return Receipt(b"", TIMEOUT), False
    if packet.type == DISCONNECT:
        connection.disconnecting = True
        return Receipt(b"", SUCCESS), False
    if packet.type not in A.handlers or connection.disconnecting:
        return Receipt(b"", UNKNOWN_TYPE), False
    return run_nested(A, arrived)


class Undo(Exception):
    """Carries the receipt of a failed handler out of its transaction."""

    def __init__(self, receipt: Receipt) -> None:
        super().__init__()
        self.receipt = receipt


def run_nested(A: Zone, arrived: Arrived) -> tuple[Receipt | None, bool]:
    """Step 11: an error undoes every write of the handler, its sends too (G10, D-6)."""
    try:
        with transaction(A):
            try:
                answer = A.handlers[arrived.type].f(arrived)
            except Exception as error:  # whatever a module raises is its own failure
                raise Undo(Receipt(failure_text(error), HANDLER_FAILED)) from error
            if isinstance(answer, Receipt):
                return answer, True
            if answer is LATER and A.options.asynchronous == "on":
                return None, True
            if answer is LATER:
                raise Undo(Receipt(b"", HANDLER_FAILED))
            result, err = answer
            if err:
                raise Undo(Receipt(result, err))
            return Receipt(result, SUCCESS), True
    except Undo as undo:
        return undo.receipt, True


def failure_text(error: Exception) -> bytes:
    """The result that goes with code 3."""
    return f"{type(error).__name__}: {error}".encode()


def IBCwrite(A: Zone, S: str, i: int, result: bytes, code: int) -> str:
    """X-9: the second call writes the slot, once."""
    connection = A.connections[S]
    ensure(i in connection.unwritten, SlotNotOpen(f"slot {i} for {S}"))
    connection.unwritten.remove(i)
    connection.receipt.write(i, encode_receipt(Receipt(result, code)))
    A.log.append(Written(A.chain_id, A.height, A.next_tx(), S, i, digest(result), code))
    return SUCCESS_


def IBCreceipt(S: Zone, A: str, M: Proof, relayer: str = "") -> str:
    """3.4."""
    connection = registered(S, A)  # 1
    d, purpose, p = parse(M.key)  # 2
    ensure(purpose == "receipt", MustBeReceipt())
    for_this_chain(S, d)  # 3
    header = trusted_header(S, connection, M.height)  # 4
    value = check_proof(S, header, M)  # 5
    if isinstance(p, str):  # 6
        raise OnlyMessageProofs
    pending = connection.send.get(p) is not None
    if not pending and p < connection.send.tail() and S.options.redundant == "noop":  # 7, X-10
        return NOOP
    if S.options.order == "ordered":
        ensure(p == connection.send.head(), OutOfOrder(connection.send.head(), p))
    ensure(pending, OutOfOrder(connection.send.head(), p))
    receipt = decode_receipt(value)  # 8
    tx, place = S.next_tx(), len(S.log)
    packet = settle(S, connection, p, receipt)  # 8, 9
    outcome_ = "commit" if receipt.code == SUCCESS else "rollback"
    more = digest(receipt.result), M.height
    S.log.insert(place, Acked(S.chain_id, S.height, tx, A, p, outcome_, receipt.code, relayer, *more))
    assert packet is not None
    return SUCCESS_


def settle(S: Zone, connection: Connection, i: int, receipt: Receipt) -> Packet:
    """Pop the packet and run commit or rollback; when that raises, nothing of it happened."""
    with transaction(S):
        packet = decode_packet(connection.send.take(i))
        arrived = Arrived(connection.remote, i, packet.type, packet.data)
        handler = S.handlers.get(packet.type)
        if handler is None:
            return packet
        try:
            if receipt.code == SUCCESS:
                handler.commit(arrived, receipt.result)
            else:
                handler.rollback(arrived, receipt.code, receipt.result)
        except Exception as error:  # whatever a module raises is its own failure
            raise HandlerFault(str(error)) from error
    return packet
