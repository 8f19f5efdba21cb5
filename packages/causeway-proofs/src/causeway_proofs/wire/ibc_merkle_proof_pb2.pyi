from causeway_proofs.wire import ics23_pb2 as _ics23_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MerkleProof(_message.Message):
    __slots__ = ("proofs",)
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    proofs: _containers.RepeatedCompositeFieldContainer[_ics23_pb2.CommitmentProof]
    def __init__(self, proofs: _Optional[_Iterable[_Union[_ics23_pb2.CommitmentProof, _Mapping]]] = ...) -> None: ...
