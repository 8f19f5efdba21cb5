from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LabeledTree(_message.Message):
    __slots__ = ("leaf", "sub_tree")
    class SubTree(_message.Message):
        __slots__ = ("children",)
        CHILDREN_FIELD_NUMBER: _ClassVar[int]
        children: _containers.RepeatedCompositeFieldContainer[LabeledTree.Child]
        def __init__(self, children: _Optional[_Iterable[_Union[LabeledTree.Child, _Mapping]]] = ...) -> None: ...
    class Child(_message.Message):
        __slots__ = ("label", "node")
        LABEL_FIELD_NUMBER: _ClassVar[int]
        NODE_FIELD_NUMBER: _ClassVar[int]
        label: bytes
        node: LabeledTree
        def __init__(self, label: _Optional[bytes] = ..., node: _Optional[_Union[LabeledTree, _Mapping]] = ...) -> None: ...
    LEAF_FIELD_NUMBER: _ClassVar[int]
    SUB_TREE_FIELD_NUMBER: _ClassVar[int]
    leaf: bytes
    sub_tree: LabeledTree.SubTree
    def __init__(self, leaf: _Optional[bytes] = ..., sub_tree: _Optional[_Union[LabeledTree.SubTree, _Mapping]] = ...) -> None: ...

class Witness(_message.Message):
    __slots__ = ("fork", "node", "pruned", "known")
    class Fork(_message.Message):
        __slots__ = ("left_tree", "right_tree")
        LEFT_TREE_FIELD_NUMBER: _ClassVar[int]
        RIGHT_TREE_FIELD_NUMBER: _ClassVar[int]
        left_tree: Witness
        right_tree: Witness
        def __init__(self, left_tree: _Optional[_Union[Witness, _Mapping]] = ..., right_tree: _Optional[_Union[Witness, _Mapping]] = ...) -> None: ...
    class Node(_message.Message):
        __slots__ = ("label", "sub_witness")
        LABEL_FIELD_NUMBER: _ClassVar[int]
        SUB_WITNESS_FIELD_NUMBER: _ClassVar[int]
        label: bytes
        sub_witness: Witness
        def __init__(self, label: _Optional[bytes] = ..., sub_witness: _Optional[_Union[Witness, _Mapping]] = ...) -> None: ...
    class Pruned(_message.Message):
        __slots__ = ("digest",)
        DIGEST_FIELD_NUMBER: _ClassVar[int]
        digest: bytes
        def __init__(self, digest: _Optional[bytes] = ...) -> None: ...
    class Known(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    FORK_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    fork: Witness.Fork
    node: Witness.Node
    pruned: Witness.Pruned
    known: Witness.Known
    def __init__(self, fork: _Optional[_Union[Witness.Fork, _Mapping]] = ..., node: _Optional[_Union[Witness.Node, _Mapping]] = ..., pruned: _Optional[_Union[Witness.Pruned, _Mapping]] = ..., known: _Optional[_Union[Witness.Known, _Mapping]] = ...) -> None: ...

class ThresholdSignature(_message.Message):
    __slots__ = ("signature", "signer")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    signer: bytes
    def __init__(self, signature: _Optional[bytes] = ..., signer: _Optional[bytes] = ...) -> None: ...

class CertificationContent(_message.Message):
    __slots__ = ("hash",)
    HASH_FIELD_NUMBER: _ClassVar[int]
    hash: bytes
    def __init__(self, hash: _Optional[bytes] = ...) -> None: ...

class Certification(_message.Message):
    __slots__ = ("height", "content", "signature", "height_witness")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_WITNESS_FIELD_NUMBER: _ClassVar[int]
    height: int
    content: CertificationContent
    signature: ThresholdSignature
    height_witness: bytes
    def __init__(self, height: _Optional[int] = ..., content: _Optional[_Union[CertificationContent, _Mapping]] = ..., signature: _Optional[_Union[ThresholdSignature, _Mapping]] = ..., height_witness: _Optional[bytes] = ...) -> None: ...

class CertifiedStreamSlice(_message.Message):
    __slots__ = ("payload", "merkle_proof", "certification")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MERKLE_PROOF_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATION_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    merkle_proof: bytes
    certification: Certification
    def __init__(self, payload: _Optional[bytes] = ..., merkle_proof: _Optional[bytes] = ..., certification: _Optional[_Union[Certification, _Mapping]] = ...) -> None: ...
