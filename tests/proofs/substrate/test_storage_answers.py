"""Notes on storage proofs: gaps in a list, misspelled items, the wrong parachain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.verification import DocumentVerdict, build_document, verify_document
from causeway_proofs.hashing import blake2_256
from causeway_proofs.substrate import Trie, encode_queues, encode_watermark, prove, unrouted_key, watermark_key
from causeway_proofs.substrate.parachains import block_hash

from causeway.protocols.hrmp.commitment import item_key
from tests.support.common.command_line import command_line

WATERMARK, BLOCK = 5, 9
QUEUES = {7: encode_queues([(1, b"q" * 32), (4, b"r" * 32)]), 9: encode_queues([(1, b"s" * 32)])}
MARK = encode_watermark(WATERMARK, b"w" * 32)
STATE = {watermark_key(3): MARK, **{unrouted_key(number, 3): value for number, value in QUEUES.items()}}
ALL = [watermark_key(3), *(unrouted_key(number, 3) for number in range(WATERMARK + 1, BLOCK + 1))]


def proof_of(state: Mapping[bytes, bytes], entries: list[dict[str, Any]], head: bool = True) -> tuple[Any, Any]:
    """A valid document with some entries, and its trust: a header, or a root."""
    trie = Trie.build([*state], [*state.values()])
    keys = [build_document({"kind": KIND, "entries": [one], "proof": []}, "").document._keys()[0] for one in entries]  # type: ignore[attr-defined]
    nodes = [node.hex() for node in prove(trie, keys)]
    parent, included = b"p" * 32, blake2_256(b"")
    fields = {"parent": parent, "root": trie.root, "included": included}
    trust = {"kind": "icmp_head", "number": BLOCK, "hash": block_hash(parent, BLOCK, trie.root, included).hex()}
    trust |= {name: digest.hex() for name, digest in fields.items()}
    root = {"kind": "root", "root": trie.root.hex()}
    return {"kind": KIND, "state_version": 1, "entries": entries, "proof": nodes}, trust if head else root


KIND = "substrate_storage"


def raw(keys: list[bytes], state: Mapping[bytes, bytes] = STATE) -> list[dict[str, Any]]:
    return [{"key": key.hex(), "value": state[key].hex() if key in state else None} for key in keys]


def verify_valid(document: Any, trust: Any) -> DocumentVerdict:
    found = verify_document(build_document(document, "proof"), parse_trust_object(trust, "trust"))
    assert found.valid
    return found


def test_complete_list_is_noted_as_complete() -> None:
    found = verify_valid(*proof_of(STATE, raw(ALL)))
    assert found.notes == ("all that waits for parachain 3 after relay block 9, from block 6 on",)
    assert found.lines[1] == "no value is stored in Parachains.UnroutedIngress(6, 3)"
    assert found.lines[0].endswith("is stored in Parachains.Watermarks(3)")
    (note,) = verify_valid(*proof_of(STATE, raw(ALL), head=False)).notes
    assert "up to relay block 9" in note and "a root does not" in note


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([ALL[0], ALL[1], ALL[3]], "nothing is said of relay block 7, 9"),
        (ALL[:-3], "nothing is said of relay block 7 to 9"),
        (ALL[1:], "without its watermark"),
        ([watermark_key(3), *(unrouted_key(number, 2) for number in range(6, 10))], "for parachain 2: without its"),
    ],
)
def test_incomplete_list_is_noted_as_incomplete(keys: list[bytes], said: str) -> None:
    (note,) = verify_valid(*proof_of(STATE, raw(keys))).notes
    assert note.startswith("not all that waits for parachain ") and said in note


def test_misspelled_item_is_shown_by_its_name(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of absent keys of a non-existent item, as if the queue were empty: true, with a note on its meaning."""
    entries = raw(ALL[:1]) + [
        {
            "storage": {
                "pallet": "Qarachains",
                "item": "UnroutedIngress",
                "keys": [{"hasher": "Twox64Concat", "key": (number.to_bytes(4, "little") + bytes([3, 0, 0, 0])).hex()}],
            },
            "value": None,
        }
        for number in range(6, 26)
    ]
    document, trust = proof_of(STATE, entries)
    for name, content in (("p", document), ("t", trust)):
        (tmp_path / name).write_text(json.dumps(content))
    (verify,) = [next(run) for run in [command_line(capsys, tmp_path, monkeypatch)]]
    code, out, _ = verify("verify", "p", "--trust", "t")
    lines = out.splitlines()
    assert code == 0 and lines[0] == "p: true" and lines[1] == "  claimed: 1 values are stored, 20 keys are absent"
    assert lines[2].strip().endswith("Parachains.Watermarks(3)") and "Qarachains.UnroutedIngress" in lines[3]
    assert lines[10].strip() == "... and 13 more: see --explain, and --json for all" and "under:" in lines[11]
    assert lines[12:] == [
        "  note:    nothing here shows that there is such an item as Qarachains.UnroutedIngress: of a wrong name it is "
        "true as well"
    ]


def test_channel_list_is_complete_or_names_the_omission() -> None:
    index = b"\x08" + b"".join(number.to_bytes(4, "little") for number in (1, 4))
    state = {
        item_key("HrmpIngressChannelsIndex", 3): index,
        item_key("HrmpChannels", 1, 3): b"one",
        item_key("HrmpChannels", 4, 3): b"other",
        item_key("HrmpWatermarks", 3): b"\x05\0\0\0",
    }
    whole = [*state, item_key("HrmpChannelDigests", 3), *(item_key("HrmpChannelContents", x, 3) for x in (1, 4))]
    assert verify_valid(*proof_of(state, raw(whole, state))).notes == (
        "all 2 channels to parachain 3, with all that is in them",
    )
    (note,) = verify_valid(*proof_of(state, raw(whole[:-1], state))).notes
    assert note == "not all that waits for parachain 3: nothing is said of HrmpChannelContents(4, 3)"
