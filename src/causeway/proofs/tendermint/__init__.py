"""Tendermint headers, validator sets, and the rule by which a light client comes to trust a header."""
