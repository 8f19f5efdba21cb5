from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UpdateHeader(_message.Message):
    __slots__ = ("remote", "header")
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    remote: str
    header: bytes
    def __init__(self, remote: _Optional[str] = ..., header: _Optional[bytes] = ...) -> None: ...

class SubmitMisbehaviour(_message.Message):
    __slots__ = ("remote", "misbehaviour")
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    MISBEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    remote: str
    misbehaviour: bytes
    def __init__(self, remote: _Optional[str] = ..., misbehaviour: _Optional[bytes] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("remote", "key", "value", "proof", "height")
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    remote: str
    key: bytes
    value: bytes
    proof: bytes
    height: int
    def __init__(self, remote: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., height: _Optional[int] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("update", "receive", "receipt", "timeout", "cleanup", "misbehaviour")
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CLEANUP_FIELD_NUMBER: _ClassVar[int]
    MISBEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    update: UpdateHeader
    receive: Submit
    receipt: Submit
    timeout: Submit
    cleanup: Submit
    misbehaviour: SubmitMisbehaviour
    def __init__(self, update: _Optional[_Union[UpdateHeader, _Mapping]] = ..., receive: _Optional[_Union[Submit, _Mapping]] = ..., receipt: _Optional[_Union[Submit, _Mapping]] = ..., timeout: _Optional[_Union[Submit, _Mapping]] = ..., cleanup: _Optional[_Union[Submit, _Mapping]] = ..., misbehaviour: _Optional[_Union[SubmitMisbehaviour, _Mapping]] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("calls",)
    CALLS_FIELD_NUMBER: _ClassVar[int]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    def __init__(self, calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ...) -> None: ...
