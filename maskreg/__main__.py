"""``python -m maskreg``: the command line, for an interpreter whose scripts are not on the path."""

import sys

from maskreg_cli.start import main

if __name__ == "__main__":
    sys.exit(main())
