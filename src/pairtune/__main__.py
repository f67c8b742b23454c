"""`python -m pairtune` is `pairtune`."""

from pairtune.cli import main

main()
