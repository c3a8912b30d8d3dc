"""Shift: data that are not like those of the fit. Corruptions of images and of tables, and attacks."""

from posteria.shift.attacks import attack
from posteria.shift.corruptions import COMMON, CORRUPTIONS, SEVERITIES, corrupt
from posteria.shift.table_shifts import TABLE_SHIFTS, shift_table

__all__ = ["COMMON", "CORRUPTIONS", "SEVERITIES", "TABLE_SHIFTS", "attack", "corrupt", "shift_table"]
