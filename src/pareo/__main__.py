"""The command `pareo`, which is `python -m pareo` too."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from pareo.cli import main as run  # processes that are started import this module, too

        run()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
