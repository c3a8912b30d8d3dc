"""`python -m posteria` is `posteria`, also where the environment's scripts are not on the path."""

import os
import sys

# `-m` puts the current folder first on the path, and that may be anybody's. What Python itself has imported from there
# by now (a `posteria.py` in this one's place) nobody here can help: `python -P -m posteria` does.
here = os.path.realpath("")
if os.path.realpath(sys.path[0]) == here != os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
    del sys.path[0]

from posteria.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
