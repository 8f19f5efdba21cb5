"""HRMP (ICMP reference X-6): messages between parachains in channels, whose contents the relay chain's state holds."""
