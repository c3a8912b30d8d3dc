"""`python -m posteria` is `posteria`, also where the environment's scripts are not on the path."""

from posteria.cli import main

if __name__ == "__main__":
    main()
