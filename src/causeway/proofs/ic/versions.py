"""Certification versions: which encoding of the canonical state a subnet certifies (IC reference 2.9)."""

from __future__ import annotations

from enum import IntEnum


class CertificationVersion(IntEnum):
    """The comment beside a version says what it changed; only what touches encodings has an effect here."""

    V19 = 19  # seven kinds of reject signals
    V20 = 20  # the loopback stream is not certified
    V21 = 21  # canister_ranges
    V22 = 22  # refunds in streams
    V23 = 23  # cycles of requests and responses in fields of their own
    V24 = 24  # metadata as a subtree
    V25 = 25  # leaf with the subnet's type
    V26 = 26  # a reject signal for engines that are not allowed


CURRENT = CertificationVersion.V25
"""The version of the deployed networks."""

LOOPBACK_NOT_CERTIFIED = CertificationVersion.V20
REFUNDS = CertificationVersion.V22
CYCLES_FIELDS = CertificationVersion.V23
METADATA_SUBTREE = CertificationVersion.V24
ENGINE_SIGNALS = CertificationVersion.V26
