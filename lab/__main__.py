"""`python -m lab`: the paper's tables."""

from lab.cli import main

if __name__ == "__main__":  # the queue's workers import this module too
    main()
