"""The IBC oracle beyond the seed: rules that the kernel lacks or implements differently.

Calls that are not offered, evidence of forks and their end, validator sets that are names with powers (the kernel's are
those of Tendermint headers: ``test_light_client.py``), delays, slots that are written by themselves, time-outs by proof
of absence, connections that are closed or shut down. Time-outs, cleanups, forks and late receipts of both are in
``test_ibc_hazards.py``.
"""

from dataclasses import replace

import pytest

from tests.cli.test_spec_ibc import SECOND, Chains
from tests.spec import ibc


def timeout(chains: Chains) -> str:
    return ibc.IBCtimeout(chains["A"], "B", chains.proof("B", "A", "receipt", ibc.TAIL))


def cleanup(chains: Chains) -> str:
    return ibc.IBCcleanup(chains["B"], "A", chains.proof("A", "B", "send", ibc.HEAD))


# ----


def test_unavailable_calls_are_refused() -> None:
    chains = Chains()
    for one in (timeout, cleanup):
        with pytest.raises(ibc.CallNotOffered):
            one(chains)


# ----


def test_hazard_08_fork_evidence_and_fork_choice() -> None:
    chains = Chains(valid=lambda trust, header: True)
    chains.send()
    height = chains.show("A", "B")
    good = chains.headers["A", height]
    fork = replace(good, root=bytes(32))
    assert ibc.updateHeader(chains["B"], "A", fork, "watcher") == "Success"
    assert chains["B"].connections["A"].frozen
    proof = chains.proof("A", "B", "send", 0)
    with pytest.raises(ibc.ConnectionFrozen):
        ibc.IBCreceive(chains["B"], "A", proof)
    ibc.recover(chains["B"], "A", good)
    assert ibc.IBCreceive(chains["B"], "A", proof) == "Success"
    for again in (fork, chains.headers["A", height - 1]):
        with pytest.raises(ibc.InvalidHeader, match="below"):
            ibc.updateHeader(chains["B"], "A", again)
    with pytest.raises(ibc.InvalidHeader, match="below"):
        ibc.submitMisbehaviour(chains["B"], "A", good, fork)
    good = chains.commit("A")
    fork = replace(good, root=bytes(32))
    with pytest.raises(ibc.UnregisteredSender):
        ibc.submitMisbehaviour(chains["B"], "X", good, fork)
    for no_contradiction in ((good, good), (fork, chains.headers["A", height])):
        with pytest.raises(ibc.InvalidMisbehaviour):
            ibc.submitMisbehaviour(chains["B"], "A", *no_contradiction)
    for of_another in ((replace(good, chain_id="C"), fork), (good, replace(fork, chain_id="C"))):
        with pytest.raises(ibc.InvalidHeader):
            ibc.submitMisbehaviour(chains["B"], "A", *of_another)
    ibc.submitMisbehaviour(chains["B"], "A", good, fork)
    assert chains["B"].connections["A"].frozen


def test_header_times_lie_between_those_of_their_neighbours() -> None:
    chains = Chains(valid=lambda trust, header: True)
    heights = [chains.commit("A").height for _ in range(5)]
    second, fourth = (chains.headers["A", heights[at]] for at in (1, 3))
    assert ibc.updateHeader(chains["B"], "A", second) == "Success"
    assert ibc.updateHeader(chains["B"], "A", fourth) == "Success"
    third = chains.headers["A", heights[2]]
    for early in (second.time, second.time - 1):
        with pytest.raises(ibc.InvalidHeader, match="time"):
            ibc.updateHeader(chains["B"], "A", replace(third, time=early))
    before = len(chains["B"].log)
    late = replace(third, time=fourth.time)
    ibc.updateHeader(chains["B"], "A", late)
    assert [type(row) for row in chains["B"].log[before:]] == [ibc.Frozen]
    ibc.recover(chains["B"], "A", fourth)
    fifth = chains.headers["A", heights[4]]
    assert ibc.updateHeader(chains["B"], "A", fifth) == "Success"
    sixth = replace(chains.commit("A"), time=fifth.time)
    with pytest.raises(ibc.InvalidMisbehaviour):
        ibc.submitMisbehaviour(chains["B"], "A", fifth, sixth)
    ibc.submitMisbehaviour(chains["B"], "A", sixth, fifth)
    assert chains["B"].connections["A"].frozen


