"""Headers of a series equal single headers."""

import pytest
from causeway_proofs.tendermint.building import SignedSeries, create_validators, make_header, sign_header
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.trust import HeaderUpdate, decode_header_update

from tests.support.common.tendermint_chain import START, key

MEMBERS = ({1: 10, 2: 10, 3: 10, 4: 10}, {1: 10, 2: 10, 3: 10, 5: 7}, {9: 1})


@pytest.mark.parametrize("chain_id", ["zone", "zone-7", "a" * 64])
@pytest.mark.parametrize("unheard", [(), (2,)])
def test_series_of_updates_equals_single_updates(chain_id: str, unheard: tuple[int, ...]) -> None:
    made = [create_validators({key(number): power for number, power in members.items()}) for members in MEMBERS]
    for before in range(3):
        (trusted, _), (own, keys), (following, _) = made[before], made[before - 1], made[before - 2]
        keys = {address: one for address, one in keys.items() if one not in [key(number) for number in unheard]}
        series = SignedSeries(chain_id, own, following, trusted, keys)
        for height, time in ((1, SECOND), (2, START), (127, START + 1), (128, 128 * SECOND), (2**62, 10**15 + 10**8)):
            root = bytes([height % 251]) * 32
            signed = sign_header(make_header(chain_id, height, time, root, own, following), own, keys)
            expected = HeaderUpdate.on(height - 1, trusted, signed, own)
            assert series.update(height, time, root) == expected.encode()
            assert decode_header_update(series.update(height, time, root)).signed_header == signed
