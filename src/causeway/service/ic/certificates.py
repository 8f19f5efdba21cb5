"""Certificates over HTTP: what a served subnet has certified, in the form that ``causeway verify`` reads."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from causeway.model.errors import InvalidInput
from causeway.protocols.limits import DIGITS, MAX_ANSWER_BYTES
from causeway.proving.ic.documents import certificate_document
from causeway.proving.ic.state import CertifiedStates
from causeway.service.ic.answers import CertificateAnswer
from causeway.service.lake_views import LakeViews
from causeway.service.requests import Number, Query, address_of_view

KEPT_STATES = 2
"""States that are kept: of a large subnet one takes some hundred megabytes."""

REST_BYTES = 64 << 10
"""More than an answer has besides the value and the certificate."""

PATH = "/v1/chains/{chain}/certificate"


class CertificateQuery(Query):
    """What is to be shown: of a stream the message ``index`` or, without one, the header; or certified data."""

    counterparty: str | None = Field(None, max_length=200, description="The subnet that the stream leads to.")
    index: Number | None = Field(None, description="The message with this index, in place of the header.")
    substream: str | None = Field(
        None, max_length=200, description="The program that names the substream, unless streams are flat."
    )
    program: str | None = Field(None, max_length=200, description="The certified data of this program.")
    height: Number | None = Field(None, description="A certified height; default: the last.")


class Certificates:
    """The view of certificates. ``address``: where it is served."""

    def __init__(self, views: LakeViews) -> None:
        self._states = CertifiedStates(views.opened, KEPT_STATES)
        about = "A certificate of a stream, or of a program's certified data."
        self.address = address_of_view(
            PATH, about, self.certificate, CertificateAnswer, CertificateQuery, chain=views.own()
        )

    def certificate(
        self,
        chain: str,
        counterparty: str | None,
        substream: str | None,
        index: int | None,
        program: str | None,
        height: int | None,
    ) -> dict[str, Any]:
        """Return a certificate as a document.

        Raises:
            InvalidInput: not one thing is asked for, it is not there, or longer than an answer.
        """
        if (counterparty is None) == (program is None):
            raise InvalidInput("query: give either counterparty (and index) or program")
        if counterparty is None and index is not None:
            raise InvalidInput("index: is of a message in a stream; give counterparty with it, not program")
        if counterparty is None and substream is not None:
            raise InvalidInput("substream: is of a stream; give counterparty with it, not program")
        state = self._states.get_state_at(chain, height)
        if program is not None:
            shown = state.certified_data(program)
        elif index is not None:
            shown = state.message(str(counterparty), index, substream)
        else:
            shown = state.header(str(counterparty), substream)
        if DIGITS * (len(shown.value) + len(shown.certificate)) > MAX_ANSWER_BYTES - REST_BYTES:
            raise InvalidInput(f"index: {index}: has {len(shown.value)} bytes, more than an answer holds")
        return certificate_document(state, shown)
