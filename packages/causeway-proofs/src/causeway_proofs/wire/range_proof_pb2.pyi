from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RangeProof(_message.Message):
    __slots__ = ("key_lengths", "keys", "value_lengths", "values", "steps", "left", "right")
    KEY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUE_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    key_lengths: _containers.RepeatedScalarFieldContainer[int]
    keys: bytes
    value_lengths: _containers.RepeatedScalarFieldContainer[int]
    values: bytes
    steps: bytes
    left: bytes
    right: bytes
    def __init__(self, key_lengths: _Optional[_Iterable[int]] = ..., keys: _Optional[bytes] = ..., value_lengths: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ..., steps: _Optional[bytes] = ..., left: _Optional[bytes] = ..., right: _Optional[bytes] = ...) -> None: ...
