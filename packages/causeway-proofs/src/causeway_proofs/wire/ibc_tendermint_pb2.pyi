import datetime

from causeway_proofs.wire import ibc_client_pb2 as _ibc_client_pb2
from causeway_proofs.wire import ibc_root_pb2 as _ibc_root_pb2
from causeway_proofs.wire import ics23_pb2 as _ics23_pb2
from causeway_proofs.wire import tendermint_types_pb2 as _tendermint_types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Fraction(_message.Message):
    __slots__ = ("numerator", "denominator")
    NUMERATOR_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    numerator: int
    denominator: int
    def __init__(self, numerator: _Optional[int] = ..., denominator: _Optional[int] = ...) -> None: ...

class ClientState(_message.Message):
    __slots__ = ("chain_id", "trust_level", "trusting_period", "unbonding_period", "max_clock_drift", "frozen_height", "latest_height", "proof_specs", "upgrade_path", "allow_update_after_expiry", "allow_update_after_misbehaviour")
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    TRUST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TRUSTING_PERIOD_FIELD_NUMBER: _ClassVar[int]
    UNBONDING_PERIOD_FIELD_NUMBER: _ClassVar[int]
    MAX_CLOCK_DRIFT_FIELD_NUMBER: _ClassVar[int]
    FROZEN_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LATEST_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    PROOF_SPECS_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_PATH_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UPDATE_AFTER_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UPDATE_AFTER_MISBEHAVIOUR_FIELD_NUMBER: _ClassVar[int]
    chain_id: str
    trust_level: Fraction
    trusting_period: _duration_pb2.Duration
    unbonding_period: _duration_pb2.Duration
    max_clock_drift: _duration_pb2.Duration
    frozen_height: _ibc_client_pb2.Height
    latest_height: _ibc_client_pb2.Height
    proof_specs: _containers.RepeatedCompositeFieldContainer[_ics23_pb2.ProofSpec]
    upgrade_path: _containers.RepeatedScalarFieldContainer[str]
    allow_update_after_expiry: bool
    allow_update_after_misbehaviour: bool
    def __init__(self, chain_id: _Optional[str] = ..., trust_level: _Optional[_Union[Fraction, _Mapping]] = ..., trusting_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., unbonding_period: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_clock_drift: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., frozen_height: _Optional[_Union[_ibc_client_pb2.Height, _Mapping]] = ..., latest_height: _Optional[_Union[_ibc_client_pb2.Height, _Mapping]] = ..., proof_specs: _Optional[_Iterable[_Union[_ics23_pb2.ProofSpec, _Mapping]]] = ..., upgrade_path: _Optional[_Iterable[str]] = ..., allow_update_after_expiry: _Optional[bool] = ..., allow_update_after_misbehaviour: _Optional[bool] = ...) -> None: ...

class ConsensusState(_message.Message):
    __slots__ = ("timestamp", "root", "next_validators_hash")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    NEXT_VALIDATORS_HASH_FIELD_NUMBER: _ClassVar[int]
    timestamp: _timestamp_pb2.Timestamp
    root: _ibc_root_pb2.MerkleRoot
    next_validators_hash: bytes
    def __init__(self, timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., root: _Optional[_Union[_ibc_root_pb2.MerkleRoot, _Mapping]] = ..., next_validators_hash: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("signed_header", "validator_set", "trusted_height", "trusted_validators")
    SIGNED_HEADER_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_SET_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_VALIDATORS_FIELD_NUMBER: _ClassVar[int]
    signed_header: _tendermint_types_pb2.SignedHeader
    validator_set: _tendermint_types_pb2.ValidatorSet
    trusted_height: _ibc_client_pb2.Height
    trusted_validators: _tendermint_types_pb2.ValidatorSet
    def __init__(self, signed_header: _Optional[_Union[_tendermint_types_pb2.SignedHeader, _Mapping]] = ..., validator_set: _Optional[_Union[_tendermint_types_pb2.ValidatorSet, _Mapping]] = ..., trusted_height: _Optional[_Union[_ibc_client_pb2.Height, _Mapping]] = ..., trusted_validators: _Optional[_Union[_tendermint_types_pb2.ValidatorSet, _Mapping]] = ...) -> None: ...

class Misbehaviour(_message.Message):
    __slots__ = ("client_id", "header_1", "header_2")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HEADER_1_FIELD_NUMBER: _ClassVar[int]
    HEADER_2_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    header_1: Header
    header_2: Header
    def __init__(self, client_id: _Optional[str] = ..., header_1: _Optional[_Union[Header, _Mapping]] = ..., header_2: _Optional[_Union[Header, _Mapping]] = ...) -> None: ...
