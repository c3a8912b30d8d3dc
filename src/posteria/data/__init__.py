"""Data in: checked arrays, splits, standardising, tables, the named data sets, and mini-batches by key."""

from posteria.data.arrays import check_same_length, check_x, num_rows, rows
from posteria.data.batches import batch_indices, num_steps_per_epoch, take
from posteria.data.encode import Encoded, Encoder
from posteria.data.preparation import Preparation, Table, from_frame, read_csv
from posteria.data.row_files import source
from posteria.data.sets import Dataset, Listing, load, names
from posteria.data.sources import Source
from posteria.data.splits import train_test, uci_splits
from posteria.data.standardise import Standardiser
from posteria.data.table_file import read_frame
from posteria.data.table_plan import ColumnPlan, TablePlan, plan_table

__all__ = [
    "ColumnPlan",
    "Dataset",
    "Encoded",
    "Encoder",
    "Listing",
    "Preparation",
    "Source",
    "Standardiser",
    "Table",
    "TablePlan",
    "batch_indices",
    "check_same_length",
    "check_x",
    "from_frame",
    "load",
    "names",
    "num_rows",
    "num_steps_per_epoch",
    "plan_table",
    "read_csv",
    "read_frame",
    "rows",
    "source",
    "take",
    "train_test",
    "uci_splits",
]
