from . import errors
from .candidate import BlockQueues, BlockRoots, verify_incoming, verify_outgoing
from .compact import decode_compact, encode_compact
from .egress import (
    attestation_topic,
    block_ingress_roots,
    egress_queue_roots,
    egress_root,
    from_topic,
    queue_topic,
    to_topic,
    verify_queue,
)
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
from .message_queue_chain import (
    FIRST_HEAD,
    QueuedMessage,
    extend_head,
    heads,
    verify_channels,
    verify_message_queue_chain,
)
from .node import EMPTY_ROOT, StateVersion
from .ordered import OrderedTrie, ordered_root, ordered_roots
from .proof import Read, Status, prove, read_storage_proof, read_value, verify_storage_proof
from .scale import ScaleTypes, enum, struct
from .scale_columns import Decoded, ScaleColumns, limbs_column, limbs_of, numbers_column
from .storage_keys import storage_key, storage_key_column, storage_prefix
from .trie import Trie

__all__ = [
    "EMPTY_ROOT",
    "FIRST_HEAD",
    "BlockQueues",
    "BlockRoots",
    "Decoded",
    "GossipedQueue",
    "Hasher",
    "NeighborPacket",
    "OrderedTrie",
    "QueuedMessage",
    "Read",
    "ScaleColumns",
    "ScaleTypes",
    "StateVersion",
    "Status",
    "Trie",
    "attestation_topic",
    "blake2_128",
    "blake2_128_concat",
    "blake2_256",
    "block_ingress_roots",
    "decode_compact",
    "decode_gossip",
    "egress_queue_roots",
    "egress_root",
    "encode_compact",
    "enum",
    "errors",
    "extend_head",
    "from_topic",
    "heads",
    "identity",
    "limbs_column",
    "limbs_of",
    "numbers_column",
    "ordered_root",
    "ordered_roots",
    "prove",
    "queue_topic",
    "read_storage_proof",
    "read_value",
    "storage_key",
    "storage_key_column",
    "storage_prefix",
    "struct",
    "to_topic",
    "twox_64",
    "twox_64_concat",
    "twox_128",
    "twox_256",
    "verify_channels",
    "verify_gossiped_queue",
    "verify_incoming",
    "verify_message_queue_chain",
    "verify_outgoing",
    "verify_queue",
    "verify_storage_proof",
]  # fmt: skip
