"""Polkadot's egress queues in plain numbers, dicts and sets: the oracle.

It restates docs/reference/icmp.md step by step, the slow and obvious way, so that a reader can hold it beside the
text; section numbers ("3.4", "D-7", "X-3") are the reference's. It imports nothing of causeway, and only tests import
it. Where the reference is silent, the docstring beside the code says what was decided and why.

| file | sections |
|---|---|
| options, errors | 4.1; 3.10 |
| trie | 2.3, 2.4; the few words of SCALE that are needed |
| relay | 2.1's relay blocks as a tree; 2.2 |
| formulas | 2.1: E, Ingress, Total, Pending and their root forms |
| runtime | 3.1, 3.2, 3.3; D-3, D-12; 5.1 (2) |
| candidates | 3.4, 3.9 |
| network | parachains that build candidates, and authors that include them |
| events, history, guarantees | 1.1; G1 to G6 and G9 of 1.2 |
| node | 2.5, allowed of 3.8; 5.1 (1) |
| gossip, gossip_step, reconcile, wire | 3.5 to 3.9, X-1; 5.1 (3), (4); X-3 |
| gossip_network | nodes with links between them, latency, loss; who collects what |
| gossip_guarantees | G7, G8, and G4 of pools; L1, L2 |
| hrmp, hrmp_queues | X-6 |

Not restated: the algebra of sketches (5.1 (4)).
"""
