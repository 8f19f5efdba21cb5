"""Measured figures of real inter-chain traffic, which the generator is calibrated to.

Source: 161,478 IBC packets sent from cosmoshub-4 in 634,583 blocks, 2024-10-06 to 2024-12-14 (block time 5.9 s),
collected in the repository yanagihalab/analyse_Osmosis (commit e230ee34590d49577969199dc727fe76336cc761), and the 857
channels of the Cosmos Chain Registry (commit 627bbab9c8e56fa1c4581f85f40d6d028e1c26e8, CC BY 4.0, "Cosmos Chain
Registry contributors").
"""

from __future__ import annotations

BLOCKS = 634_583
"""Blocks observed, empty ones included."""

PACKETS = 161_478
"""Packets sent in them."""

PACKETS_PER_BLOCK = 0.254
"""Mean count of packets in a block."""

VARIANCE_TO_MEAN = {1: 1.11, 10: 1.85, 100: 8.7, 1000: 59.8}
"""Variance divided by mean of the count of packets in so many blocks: Poisson from block to block, the rate drifts."""

CHANNELS = 55
"""Channels that sent at least one packet."""

CHANNEL_SHARES = (0.654, 0.123, 0.067, 0.022, 0.020, 0.0113, 0.0113, 0.0101, 0.0100, 0.0090)
"""Shares of the ten busiest channels."""

TOP_1_SHARE = 0.654
TOP_5_SHARE = 0.885
TOP_10_SHARE = 0.937

TAIL_RATIO = 0.874
"""Each channel after the tenth has so much of the share of the one before: then the 45 others sum to the 6.3 % that
are left. The tail falls faster than a Zipf law, as measured."""

BURST_MESSAGES = 51
"""Packets of one channel in one block: the largest burst, and the only block with 20 packets or more."""

BLOCKS_PER_BURST = BLOCKS
"""One such burst in all blocks observed."""

CHANNEL_ENDS_OF_BUSIEST_CHAINS = (182, 81, 61)
"""Registered channels of osmosis, cosmoshub and noble, the three chains with most."""

DEGREE_ZIPF = 1.0
"""Exponent of the Zipf law through those three: 182, 91, 61."""

DRIFT = ((3, 0.05), (40, 0.03), (1_500, 0.14), (14_570, 0.115))
"""The drift of the rate as independent parts: (time scale in blocks, variance relative to the mean squared). 14,570
blocks are a day. Fitted to ``VARIANCE_TO_MEAN``: the relative variance of the mean rate over w blocks is (ratio(w) -
1 - burst) / (w * PACKETS_PER_BLOCK), with 0.016 for the burst: 0.37, 0.33, 0.30, 0.23 for 1, 10, 100, 1,000."""

ANSWER_DELAY_BLOCKS = {0.5: 2, 0.9: 4, 0.99: 6, 0.999: 30}
"""Quantiles of the blocks from a packet to its acknowledgement (mean 3.09, least 2, most 12,057)."""

ANSWER_DELAY_SHARES = {2: 0.517, 3: 0.367, 4: 0.087, 5: 0.019}
"""Share of the packets whose acknowledgement came that many blocks later."""

SLOW_CARRIER_SKIP = 0.275
"""``transport.skip`` that comes nearest to those delays when a tick is a block: a call takes two ticks, and one more
for every carrier that skips its turn, so k ticks have the share (k - 1) (1 - skip)^2 skip^(k - 2). The least sum of
squares over the four shares is at 0.275: 0.526, 0.289, 0.119, 0.044."""

UNANSWERED_SHARE = 0.00437
"""Packets whose acknowledgement was not seen."""
