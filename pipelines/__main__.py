"""``python -m pipelines``: the command line."""

from pipelines.cli import main

if __name__ == "__main__":
    main()
