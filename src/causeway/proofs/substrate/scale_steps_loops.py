"""Kinds of steps of a SCALE program, what may be wrong with a row, and how the loops are told of columns.

Named as a file of loops though it has none: its numbers are compiled into them, which a change of it must undo.
"""

from __future__ import annotations

STEP_FIELDS = 5
"""Numbers of a step: its kind, its column (-1 for none), and up to three arguments."""

END = 0
"""The row ends here."""
FIXED = 1
"""So many bytes: width."""
STRING = 2
"""A compact length and that many bytes."""
COMPACT = 3
"""A compact integer: width of the number in bytes."""
ENUM = 4
"""A byte that says the variant: how many there are, where their starts stand in the jumps."""
JUMP = 5
"""Go on elsewhere: at which step."""
OPTION = 6
"""A byte 0 or 1 and, after 1, the value of the next step: the step behind it, what is wrong with another byte."""
LIST = 7
"""A compact count and that many elements: how many there may be, their level, the step behind the list."""
NEXT = 8
"""An element ends here: its level."""
KEY = 9
"""What was read of the element so far must be above that of the one before: whether it is a number (0), a byte string
(1) or so many bytes (2), then whether a tag stands before the number."""

READ = 0
"""Nothing is wrong with the row."""
TOO_LONG = 1
OVER_LIMIT = 2
ENDS = 3
NO_VARIANT = 4
NOT_SHORTEST = 5
NO_OPTION = 6
TOO_LARGE = 7
NOT_ASCENDING = 8
TRAILING = 9
ABSENT = 10
UNWANTED = 11
NO_TEXT = 12
SPARE_BITS = 13

SLOT_FIELDS = 6
"""Numbers of a column: level, width, number among those of variable length (-1), and where its values, its flags of
presence and its offsets start in the arrays of all columns."""
