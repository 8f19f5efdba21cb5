"""Internet Computer message routing: subnets, canisters, certified streams."""
