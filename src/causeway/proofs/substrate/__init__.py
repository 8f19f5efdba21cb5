"""Substrate: the base-16 Patricia trie, storage proofs, storage keys and the hash chains of message queues."""
