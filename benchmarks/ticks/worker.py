"""A network in a process of its own, which runs as many ticks as a line of its input says, and tells what they took.

``python -m benchmarks.ticks.worker SCENARIO LAKE``; the Causeway that is measured is the one that Python imports.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.machine import peaks, processor_seconds
from causeway.network.network import LakeNetwork


def main(scenario: str, lake: str) -> None:
    """Make the network, say ``ready``, and run until the input ends."""
    with LakeNetwork.from_scenario(scenario, lake=lake) as network:
        print(json.dumps({"ready": True}), flush=True)
        end = 0
        for line in sys.stdin:
            before = network.height
            end += int(line)
            used, begun = processor_seconds(), time.perf_counter()
            network.run(ticks=end)
            seconds, used = time.perf_counter() - begun, processor_seconds() - used
            told = {"seconds": seconds, "processor_seconds": used, "heights": network.height - before}
            print(json.dumps({**told, "peak_bytes": peaks()["python"]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
