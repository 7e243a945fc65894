"""`python -m pareo` is the command `pareo`."""

from pareo.cli import main

if __name__ == "__main__":
    main()
