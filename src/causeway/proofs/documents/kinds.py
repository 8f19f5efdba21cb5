"""Every kind of document by its name; the family of a kind is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from causeway.proofs.documents.document import ProofDocument

_MODELS = {
    "ic_certificate": "ic:IcCertificate",
    "ic_stream_slice": "ic:IcStreamSlice",
    "ics23": "ics23:Ics23",
    "ics23_batch": "ics23:Ics23Batch",
    "ics23_chained": "ics23:Ics23Chained",
    "ics23_range": "ics23:Ics23Range",
    "tendermint_update": "tendermint:TendermintUpdate",
    "substrate_storage": "substrate:SubstrateStorage",
    "substrate_ordered_root": "substrate:SubstrateOrderedRoot",
    "hrmp_queue": "substrate:HrmpQueue",
    "icmp_message": "icmp:IcmpMessage",
    "xdm_message": "xdm:XdmMessage",
    "mmr_leaf": "mmr:MmrLeaf",
    "mmr_ancestry": "mmr:MmrAncestry",
    "mmr": "mmr:Mmr",
}


class _Kinds(Mapping[str, type[ProofDocument]]):
    """The models of documents by the names of their kinds."""

    def __getitem__(self, kind: str) -> type[ProofDocument]:
        module, _, name = _MODELS[kind].partition(":")
        model: type[ProofDocument] = getattr(import_module(f"causeway.proofs.documents.{module}"), name)
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(_MODELS)

    def __len__(self) -> int:
        return len(_MODELS)


KINDS: Mapping[str, type[ProofDocument]] = _Kinds()
