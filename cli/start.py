"""The entry point of the ``maskreg`` command, which answers Ctrl-C from its first moment on.

Importing the rest takes a while, in which an interrupt would end in a traceback.
"""

import sys

_INTERRUPTED = 130
"""The exit code of exits.py, which is not imported yet."""


def main() -> int:
    """Run the command line with the arguments of the process; returns the exit code."""
    try:
        from .main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return _INTERRUPTED
