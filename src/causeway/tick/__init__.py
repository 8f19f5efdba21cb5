"""One tick of the network, bucket by bucket."""
