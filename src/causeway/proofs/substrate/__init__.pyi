from . import errors
from .compact import decode_compact, encode_compact
from .egress import egress_root, verify_queue
from .gossip import GossipedQueue, NeighborPacket, decode_gossip, verify_gossiped_queue
from .hashing import (
    Hasher,
    blake2_128,
    blake2_128_concat,
    blake2_256,
    identity,
    twox_64,
    twox_64_concat,
    twox_128,
    twox_256,
)
from .many import (
    KeyStatus,
    StorageReads,
    StorageVerdicts,
    Verdict,
    read_storage_proofs,
    read_values,
    verify_storage_proofs,
)
from .message_queue_chain import (
    FIRST_HEAD,
    QueuedMessage,
    extend_head,
    heads,
    verify_channels,
    verify_message_queue_chain,
)
from .node import EMPTY_ROOT, StateVersion
from .ordered import ordered_root, ordered_roots
from .parachains import (
    decode_queues,
    encode_queues,
    encode_watermark,
    heads_key,
    unrouted_key,
    verify_posted_queue,
    verify_queued_message,
    watermark_key,
)
from .proof import Read, Status, read_storage_proof, read_value, verify_storage_proof
from .proof_columns import StorageProofs
from .scale import ScaleTypes, enum, struct
from .scale_columns import Decoded, RowVerdicts, ScaleColumns, limbs_column, limbs_of, numbers_column
from .storage_keys import storage_key, storage_key_column, storage_prefix
from .trie import Trie
from .trie_proofs import prove, prove_storage
from .tries import Tries

__all__ = [
    "EMPTY_ROOT",
    "FIRST_HEAD",
    "Decoded",
    "GossipedQueue",
    "Hasher",
    "KeyStatus",
    "NeighborPacket",
    "QueuedMessage",
    "Read",
    "RowVerdicts",
    "ScaleColumns",
    "ScaleTypes",
    "StateVersion",
    "Status",
    "StorageProofs",
    "StorageReads",
    "StorageVerdicts",
    "Trie",
    "Tries",
    "Verdict",
    "blake2_128",
    "blake2_128_concat",
    "blake2_256",
    "decode_compact",
    "decode_gossip",
    "decode_queues",
    "egress_root",
    "encode_compact",
    "encode_queues",
    "encode_watermark",
    "enum",
    "errors",
    "extend_head",
    "heads",
    "heads_key",
    "identity",
    "limbs_column",
    "limbs_of",
    "numbers_column",
    "ordered_root",
    "ordered_roots",
    "prove",
    "prove_storage",
    "read_storage_proof",
    "read_storage_proofs",
    "read_value",
    "read_values",
    "storage_key",
    "storage_key_column",
    "storage_prefix",
    "struct",
    "twox_64",
    "twox_64_concat",
    "twox_128",
    "twox_256",
    "unrouted_key",
    "verify_channels",
    "verify_gossiped_queue",
    "verify_message_queue_chain",
    "verify_posted_queue",
    "verify_queue",
    "verify_queued_message",
    "verify_storage_proof",
    "verify_storage_proofs",
    "watermark_key",
]  # fmt: skip
