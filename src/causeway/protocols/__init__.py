"""The protocols: one package each, behind the kernel contract (``protocols.contract``)."""
