"""The relay chain and its parachains, common to ICMP and HRMP."""
