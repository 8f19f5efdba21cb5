"""What runs on chains: the API to write a program, and the programs that come with Causeway."""

from causeway.programs.catalogue import PROGRAMS, program_class
from causeway.programs.scalar import CyclesOverflow, InsufficientCycles, Program, Reject
from causeway.programs.vector import Effects, VectorProgram

__all__ = [
    "PROGRAMS",
    "CyclesOverflow",
    "Effects",
    "InsufficientCycles",
    "Program",
    "Reject",
    "VectorProgram",
    "program_class",
]
