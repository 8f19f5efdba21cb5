"""Incentives for gossip by probabilistic micropayments (ICMP reference 5.1, 5).

A node pays for a body with a *ticket*: a signed promise of a prize that is won with probability one in
``odds``, so the expected payment is the price of a body. ``ticket`` holds the ticket, its draw and the
accounts on the relay chain; ``trading`` the state machine of nodes (offers, requests, deliveries,
tickets). Neither does I/O.
"""
