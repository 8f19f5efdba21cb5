"""The consensus chain: blocks, receipts, bundles and storage commitments."""
