"""Literal types of test networks: equal to the registered names."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from mypy import api

import causeway as cw
from causeway.core.vocabulary import RejectCode
from causeway.protocols.registry import find_protocol, protocol_names

RIGHT = """\
import causeway as cw

net = cw.Network(2, protocol="xdm")
net.inject("halt", chain="chain-0")
net.messages(kind="request", status="answered", reject="NO_FUNDS")
net.messages(reject=cw.RejectCode.NO_FUNDS)
"""

WRONG = """\
import causeway as cw

net = cw.Network(2, protocol="icp")
net.inject("hlt", chain="chain-0")
net.messages(kind="call")
net.messages(status="done")
net.messages(reject="NO_MONEY")
"""


def test_literals_equal_the_registered_names() -> None:
    kinds = {
        kind
        for name in protocol_names()
        for section in find_protocol(name).fault_kinds()
        for kind in get_args(section.model_fields["kind"].annotation)
    }
    assert list(get_args(cw.ProtocolName)) == protocol_names()
    assert list(get_args(cw.FaultKind)) == sorted(kinds)
    assert list(get_args(cw.RejectName)) == [code.name for code in RejectCode]


@pytest.mark.slow
def test_type_checker_rejects_unknown_literals(tmp_path: Path) -> None:
    for name, program in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(program)
    options = ["--follow-imports=silent", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    found, _, _ = api.run([*options, *map(str, sorted(tmp_path.glob("*.py")))])
    lines = [line for line in found.splitlines() if "error:" in line]
    assert [Path(line.split(":")[0]).stem for line in lines] == ["wrong"] * 5, found
    assert [int(line.split(":")[1]) for line in lines] == [*range(3, 8)], found
