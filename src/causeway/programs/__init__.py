"""Programs on chains: the API to write them, and the bundled ones."""

from causeway.programs.catalogue import PROGRAMS, find_program_class
from causeway.programs.scalar import BalanceOverflow, InsufficientFunds, Program, Reject
from causeway.programs.vector import Effects, VectorProgram

__all__ = [
    "PROGRAMS",
    "BalanceOverflow",
    "Effects",
    "InsufficientFunds",
    "Program",
    "Reject",
    "VectorProgram",
    "find_program_class",
]
