"""A header update made and accepted by the deployed light client (CometBFT v0.38.12, ``light.VerifyNonAdjacent``).

It skips heights to another validator set, of Ed25519 and secp256k1 keys, one of them with nearly all power; one
validator is absent, two vote for no block.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.tendermint.commit import VoteFlag
from causeway_proofs.tendermint.errors import ClientExpired, InvalidHeader
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.trust import (
    TrustedHeader,
    TrustOptions,
    decode_header_update,
    deployed_rule,
    verify_header,
)
from causeway_proofs.tendermint.validators import KeyType

UPDATE = base64.b64decode(
    "CvQHCpQCCgQICxABEgtjb3Ntb3NodWItNBj0BCIMCMiQnPsFENyatJMBKgISADIgBWo8fQh3uDNFGw+fuXmf+aFMSLvzljeaBJSXvNrz+ug6IIfC"
    "NCb8AZlF8FywtGrTKMtlsbEpyjfie7CxRXTZZzynQiAlJNjFlVT4h/cBmlb8CGFvwcdf7BDZqVP12/QikgNNoEogzUhEk6JkRO+zyAlKRMOWGxrF"
    "JBBuU7xVAzX8YJ5svbxSIIgaLNwJt9EoKk3rkMErQEjWSxcb/eiyCh2lGZtxYbBnWgge0VyizUSVqWIgDeSxCUyPOveDEJ+xWQ4PX3jPCY/9WlfG"
    "/+M/VVBYVapyFM+rrXFePpixprwUXhHudEl8I7VOEtoFCPQEEAIaSAoghWdRmp8h0VoohhJZ8sJA+jDSvRl7JH8HQowl2FBxy0ESJAhhEiDIANvf"
    "RDJ/pL2YBdF9AyaoiA7aL9AdkI7Sio5DUDpUlCJnCAISFM+rrXFePpixprwUXhHudEl8I7VOGgsIyZCc+wUQteDFHCJApNiJdCbPGd75C9rPU/I5"
    "6RtCEIf1rvpBXBnmLkJYJvm16H97cXUlvloZH64+LUzgL3XmVqXFz9t6+GOluGraASJoCAISFNJMohyBmWMNs3UmKbfJ0RlfAmxXGgwIyJCc+wUQ"
    "2fviiwMiQEEoR+5Cb2UDRza4E8co7JrLiGJJRovww6f7GA685eZDPWU79F4k4Ds8zBC1NPycVxQTTkOy737I+6ghrXgXMx4iaAgDEhQAByV3YDhj"
    "g9iiAm3O5wXaQ/ruTBoMCMiQnPsFELawk9kCIkCqfN17K+lQhmkB9N37izopUxEYE3OiqnzBkEwmlcUK8DAw3YToDLEylmqc7qjTHrxO/K1qd7cZ"
    "oJM7KD2/hAUBImgIAhIU+b+t+B7kPAnIIVOV1tSLVH9Xc7gaDAjIkJz7BRC2wMjcASJAuvv5qdtF2WciPAHL1rKISRdUozlQr530+o3yWwAuvMxs"
    "Ysd4bm/gGFhrXg0VQ5jh7riFIl1TZR04hpF7m/hw/SJnCAMSFPdtLBagQjzyXLKWj8QBWmbf/WiOGgsIyZCc+wUQpo7cZSJAJKfDXeBJOQle4KjS"
    "YiwyABfvQScQGou41Zhbl6Lcgj6g8xapvCcHL2p8zbSXdj0wdlVRSSFqglepf9AaZjACBSIPCAEaCwiAkrjDmP7///8BImgIAhIUGkaqXxuYG16t"
    "jlExcQd+KJyviVEaDAjIkJz7BRDNm5O8AyJAqOB/QAich8gcK6KXxX4fG945x9RdLf+kh5wxc8PvsE5K7R+ank+opJLdFLRt8rVsCC/5Sy5dRiWL"
    "Loq1ZMRScxKkBApOChTPq61xXj6Ysaa8FF4R7nRJfCO1ThIiCiAL0YD+rT7B5GtHjXoVh2OYSPm7VL0I0A4UiZJgOtAd/hiAgICAgICAAiC/////"
    "//////8BCj8KFNJMohyBmWMNs3UmKbfJ0RlfAmxXEiMSIQLSxWqISUmqiOB/5TK/AZuBNxCQfTCbY++rCCa+ZNBPGhgTIBMKPgoUAAcld2A4Y4PY"
    "ogJtzucF2kP67kwSIgoglXm7IpD0W+DSpDVBPsGpgmf1CGF8HpO0mOLX2NNJf28YDyAPCj8KFPm/rfge5DwJyCFTldbUi1R/V3O4EiMSIQOAA7D1"
    "5ybuynjsiNvG9ERdWOMNpQbi1KRPKgrrAN7ptBgPIA8KPgoU920sFqBCPPJcspaPxAFaZt/9aI4SIgogi5CpBM8lGmDYKZLlJYKO8yxOtjXA+7s/"
    "ixgvp3qO4moYByAHCj8KFJY0ARGDES1eQXge2AhsJlq/46+2EiMSIQKfF00OepTXNGyHVz7PTtZJkQ5YhJsM79sfavzv3yYYURgFIAUKPwoUGkaq"
    "XxuYG16tjlExcQd+KJyviVESIxIhAnDjlD3UgPJ+AxlmnvnyMHZ5SeKxTAN3YRmwVP5Srx/7GAQgBBJOChTPq61xXj6Ysaa8FF4R7nRJfCO1ThIi"
    "CiAL0YD+rT7B5GtHjXoVh2OYSPm7VL0I0A4UiZJgOtAd/hiAgICAgICAAiC///////////8BGgUIBBDMBCLTAQpHChTPq61xXj6Ysaa8FF4R7nRJ"
    "fCO1ThIiCiAL0YD+rT7B5GtHjXoVh2OYSPm7VL0I0A4UiZJgOtAd/hgRIPn//////////wEKPwoU0kyiHIGZYw2zdSYpt8nRGV8CbFcSIxIhAtLF"
    "aohJSaqI4H/lMr8Bm4E3EJB9MJtj76sIJr5k0E8aGAcgBxJHChTPq61xXj6Ysaa8FF4R7nRJfCO1ThIiCiAL0YD+rT7B5GtHjXoVh2OYSPm7VL0I"
    "0A4UiZJgOtAd/hgRIPn//////////wE="
)
TRUSTED = TrustedHeader(
    height=588,
    time=1600587793309136732,
    root=bytes.fromhex("bcb7612d349714d99e81101b4580e0e288e0e10f408fa85c69f83552c0b7a28c"),
    next_validators_hash=bytes.fromhex("cdcc0f2a6a0e758f32bcb74d154913d0f009cc402861ed3529f999dc3e0f322b"),
)
SIGNED_HEADER_BYTES = 3 + 1012
NOW = 1600587856309136732
OPTIONS = TrustOptions("cosmoshub-4", 100_000 * SECOND, 5 * SECOND, deployed_rule(2, 3))


def test_deployed_update_is_accepted() -> None:
    update = decode_header_update(UPDATE)
    assert {validator.public_key.type for validator in update.validators.validators} == set(KeyType)
    flags = [entry.flag for entry in update.signed_header.commit.signatures]
    assert sorted(flags) == [VoteFlag.ABSENT, *[VoteFlag.COMMIT] * 4, *[VoteFlag.NIL] * 2]
    steps = verify_header(TRUSTED, update, OPTIONS, NOW)
    assert [step.operation for step in steps] == ["trusted", "header", "validators", "power", "overlap", "signature"]


def test_deployed_update_is_refused_for_another_chain_time_or_header() -> None:
    update = decode_header_update(UPDATE)
    with pytest.raises(InvalidHeader, match="builds on height"):
        verify_header(TRUSTED, update, replace(OPTIONS, chain_id="another-5"), NOW)
    with pytest.raises(ClientExpired):
        verify_header(TRUSTED, update, OPTIONS, TRUSTED.time + OPTIONS.trusting_period)
    with pytest.raises(InvalidHeader, match="trusted validators hash to"):
        verify_header(replace(TRUSTED, next_validators_hash=bytes(32)), update, OPTIONS, NOW)


def test_flipped_bits_of_the_signed_header_are_refused() -> None:
    for bit in range(0, 8 * SIGNED_HEADER_BYTES, 13):
        changed = bytearray(UPDATE)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            verify_header(TRUSTED, decode_header_update(bytes(changed)), OPTIONS, NOW)
