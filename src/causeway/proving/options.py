"""What the options of ``causeway prove`` say of themselves that lakes of several protocols have."""

from __future__ import annotations

from causeway.protocols.command_options import FileOption

CHAIN = "The chain whose state is proved."
COUNTERPARTY = "The chain at the other end of the connection or stream."
INDEX = "Prove the entry or message with this index."

TRUST_OUT = FileOption(
    "trust_out",
    "Write what to trust to this file: the header with the root, or the public key.",
    verified_by="--trust",
)
