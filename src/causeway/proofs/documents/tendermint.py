"""Documents of Tendermint light clients: the update of a client to a new header."""

from __future__ import annotations

from typing import ClassVar, Literal

from causeway.proofs.documents.document import ProofDocument, Track, expect, hexed
from causeway.proofs.documents.errors import ClaimMismatch
from causeway.proofs.documents.trust import TendermintTrust, Trust
from causeway.proofs.documents.values import Bytes, Number, Time, when
from causeway.proofs.steps import Step
from causeway.proofs.tendermint.commit import signed_power
from causeway.proofs.tendermint.trust import verify_header
from causeway.proofs.tendermint.update import decode_header_update


class TendermintUpdate(ProofDocument):
    """A header that a trusted one vouches for at the time ``now``.

    ``proof`` is an ``ibc.lightclients.tendermint.v1.Header``. Claims, as far as given: the header's ``height``, its
    ``app_hash`` (the root) and its ``header_hash``. How far a header is trusted stands with the trusted header.
    """

    kind: Literal["tendermint_update"]
    now: Time
    height: Number | None = None
    app_hash: Bytes | None = None
    header_hash: Bytes | None = None
    proof: Bytes
    accepts: ClassVar[tuple[type[Trust], ...]] = (TendermintTrust,)

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        text = "the header" if self.height is None else f"the header of height {self.height}"
        for name, value in (("app_hash", self.app_hash), ("header_hash", self.header_hash)):
            if value is not None:
                text += f" with {name} {hexed(value)}"
        return f"{text} is the chain's, at {when(self.now)}"

    def verify(self, trust: Trust) -> tuple[Track, ...]:
        """Return the steps from the trusted header to the new one; errors: ``verify_header``'s, ``ClaimMismatch``."""
        expect(trust, TendermintTrust)
        assert isinstance(trust, TendermintTrust)
        update = decode_header_update(self.proof)
        steps = verify_header(trust.trusted, update, trust.options, self.now)
        header = update.signed_header.header
        if self.height is not None and self.height != header.height:
            raise ClaimMismatch(f"the header has height {header.height}, claimed is {self.height}")
        for name, claimed, fact in (
            ("app_hash", self.app_hash, header.app_hash),
            ("header_hash", self.header_hash, header.hash),
        ):
            if claimed is not None and claimed != fact:
                raise ClaimMismatch(f"{name} is {fact.hex()} in the header, claimed is {claimed.hex()}")
        return (Track(self.claim(), (*steps, Step("root", "app_hash of the header", header.app_hash))),)

    def sketch(self, trust: Trust) -> tuple[Track, ...]:
        """Return what the update says of the header, of its validators and of who signed."""
        update = decode_header_update(self.proof)
        header, commit = update.signed_header.header, update.signed_header.commit
        steps = [
            Step("trusted", f"height {update.trusted_height}, validators given", update.trusted_validators.hash),
            Step("header", f"{header.chain_id} at height {header.height}", header.hash),
            Step("validators", f"named by the header; {len(update.validators)} are given", header.validators_hash),
        ]
        if len(commit.signatures) == len(update.validators):
            power, total = signed_power(commit, update.validators), update.validators.total_power
            steps.append(Step("power", f"{power} of {total} is said to have signed"))
        steps.append(Step("signature", f"{len(commit.signatures)} entries of the commit", commit.block_id.hash))
        return (Track(self.claim(), tuple(steps)),)
