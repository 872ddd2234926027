"""`python -m millrace ...` is the command `millrace ...`."""

import os
import sys

from . import home


def main() -> None:
    """Becomes the command, with the arguments of this process."""
    program = os.path.join(home(), "bin", "millrace")
    os.execv(program, [program] + sys.argv[1:])


if __name__ == "__main__":
    main()
