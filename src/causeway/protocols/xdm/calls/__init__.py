"""The calls of the messaging pallet, one file each."""
