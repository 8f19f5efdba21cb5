"""What is particular to a served lake of subnets: the endpoint of its streams, and the client of other subnets."""
