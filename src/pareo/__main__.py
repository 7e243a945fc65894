"""The command `pareo`, which is `python -m pareo` too."""


def main() -> None:
    """Run the command line."""
    from pareo.cli import main as run  # processes that are started import this module, too

    run()


if __name__ == "__main__":
    main()