def test_zone_recovers_from_an_expired_client_by_a_chosen_header() -> None:
    chains = Chains(options=ibc.Options(unbonding=10 * SECOND, delay=3 * SECOND))
    chains.send()
    old = chains.show("A", "B")
    chains.commit("B", seconds=20)
    new = chains.commit("A", seconds=20)
    with pytest.raises(ibc.ClientExpired):
        ibc.updateHeader(chains["B"], "A", new)
    new = chains.commit("A")
    ibc.recover(chains["B"], "A", new)
    with pytest.raises(ibc.DelayNotElapsed):
        chains.receive(0)
    chains.commit("B", seconds=3)
    with pytest.raises(ibc.MissingHeader):
        chains.receive(0, height=old)
    assert chains.receive(0) == "Success"
    assert [row.remote_height for row in chains["B"].log if isinstance(row, ibc.Recovered)] == [new.height]
    chains.send(to="A", by="B")


def test_update_at_the_end_of_the_unbonding_period() -> None:
    for beyond, error in ((0, None), (1, ibc.ClientExpired)):
        chains = Chains(options=ibc.Options(unbonding=10 * SECOND))
        chains.send()
        height = chains.show("A", "B")
        chains["B"].time = chains.headers["A", height].time + 10 * SECOND + beyond
        if error is None:
            chains.send(to="A", by="B")
            assert chains.receive(0) == "Success"
            continue
        with pytest.raises(error):
            chains.send(to="A", by="B")
        with pytest.raises(error):
            chains.receive(0)


def validator_chains(*sets: tuple[dict[str, int], set[str]]) -> tuple[Chains, list[ibc.Header]]:
    """A chain R whose headers 1, 2, ... have these validator sets and signers; A trusts the first."""
    chains = Chains(valid=ibc.valid_by_validators)
    made = [
        ibc.signed_header(ibc.Header("R", height, height * SECOND, bytes(32)), validators, signers)
        for height, (validators, signers) in enumerate(sets, start=1)
    ]
    ibc.registerChain(chains["A"], "R", made[0])
    return chains, made


def outcome(chains: Chains, header: ibc.Header) -> str:
    try:
        return ibc.updateHeader(chains["A"], "R", header)
    except ibc.SpecError as error:
        return error.name


def test_update_of_the_same_set_needs_more_than_two_thirds() -> None:
    six = dict.fromkeys("abcdef", 1)
    chains, made = validator_chains((six, set(six)), (six, set("abcd")), (six, set("abcde")), (six, set("xyzvw")))
    assert [outcome(chains, header) for header in made[1:]] == ["InvalidHeader", "Success", "InvalidHeader"]
    assert outcome(chains, made[2]) == "Success"
    assert outcome(chains, replace(made[2], validators_hash=bytes(32))) == "InvalidHeader"


def test_hazard_23_skipping_too_far_needs_intermediate_headers() -> None:
    sets = [dict.fromkeys("abcdef"[i : i + 3], 1) for i in range(4)]
    chains, made = validator_chains(*[(one, set(one)) for one in sets])
    assert outcome(chains, made[3]) == "NeedIntermediateHeader"

    def submit(height: int) -> bool | None:
        return {"Success": True, "NeedIntermediateHeader": None}.get(outcome(chains, made[height - 1]), False)

    assert ibc.bisect(1, 4, submit) == [2, 3, 4]
    assert {height for height, _ in chains["A"].connections["R"].T} == {1, 2, 3, 4}


