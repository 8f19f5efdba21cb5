"""The kernel's runtime against the oracle on histories with forks, hostile receipts and censoring."""

from collections import Counter

import pytest

from tests.proofs.substrate.test_icmp_oracle import MODES
from tests.spec.icmp.errors import RUNTIME, VALIDATION
from tests.spec.icmp.events import Called, Consumed, Included, Refused
from tests.spec.icmp.guarantees import RUNTIME_CHECKS
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.support.icmp.icmp_both import Both
from tests.support.icmp.icmp_networks import plan_of, played


def _compare_histories(seeds: range, length: int, **more: str) -> Counter[str]:
    """Run histories and compare the states of kernel and oracle; return the coverage of the kernel's logs."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        upper, rule = MODES[seed % 4]
        options = Options(ingress_upper=upper, watermark_rule=rule, **more)  # type: ignore[arg-type]
        net, _ = played(Both(options), plan_of(seed, length))
        log = net.kernel.log
        if options.watermark_mode == "per_candidate":
            findings = [finding for check in RUNTIME_CHECKS for finding in check(Record(log, options))]
            assert findings == [], f"seed {seed}"
        seen.update(row.error for row in log if isinstance(row, Refused))
        seen.update(type(row).__name__ for row in log if isinstance(row, Included | Consumed))
        seen.update(row.call for row in log if isinstance(row, Called))
        seen["forks"] += len(net.rt.relay.leaves()) - 1
    return seen


def test_kernel_and_oracle_agree_after_every_block() -> None:
    seen = _compare_histories(range(7), 12)
    assert {"forks", "Included", "Consumed", "deregister", "register"} - set(seen) == set(), seen


def test_kernel_agrees_with_optional_rules() -> None:
    _compare_histories(range(20, 22), 10, watermark_mode="now_minus_1")
    _compare_histories(range(22, 24), 10, allow_empty_prefix="off")


@pytest.mark.slow
def test_every_rejection_occurs_in_some_history() -> None:
    seen = _compare_histories(range(24), 14)
    wanted = {*RUNTIME, *VALIDATION, "forks", "Included", "Consumed", "deregister", "register", "block", "unblock"}
    assert wanted - set(seen) == set(), seen
