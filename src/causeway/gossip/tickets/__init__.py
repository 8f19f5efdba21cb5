"""Incentives for gossip by probabilistic micropayments (ICMP reference 5.1, 5).

A node that receives a body pays the peer that delivered it with a *ticket*: a signed promise of a prize that is won
with a probability of one in ``odds``, so that the expected payment is the price of a body. ``ticket`` has the ticket
and its draw, ``trading`` the state machine of nodes (offers, requests, deliveries, tickets), ``settlement`` the
accounts on the relay chain. None of them does I/O.
"""
