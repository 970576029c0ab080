"""The entry point: runs a command and turns any exception into a message and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import click

import maskreg
from maskreg.errors import MaskregError

from .command import LazyGroup, turning_on
from .exits import BROKEN_PIPE, BUG, CANNOT_WRITE, INTERRUPTED, TERMINATED, Failure, failure
from .output import DeclinedError, Output

SECTIONS = {
    "Updates": ("extract", "apply", "retrain", "combine", "merge", "squash", "convert"),
    "Sharing": ("pull", "push", "follow", "replicas", "cache", "remote", "jobs"),
    "Evidence": ("show", "baseline", "compare", "analyze", "report"),
    "Registry": ("list", "log", "tag", "mv", "annotate", "rm", "restore", "verify", "key", "gc", "db"),
    "Service": ("serve", "login", "logout", "whoami", "token", "quota"),
    "Setup": ("doctor", "config", "completion"),
}
"""Every command, by heading in the help."""

MODULES = {
    "replicas": "follow:replicas",
    **{name: f"derive:{name}" for name in ("baseline", "combine", "squash")},
    **{name: f"login:{name}" for name in ("logout", "whoami", "token", "quota")},
    **{name: f"setup:{name}" for name in ("doctor", "config", "completion")},
    **{name: f"sharing:{name}" for name in ("pull", "push", "cache")},
    **{name: f"tag:{name}" for name in ("log", "mv", "annotate", "rm", "restore")},
    **{name: f"upkeep:{name}" for name in ("gc", "db")},
}
"""Commands that are not called ``command`` in a module of their own name."""

COMMANDS = [name for names in SECTIONS.values() for name in names]
"""Every command."""


@click.command(
    cls=LazyGroup,
    sections=SECTIONS,
    modules=MODULES,
    context_settings={"help_option_names": ["-h", "--help"]},
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd
    maskreg push qwen3-8b-opd
    maskreg pull qwen3-8b-opd | maskreg apply
    """,
)
@click.version_option(
    maskreg.__version__, "-V", "--version", message="%(prog)s %(version)s", help="Print the version and exit."
)
@click.option("--debug", is_flag=True, expose_value=False, callback=turning_on("debug"), help="Print tracebacks.")
def cli() -> None:
    """Extract, share and apply the weight updates that post-training makes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    elif args[:1] == ["version"]:
        args[0] = "--version"
    # NumPy's BLAS starts threads, which otherwise spin for .1 CPU seconds before they sleep: 2^26 ticks, now 2^16.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    output = Output(debug=os.environ.get("MASKREG_DEBUG", "") not in ("", "0"))
    status = 0
    try:
        try:
            if "_MASKREG_COMPLETE" in os.environ:
                cli.main(args, prog_name="maskreg")
            with cli.make_context("maskreg", list(args), obj=output) as context:
                cli.invoke(context)
        except click.exceptions.Exit as error:
            status = error.exit_code
        except BrokenPipeError:
            raise
        # The only place that catches everything: an unexpected error becomes a file and exit code 70.
        except BaseException as error:  # noqa: BLE001, RUF100
            described = failure(error, output.context)
            status = described.exit
            if not isinstance(error, SystemExit) or status in (INTERRUPTED, TERMINATED):
                _report(error, described, args, output)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = BROKEN_PIPE
    except OSError as error:
        # Data that is still buffered could not be written, so the command has failed after all.
        status = status or _report_unwritten(error, output)
    _discard_output()
    return status


def _report(error: BaseException, described: Failure, args: list[str], output: Output) -> None:
    try:
        if output.debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        elif described.exit == BUG and not isinstance(error, MaskregError):
            described = replace(described, hint=_save_traceback(error))
        if described.exit == INTERRUPTED and sys.stderr.isatty():
            # The terminal has echoed ^C, and the cursor stands behind it.
            click.echo(err=True)
        if isinstance(error, DeclinedError):
            output.note(described.message)
        else:
            output.failure(described.message, described.hint)
        # "in args": arguments that could not be parsed have set nothing.
        if (output.json or "--json" in args) and not output.reported:
            output.document({"error": described.to_json()})
    except BrokenPipeError:
        raise
    except OSError:
        pass  # no stream takes the message; the exit code still says it


def _save_traceback(error: BaseException) -> str:
    try:
        handle, path = tempfile.mkstemp(prefix="maskreg-trace-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write(f"maskreg {maskreg.__version__}, python {sys.version.split()[0]}, {sys.platform}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return "run it again with --debug, and report the traceback"
    return f"report this with {path}"


def _replace_closed_streams() -> None:
    # A stream that was closed before the process started is None, and printing to it would fail.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115


def _report_unwritten(error: OSError, output: Output) -> int:
    with suppress(OSError):
        output.failure(f"the output could not be written: {error.strerror or error}")
    return CANNOT_WRITE


def _terminate(signum: int, frame: FrameType | None) -> None:
    # An exception, so that context managers clean up on the way out.
    raise SystemExit(TERMINATED)


def _discard_output() -> None:
    # The interpreter flushes again at exit; unread output goes to the null device, or it would complain.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
