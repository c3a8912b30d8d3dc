"""Every exception that Posteria raises on purpose. A message says what was got, what was wanted, and the fix.

PosteriaError
├── DataError        x or y cannot be used: non-finite, misshapen, empty, labels outside the classes
├── NetworkError     the network cannot be used, or does not fit the likelihood
├── SettingError     a hyper-parameter, prior, likelihood or temperature is out of range, or a capability is missing
│   └── CapabilityError  this likelihood or posterior has no such thing; `hasattr` says so too
├── DensityError     the log density is not finite where a method needs it to be
├── BudgetError      max_seconds ran out before anything was kept
├── TooLargeError    a matrix would not fit the machine's memory
└── StoreError       a folder is occupied, foreign, damaged, or belongs to other data or another network
    └── DiskError        a file or folder cannot be written: the disk is full, the place is not ours to write
"""

OUT_OF_MEMORY = "Out of memory"  # how XLA says it


class PosteriaError(Exception):
    """Base of all errors; `got`, `wanted` and `fix` are kept apart so that a CLI can print them its own way."""

    def __init__(self, got: str, wanted: str = "", fix: str = "") -> None:
        self.got, self.wanted, self.fix = got, wanted, fix
        message = got
        if wanted:
            message += f"; wanted {wanted}"
        if fix:
            message += f": {fix}"
        super().__init__(message)


class DataError(PosteriaError, ValueError):
    pass


class NetworkError(PosteriaError, ValueError):
    pass


class SettingError(PosteriaError, ValueError):
    pass


class CapabilityError(SettingError, AttributeError):
    pass


class DensityError(PosteriaError, FloatingPointError):
    pass


class StoreError(PosteriaError, OSError):
    pass


class DiskError(StoreError):
    pass


class TooLargeError(PosteriaError, MemoryError):
    pass


def described(obj: object) -> str:
    """For a message: what kind of thing it is."""
    return f"the class {obj.__name__}" if isinstance(obj, type) else f"an object of type {type(obj).__name__}"
