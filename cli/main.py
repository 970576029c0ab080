"""The entry point: runs a command and turns any exception into a message and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import click

import maskreg
from maskreg.errors import MaskregError

from .command import LazyGroup
from .exits import BROKEN_PIPE, BUG, CANNOT_WRITE, INTERRUPTED, TERMINATED, Failure, failure
from .output import DeclinedError, Output

SECTIONS = {
    "Updates": {
        "extract": "extract",
        "apply": "apply",
        "retrain": "retrain",
        "combine": "combine",
        "merge": "merge",
        "squash": "squash",
        "convert": "convert",
    },
    "Sharing": {
        "pull": "pull",
        "push": "push",
        "follow": "follow",
        "cache": "cache",
        "remote": "remote",
        "jobs": "jobs",
        "export": "export",
        "import": "export:import_",
    },
    "Evidence": {
        "show": "show",
        "baseline": "baseline",
        "compare": "compare",
        "survey": "survey",
        "analyze": "analyze",
        "report": "report",
    },
    "Registry": {
        "list": "list",
        "log": "tag:log",
        "diff": "diff",
        "tag": "tag",
        "mv": "tag:mv",
        "annotate": "tag:annotate",
        "rm": "tag:rm",
        "restore": "tag:restore",
        "verify": "verify",
        "key": "key",
        "gc": "gc",
        "db": "db",
    },
    "Service": {
        "serve": "serve",
        "worker": "serve:worker",
        "login": "login",
        "logout": "login:logout",
        "whoami": "login:whoami",
        "token": "login:token",
    },
    "Setup": {
        "doctor": "doctor",
        "config": "config",
        "completion": "completion",
    },
}
"""Every command and its module, with its name there unless that is ``command``, by heading in the help."""

COMMANDS = [name for commands in SECTIONS.values() for name in commands]
"""Every command."""


def _debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).debug = True


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"maskreg {maskreg.__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd
    maskreg push qwen3-8b-opd
    maskreg pull qwen3-8b-opd | maskreg apply
    """,
)
@click.option(
    *("-V", "--version"),
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
@click.option("--debug", is_flag=True, expose_value=False, callback=_debug, help="Print tracebacks.")
def cli() -> None:
    """Extract, share and apply the weight updates that post-training makes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; None for the arguments of the process.

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
        status = _run(args, output)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = BROKEN_PIPE
    except OSError as error:
        # Data that is still buffered could not be written, so the command has failed after all.
        status = status or _report_unwritten(error, output)
    _discard_output()
    return status


def _run(args: list[str], output: Output) -> int:
    try:
        result = cli.main(args, prog_name="maskreg", standalone_mode=False, obj=output)
    # The only place that catches everything: an unexpected error becomes a file and exit code 70.
    except BaseException as error:  # noqa: BLE001, RUF100
        described = failure(error, output.context)
        if isinstance(error, SystemExit) and described.exit not in (INTERRUPTED, TERMINATED):
            return described.exit
        return _report(error, described, args, output)
    return result if isinstance(result, int) else 0


def _report(error: BaseException, described: Failure, args: list[str], output: Output) -> int:
    try:
        if output.debug:
            import traceback

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
        # No stream takes the message; the exit code still says it.
        return described.exit
    return described.exit


def _save_traceback(error: BaseException) -> str:
    import tempfile
    import traceback

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
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


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
