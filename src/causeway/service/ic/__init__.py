"""Subnet part of a served lake: stream endpoints, and the client of remote subnets."""
