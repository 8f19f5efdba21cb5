"""The relay process between served lakes."""
