"""Proof documents of Tendermint light clients: the update of a client to a new header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from causeway_proofs.documents.document import ProofDocument, ProofPath, format_bytes, require_trust
from causeway_proofs.documents.trust import TendermintTrust, Trust
from causeway_proofs.documents.validation import ClaimMismatch, unwrap_rpc_result
from causeway_proofs.documents.values import Bytes, Listed, Number, Time, format_time
from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.steps import Step
from causeway_proofs.tendermint.commit import check_signed_header, signed_power
from causeway_proofs.tendermint.rpc import signed_header_from_json, validators_from_json
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustAnchor, decode_header_update, verify_header
from causeway_proofs.tendermint.validators import ValidatorSet

MAX_PAGES = 100
"""Most answers to ``/validators``: 100 validators each, as many as a set may have."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, dict) else value


Pages = Annotated[Listed[dict[str, Any]], BeforeValidator(_listed), Field(min_length=1, max_length=MAX_PAGES)]
"""A node's answer, or a list of consecutive pages."""


class TendermintUpdate(ProofDocument):
    """A header verified by a trusted one at the time ``now``.

    ``proof`` is an ``ibc.lightclients.tendermint.v1.Header``. Alternatively, a node's answers: ``commit`` (to
    ``/commit``), ``validators`` (to ``/validators`` at that height; a list for several pages) and
    ``trusted_validators`` (the same at the height after the trusted one; by default, the set is unchanged). The trust
    level stands with the trusted header.

    Attributes:
        height: claimed height, optional.
        app_hash: claimed state root, optional.
        header_hash: claimed hash of the header, optional.
    """

    kind: Literal["tendermint_update"]
    now: Time
    height: Number | None = None
    app_hash: Bytes | None = None
    header_hash: Bytes | None = None
    proof: Bytes | None = None
    commit: dict[str, Any] | None = None
    validators: Pages | None = None
    trusted_validators: Pages | None = None
    accepts: ClassVar[tuple[type[Trust], ...]] = (TendermintTrust,)

    @model_validator(mode="after")
    def _validate_single_proof(self) -> TendermintUpdate:
        answers = {name: getattr(self, name) for name in ("commit", "validators", "trusted_validators")}
        if self.proof is not None:
            for name, value in answers.items():
                if value is not None:
                    raise InvalidInput(f"{name}: does not go together with proof")
        elif self.commit is None:
            raise InvalidInput("proof: missing; give it, or a node's answers as commit and validators")
        elif self.validators is None:
            raise InvalidInput("validators: missing; commit needs a node's answer to /validators at its height")
        return self

    def claim(self) -> str:
        """Return the claims in one line."""
        text = "the header" if self.height is None else f"the header of height {self.height}"
        for name, value in (("app_hash", self.app_hash), ("header_hash", self.header_hash)):
            if value is not None:
                text += f" with {name} {format_bytes(value)}"
        return f"{text} is the chain's, at {format_time(self.now)}"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the steps from the trusted header to the new one.

        Args:
            trust: the trusted header.

        Returns:
            One path.

        Raises:
            ClaimMismatch: the header differs from a claim.
            ProofError: as ``verify_header``.
        """
        require_trust(trust, TendermintTrust)
        assert isinstance(trust, TendermintTrust)
        update = self._update(trust)
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
        return (ProofPath(self.claim(), (*steps, Step("root", "app_hash of the header", header.app_hash))),)

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return the header's identity if no claim states it."""
        assert isinstance(trust, TendermintTrust)
        if self.header_hash is not None or self.height is not None:
            return ()
        header = self._update(trust).signed_header.header
        return [f"it is the header of height {header.height}, with the hash {header.hash.hex()}"]

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the update's content: header, validators and signers."""
        update = self._update(trust)
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
        return (ProofPath(self.claim(), tuple(steps)),)

    def _update(self, trust: Trust) -> HeaderUpdate:
        """Return the update, decoded or assembled from a node's answers.

        Raises:
            MalformedProof: the update is malformed.
            InvalidHeader: the header is of another chain, or names other validators.
            InvalidInput: the validators named by the trusted header are missing.
        """
        if self.proof is not None:
            return decode_header_update(self.proof)
        assert self.commit is not None and self.validators is not None and isinstance(trust, TendermintTrust)
        signed = signed_header_from_json(unwrap_rpc_result(self.commit).get("signed_header"))
        validators = _set_of(self.validators)
        trusted = validators if self.trusted_validators is None else _set_of(self.trusted_validators)
        # Another chain's header or wrong validators are errors, not a change of validators.
        check_signed_header(signed, trust.options.chain_id, validators)
        expected_hash = trust.trusted.anchor_hash(trust.options.rule)
        if trusted.hash != expected_hash and self.trusted_validators is None:
            current = trust.trusted.anchor(trust.options.rule) is TrustAnchor.CURRENT
            height = trust.trusted.height if current else trust.trusted.height + 1
            raise InvalidInput(
                f"trusted_validators: missing; the validators changed since the trusted header: give a node's answer to"
                f" /validators?height={height} (--trusted-validators)"
            )
        if trusted.hash != expected_hash:
            vouched = f"those that header {trust.trusted.height} vouches for to {expected_hash.hex()}"
            raise InvalidInput(f"trusted_validators: hash to {trusted.hash.hex()}, {vouched}")
        return HeaderUpdate.on(trust.trusted.height, trusted, signed, validators)


def _set_of(pages: list[dict[str, Any]]) -> ValidatorSet:
    """Return the validators of a node's answers to ``/validators``.

    Raises:
        MalformedProof: the answers are malformed, incomplete, or of several heights.
    """
    answers = [unwrap_rpc_result(page) for page in pages]
    found = [entry for answer in answers for entry in _entries(answer)]
    heights = {str(answer["block_height"]) for answer in answers if "block_height" in answer}
    if len(heights) > 1:
        raise MalformedProof(f"the answers to /validators are of several heights: {', '.join(sorted(heights))}")
    totals = {str(answer["total"]) for answer in answers if "total" in answer}
    if totals and totals != {str(len(found))}:
        raise MalformedProof(
            f"{len(found)} of {' or '.join(sorted(totals))} validators are given: ask /validators for every page"
        )
    return validators_from_json(found)


def _entries(answer: dict[str, Any]) -> list[Any]:
    entries = answer.get("validators")
    if not isinstance(entries, list):
        raise MalformedProof("validators: no list of them is in the answer to /validators")
    return entries
