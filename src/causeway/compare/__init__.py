"""The same traffic through several protocols, side by side: what it took, what it cost, what each guarantees, and what
faults do to each."""
