"""Which kernel a network of parachains has: egress queues, or HRMP."""

from __future__ import annotations

from typing import Any

from causeway.protocols.icmp.hrmp.kernel import HrmpKernel
from causeway.protocols.icmp.kernel import IcmpKernel
from causeway.protocols.icmp.options import IcmpOptions


def kernel(options: IcmpOptions, **given: Any) -> IcmpKernel | HrmpKernel:
    """Return the kernel for the option ``channels``; ``given``: the other fields of either class."""
    return (HrmpKernel if options.channels == "hrmp" else IcmpKernel)(options=options, **given)
