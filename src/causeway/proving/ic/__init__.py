"""Certificates out of lakes of subnets: headers and messages of streams, certified data (IC reference 2.9)."""
