"""Cross-domain messaging in plain numbers, dicts and sets: the oracle.

It restates docs/reference/xdm.md step by step, the slow and obvious way, so that a reader can hold it beside the
text; section numbers ("3.4", "D-7", "X-3") are the reference's. It imports nothing of causeway, and only tests import
it. Where the reference is silent, the docstring beside the code says what was decided and why.

| file | sections |
|---|---|
| options, errors | 2.7, 4.1; 3.11 |
| scale, values, keys | 2.1 to 2.4 |
| mmr, trie | 2.4, and the state trie of ICMP reference 2.3 |
| state | 2.2, 2.5; the books of X-3 |
| channels | 3.1, 3.2, 3.3, 3.7, 3.8; X-1, X-2 |
| proofs | 3.4 steps 1, 6, 7; D-6, D-7 |
| relay | 3.4, 3.5, 3.6; D-3, D-4, D-9 |
| endpoints | X-3 transporter, and one that answers at once |
| programs | calls between programs, answered at once or later (a decision) |
| consensus | receipts, challenge period, fraud proofs |
| relayers | 3.10, X-5 |
| network | blocks, pools, gossip, forks of all chains |
| events, guarantees | 1.1; 1.2 |
"""
