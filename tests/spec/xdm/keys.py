"""Storage keys (2.4) and the storage of one chain that proofs are about (2.5)."""

import hashlib

import xxhash

from tests.spec.xdm.scale import little, u256
from tests.spec.xdm.values import Chain, encode_chain


def twox128(text: str) -> bytes:
    data = text.encode()
    return little(xxhash.xxh64_intdigest(data, 0), 8) + little(xxhash.xxh64_intdigest(data, 1), 8)


def blake2b(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


OUTBOX = twox128("Messenger") + twox128("Outbox")
INBOX_RESPONSES = twox128("Messenger") + twox128("InboxResponses")
CHANNELS = twox128("Messenger") + twox128("Channels")
CONFIRMED = twox128("Domains") + twox128("LatestConfirmedDomainExecutionReceipt")


def outbox_key(dst: Chain, channel: int, nonce: int) -> bytes:
    return OUTBOX + encode_chain(dst) + u256(channel) + u256(nonce)


def responses_key(answered: Chain, channel: int, nonce: int) -> bytes:
    return INBOX_RESPONSES + encode_chain(answered) + u256(channel) + u256(nonce)


def channel_key(foreign: Chain, channel: int) -> bytes:
    return CHANNELS + encode_chain(foreign) + u256(channel)


def confirmed_key(domain: Chain) -> bytes:
    return CONFIRMED + little(domain, 4)
