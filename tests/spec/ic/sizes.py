"""Sizes (2.10): count_bytes(css), from collections.abc import Sequence

from the bytes of its header and messages."""

from collections.abc import Sequence

from tests.spec.ic.certified import CertifiedStreamSlice, read_payload
from tests.spec.ic.encoding import CURRENT, encoded_header, encoded_message
from tests.spec.ic.messages import CanisterMessage
from tests.spec.ic.queues import StreamIndex
from tests.spec.ic.slices import AnySlice, StreamSlice, at
from tests.spec.ic.state import SubstreamId

SIGNATURE = 48


def count_bytes(css: AnySlice, version: int = CURRENT) -> int:
    """2.10, of either form of a slice. Every substream counts as a stream of its own."""
    if isinstance(css, CertifiedStreamSlice):
        return certified_bytes(css)
    return sum(stream_bytes(css, substream, version) for substream in css.substreams)


def stream_bytes(css: StreamSlice, substream: SubstreamId, version: int) -> int:
    begin, end, signals_end = (at(indices, substream) for indices in (css.begin, css.end, css.signals_end))
    header = len(encoded_header(begin, end, signals_end, css.rejects.get(substream, ())))
    messages: dict[StreamIndex, CanisterMessage] = {
        (name, i): m for (name, i), m in css.messages.items() if name == substream
    }
    first = min((i for _, i in messages), default=0)
    return run_bytes(begin, end, first, header, [len(encoded_message(m, version)) for m in messages.values()])


def run_bytes(begin: int, end: int, first: int, header: int, messages: Sequence[int]) -> int:
    """Of a slice of the stream [begin, end) with messages from `first` on: `header` and `messages` are lengths."""
    n = len(messages)
    payload = 49 + header if n == 0 else 71 + header + sum(8 + length + 8 for length in messages)
    return payload + witness_bytes(begin, end, first, n) + 8 + 32 + SIGNATURE


def witness_bytes(sb: int, se: int, mb: int, n: int) -> int:
    """The witness of messages [mb, mb + n) of the stream [sb, se)."""
    if n == 0 or sb == se:
        return 214
    total, right = se - sb, se - (mb + n)
    rem = total - right
    if ctz(total) + clz64(right) >= 64:
        r = right
    else:
        c = 2 ** (total ^ rem).bit_length()
        r = c - (rem & (c - 1))
    p = (mb - sb).bit_count() + r.bit_count()
    return 214 - 36 + 10 + 36 * p + 16 * n + 7 * (p + n - 1)


def ctz(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 64


def clz64(number: int) -> int:
    return 64 - number.bit_length()


def certified_bytes(css: CertifiedStreamSlice) -> int:
    """2.10 of a slice in its certified form: the same number, from the bytes that it carries."""
    found = read_payload(css.payload)
    n, header = len(found.blobs), found.header
    size = len(found.header_bytes)
    payload = 49 + size if n == 0 else 71 + size + sum(8 + len(blob) + 8 for blob in found.blobs.values())
    witness = witness_bytes(header.begin, header.end, min(found.blobs, default=0), n)
    return payload + witness + 8 + 32 + len(css.certification.signature)