def test_hazard_24_validator_set_replaced_at_once() -> None:
    old, new = dict.fromkeys("abc", 1), dict.fromkeys("xyz", 1)
    chains, made = validator_chains((old, set(old)), (new, set(new)), (new, set("xyzab")))
    assert outcome(chains, made[1]) == "InvalidHeader"
    assert outcome(chains, made[2]) == "Success"


# ----


def test_slot_is_written_once() -> None:
    chains = Chains()
    chains.send(b"later")
    chains.send(b"later")
    chains.send(b"now")
    chains.show("A", "B")
    for i in range(3):
        chains.receive(i)
    ibc.IBCwrite(chains["B"], "A", 1, b"late", 0)
    ibc.IBCwrite(chains["B"], "A", 0, b"no", 16)
    for slot in (0, 2, 3):
        with pytest.raises(ibc.SlotNotOpen):
            ibc.IBCwrite(chains["B"], "A", slot, b"", 0)
    assert len([row for row in chains["B"].log if isinstance(row, ibc.Written)]) == 2
    chains.show("B", "A")
    assert [chains.receipt(i) for i in range(3)] == ["Success"] * 3
    assert chains["A"].app["outcomes"] == [("rollback", 0), ("commit", 1), ("commit", 2)]


def test_unordered_timeouts_are_proved_by_absence() -> None:
    with pytest.raises(ValueError, match="asynchronous"):
        ibc.Options(order="unordered", timeouts="on")
    chains = Chains(options=ibc.Options(order="unordered", timeouts="on", asynchronous="off"))
    limit = chains["B"].height
    for _ in range(3):
        chains.send(max_height=limit)
    chains.show("A", "B")
    chains.receive(1)
    chains.commit("B")
    chains.show("B", "A")

    def absent(i: int) -> str:
        return ibc.IBCtimeout(chains["A"], "B", chains.proof("B", "A", "receipt", i))

    with pytest.raises(ibc.ReceiptExists):
        absent(1)
    with pytest.raises(ibc.OnlyMessageProofs):
        ibc.IBCtimeout(chains["A"], "B", chains.proof("B", "A", "receipt", ibc.TAIL))
    with pytest.raises(ibc.InvalidProof):
        ibc.IBCtimeout(chains["A"], "B", replace(chains.proof("B", "A", "receipt", 1), value=None))
    assert [absent(2), absent(0)] == ["Success"] * 2
    with pytest.raises(ibc.TimeoutNotReached):
        absent(2)
    for i in (0, 2):
        with pytest.raises(ibc.TimeoutElapsed):
            chains.receive(i)
    assert chains.queue("B", "A", "receipt") == [0, 2], "of the packet that came late nothing is kept"
    assert chains.receipt(1) == "Success"
    assert chains["A"].app["escrow"] == 0 and chains.queue("A", "B", "send") == [3, 3]


# ----


def test_disconnect_and_shut_down() -> None:
    chains = Chains()
    chains.send()
    assert ibc.disconnect(chains["A"], "B") == 1
    with pytest.raises(ibc.ConnectionFrozen):
        chains.send()
    with pytest.raises(ibc.NotClosable):
        ibc.close(chains["A"], "B")
    chains.send(by="B", to="A")
    chains.show("B", "A")
    assert chains.receive(0, at="A", of="B") == "Success"
    assert chains.receipts_at("A", "B") == [ibc.Receipt(b"", 1)]
    chains.show("A", "B")
    assert [chains.receive(0), chains.receive(1)] == ["Success"] * 2
    assert chains["B"].connections["A"].disconnecting
    chains.show("B", "A")
    assert [chains.receipt(0), chains.receipt(1)] == ["Success"] * 2
    ibc.close(chains["A"], "B")
    with pytest.raises(ibc.InvalidHeader):
        ibc.updateHeader(chains["A"], "B", chains.commit("B"))
    ibc.shut_down(chains["B"], "A")
    assert chains.queue("B", "A", "send") == [1, 1]
    assert chains["B"].app["outcomes"] == [("rollback", 0)]
