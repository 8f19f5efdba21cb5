"""Commands with protocol options: several protocols, and unknown options of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from typer.testing import CliRunner

from causeway.cli.app import build_app
from causeway.cli.protocol_options import merge_options, protocol_parts, reject_other_options
from causeway.network.opened_lake import OpenedLake
from causeway.protocols.registry import find_protocol, register_protocol
from causeway.protocols.shared.command_options import CommandOption, FileOption
from causeway.proving.prover import ProofResult


class LeafProver:
    """A prover by leaf, as opposed to the existing one by queue and index."""

    about = "Prove a leaf of a forest."
    options = (
        CommandOption("chain", "The chain.", required=True),
        CommandOption("leaf", "The leaf.", int, required=True, least=0, metavar="NUMBER"),
        CommandOption("side", "Where it is.", default="left", words=("left", "right")),
        CommandOption("deep", "The whole way.", bool),
    )
    files = (FileOption("trust_out", "Another text."), FileOption("forest_out", "Write the forest here."))

    def prove(self, opened: OpenedLake, height: int | None, given: Mapping[str, Any]) -> ProofResult:
        """Return an invalid proof."""
        return ProofResult({"leaf": given["leaf"]}, [f"leaf {given['leaf']}"])


PROVER = LeafProver()


@pytest.fixture
def forest() -> Iterator[None]:
    """Register one more protocol with provable lakes."""
    with register_protocol(replace(find_protocol("ibc"), name="forest", prover=f"{__name__}:PROVER", relay=None)):
        yield


def test_command_has_the_options_of_all_protocols_once(forest: None) -> None:
    shown = CliRunner().invoke(build_app(), ["prove", "--help"], env={"COLUMNS": "120", "TERM": "dumb"}).output
    found = re.findall(r"--[a-z-]+", "\n".join(re.findall(r"^│ .*$", shown, re.M)))
    names = [
        *("chain", "counterparty", "queue", "index", "absent", "indices", "head", "tail", "leaf", "side", "deep"),
        *("header", "program", "certificate-out", "height", "out", "trust-out", "header-out", "forest-out", "json"),
    ]
    options = [option for option in dict.fromkeys(found) if option.removeprefix("--") in names]
    assert options.count("--chain") == 1 and set(options) == {f"--{name}" for name in names}
    abouts = ("Prove a leaf of a forest.", "Under ibc: prove what a zone", "Under ic: prove what a subnet")
    for about in (*abouts, "Under icmp: prove a message", "Under xdm: prove a request"):
        assert about in shown
    assert len(protocol_parts("prover")) == 5 and len(protocol_parts("relay")) == 2


def test_option_is_required_only_if_all_protocols_require_it(forest: None) -> None:
    provers = [find_protocol(name).part("prover") for name in ("forest", "ibc")]
    options = {option.name: option for option in merge_options([prover.options for prover in provers])}
    assert [name for name, option in options.items() if option.required] == ["chain"]
    assert options["leaf"].least == 0 and options["side"].default == "left"
    alone = merge_options([PROVER.options])
    assert [option.name for option in alone if option.required] == ["chain", "leaf"]
    assert merge_options([]) == []


def test_option_of_another_protocol_is_refused() -> None:
    options = (*PROVER.options, *PROVER.files, CommandOption("index", "", int), CommandOption("most", "", int, 3))
    given: dict[str, Any] = {option.name: None for option in options}
    given |= {"side": "left", "deep": False, "most": 3, "leaf": 4}
    reject_other_options(given, options, (*PROVER.options, *PROVER.files), "forest")
    for name, value in (("index", 0), ("most", 4)):
        with pytest.raises(InvalidInput, match=f"--{name}: no option for lakes of forest"):
            reject_other_options({**given, name: value}, options, (*PROVER.options, *PROVER.files), "forest")
