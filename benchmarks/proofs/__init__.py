"""What commitments and proofs cost, family by family, next to plain loops and other people's verifiers."""
