"""Certificates from lakes of subnets: streams and certified data (IC reference 2.9)."""
