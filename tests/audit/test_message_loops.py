"""Elapsed times in compiled loops equal those of columns, for arbitrary clocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from causeway.audit.arrays import time_differences
from causeway.audit.message_loops import time_between

TIMES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 2]))


@given(TIMES, TIMES)
def test_elapsed_time_is_exact_or_the_nearest_number(one: int, other: int) -> None:
    delay, _ = time_differences(np.array([one]), np.array([other]))
    assert time_between(one, other) == delay[0] == max(-(2**63), min(2**63 - 1, other - one))
