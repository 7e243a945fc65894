"""`make faults`: inject faults of every kind, and print what survived and what was lost."""

import sys

from faults.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
