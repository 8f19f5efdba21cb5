"""Errors of HRMP by name, in the order of the checks.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from enum import IntEnum


class ReceiptError(IntEnum):
    """Result of checking a receipt: watermark, messages and calls."""

    OK = 0
    AheadRelayParent = 1
    AdvancementRule = 2
    LandsOnBlockWithNoMessages = 3
    MoreMessagesThanPermitted = 4
    NotSorted = 5
    NoSuchChannel = 6
    MaxMessageSizeExceeded = 7
    TotalSizeExceeded = 8
    CapacityExceeded = 9
    TooManyCalls = 10
    CallsTooLarge = 11
    ParentMismatch = 12


class UpwardCallError(IntEnum):
    """Result of an upward call, with the names of the deployed pallets."""

    OK = 0
    OpenHrmpChannelToSelf = 1
    OpenHrmpChannelInvalidRecipient = 2
    OpenHrmpChannelZeroCapacity = 3
    OpenHrmpChannelCapacityExceedsLimit = 4
    OpenHrmpChannelZeroMessageSize = 5
    OpenHrmpChannelMessageSizeExceedsLimit = 6
    OpenHrmpChannelAlreadyRequested = 7
    OpenHrmpChannelAlreadyExists = 8
    OpenHrmpChannelLimitExceeded = 9
    InsufficientBalance = 10
    AcceptHrmpChannelDoesntExist = 11
    AcceptHrmpChannelAlreadyConfirmed = 12
    AcceptHrmpChannelLimitExceeded = 13
    CancelHrmpOpenChannelUnauthorized = 14
    OpenHrmpChannelDoesntExist = 15
    OpenHrmpChannelAlreadyConfirmed = 16
    CloseHrmpChannelUnauthorized = 17
    CloseHrmpChannelDoesntExist = 18
    CloseHrmpChannelAlreadyUnderway = 19
    WrongWitness = 20
    InvalidFormat = 21
