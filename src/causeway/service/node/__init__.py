"""The node that makes the blocks of a served lake."""
