"""Protobuf messages of the deployed systems: the .proto files, and what ``make proto`` generates from them."""
