"""Envelopes of the real pallet through the kernel's validation: columns, from the wire to the message."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.core.frame import Frame, empty_frame
from causeway.programs.runner import Programs
from causeway.protocols.contract import Tick
from causeway.protocols.xdm.errors import MessageValidity
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.relay.envelopes import decode_envelopes, encode_envelopes
from causeway.protocols.xdm.state import ChannelState
from causeway.protocols.xdm.tables import BLOCKS_SCHEMA, CHANNELS_SCHEMA, DECLARED_UNDER_SCHEMA, NEXT_CHANNELS_SCHEMA
from causeway.protocols.xdm.validate import JudgedEnvelopes, read_envelopes, validate
from tests.proofs.xdm.test_xdm_confirmation import BLOCKS, cases, confirmed  # noqa: F401 - a fixture

DEPTH = 3


def rows(schema: pa.Schema, **columns: int) -> Frame:
    kinds = {field.name: field.type.to_pandas_dtype() for field in schema}
    return Frame({name: np.array([columns.get(name, 0)], dtype=kind) for name, kind in kinds.items()}, 1)


def validate_fixture(case: dict[str, Any], index: int, strict: Literal["on", "off"]) -> JudgedEnvelopes:
    """Return the kernel's result for a fixture, under a mountain range whose leaf ``index`` is its state."""
    response = case["item"] == "InboxResponses"
    root, envelope = confirmed(case, index)
    encoded = pa.array([envelope.encode()], pa.large_binary())
    brought, refused = decode_envelopes(encoded, np.array([response]))
    assert not refused.any()
    assert encode_envelopes(brought).equals(encoded)
    own = int(brought.envelopes["destination"][0])
    foreign = int(brought.envelopes["source"][0])
    blocks = Frame(
        {
            "chain": np.zeros(2, dtype=np.uint32),
            "number": np.array([0, DEPTH], dtype=np.uint64),
            **{name: np.zeros((2, 32), dtype=np.uint8) for name in ("hash", "state_root", "extrinsics_root")},
            "leaf_count": np.array([BLOCKS, BLOCKS], dtype=np.uint64),
            "mmr_root": np.frombuffer(2 * root, dtype=np.uint8).reshape(2, 32),
            "height": np.zeros(2, dtype=np.uint64),
        },
        2,
    ).select(BLOCKS_SCHEMA.names)
    channels = empty_frame(CHANNELS_SCHEMA)
    if response or case["nonce"]:
        channels = rows(CHANNELS_SCHEMA, chain=own, foreign=foreign, state=int(ChannelState.INITIATED))
    following = rows(NEXT_CHANNELS_SCHEMA, chain=own, foreign=foreign, next_channel=1)
    topology = Topology(CHAINS_SCHEMA.empty_table(), PROGRAMS_SCHEMA.empty_table())
    kernel = XdmKernel(topology, Programs(topology), XdmOptions(archiving_depth=DEPTH, strict_envelope=strict))
    context = kernel.context(np.array([own], dtype=np.uint32), Tick(1, DEPTH))
    return read_envelopes(brought, blocks, empty_frame(DECLARED_UNDER_SCHEMA), channels, following, context)


@pytest.mark.parametrize("index", [0, 7, 10])
def test_each_fixture_yields_its_message(cases: list[dict[str, Any]], index: int) -> None:  # noqa: F811 - a fixture
    for case in cases:
        between = case["case"] == "between_domains_relay_message"
        found = validate_fixture(case, index, "off" if between else "on")
        assert validate(found).tolist() == [MessageValidity.VALID], case["case"]
        assert found.raw[0].as_py().hex() == case["message"]
        if between:
            assert validate(validate_fixture(case, index, "on")).tolist() == [MessageValidity.BadProof]
        else:
            assert validate(validate_fixture(case, index, "off")).tolist() == [MessageValidity.VALID]
