"""``python -m strandline``: the command line."""

from strandline.interrupts import Interrupts

if __name__ == "__main__":
    Interrupts().install()  # before the other imports, which take up to a second
    from strandline.cli import main

    main()
