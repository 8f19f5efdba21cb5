"""The errors of 3.10 by name.

Decision. The calls that are no receipts (registration, deregistration, censoring) have no errors in the reference:
AlreadyRegistered and NotRegistered are added. `WatermarkNotOnChain` is the formula's (2.1).
"""

RUNTIME = (
    "DuplicateCandidate",
    "ParentMismatch",
    "EgressOutOfOrder",
    "SelfAddressed",
    "EmptyTrieRoot",
    "DestinationDoesNotExist",
    "WatermarkRegressed",
    "WatermarkNotAncestor",
    "LandsOnBlockWithNoMessages",
)
VALIDATION = (
    "NotAPrefix",
    "IngressCountMismatch",
    "IngressChainMismatch",
    "IngressRootMismatch",
    "MissingEgressRoot",
    "EgressRootMismatch",
)
GOSSIP = ("BadNeighborPacket", "UnexpectedQueue", "RootMismatch", "Malformed", "Impolite")
CALLS = ("AlreadyRegistered", "NotRegistered")
NAMES = {*RUNTIME, *VALIDATION, *GOSSIP, *CALLS, "WatermarkNotOnChain"}


class IcmpError(Exception):
    """A named refusal: nothing changes."""

    def __init__(self, name: str) -> None:
        assert name in NAMES, name
        super().__init__(name)
        self.name = name


def ensure(condition: bool, name: str) -> None:
    """`ensure C else E` of the reference."""
    if not condition:
        raise IcmpError(name)
