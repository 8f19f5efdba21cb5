"""The protocols: one wing each, all behind the contract of ``causeway.protocols.contract``."""
