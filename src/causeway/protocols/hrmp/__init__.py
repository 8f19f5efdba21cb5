"""HRMP: message channels of parachains over the relay chain."""
