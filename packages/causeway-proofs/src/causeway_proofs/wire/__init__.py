"""Protobuf messages of the deployed systems: the .proto files and the code that ``make proto`` generates from them."""
