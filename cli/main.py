"""The program: finds the command, runs it, and turns whatever comes out into an exit code."""

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

from .command import LazyGroup
from .exits import BROKEN_PIPE, BUG, CANNOT_WRITE, INTERRUPTED, TERMINATED, Failure, failure
from .memory import return_large_buffers
from .output import Output

COMMANDS = {
    "extract": "extract",
    "pull": "pull",
    "push": "push",
    "apply": "apply",
    "baseline": "baseline",
    "list": "list",
    "show": "show",
    "compare": "compare",
    "analyze": "analyze",
    "combine": "combine",
    "retrain": "retrain",
    "report": "report",
    "tag": "tag",
    "annotate": "annotate",
    "rm": "rm",
    "restore": "restore",
    "verify": "verify",
    "export": "export",
    "import": "import_",
    "gc": "gc",
    "doctor": "doctor",
    "config": "config",
    "remote": "remote",
    "db": "db",
    "completion": "completion",
}
"""Every command, and the module that holds it."""


def _debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).debug = True


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"maskreg {maskreg.__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    example="""
    maskreg extract ./Qwen3-8B ./Qwen3-8B-opd --name qwen3-8b-opd
    maskreg push qwen3-8b-opd
    maskreg pull qwen3-8b-opd | maskreg apply
    """,
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
@click.option("--debug", is_flag=True, expose_value=False, callback=_debug, help="Show tracebacks.")
def cli() -> None:
    """Extract, share and apply the weight updates that post-training makes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; those of the process when absent.

    Returns:
        The exit code.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    _stand_in()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    return_large_buffers()
    output = Output(debug=os.environ.get("MASKREG_DEBUG", "") not in ("", "0"))
    status = 0
    try:
        status = _run(args, output)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = BROKEN_PIPE
    except OSError as error:
        # What is left in a buffer cannot be written, so the command has not done what it was asked for.
        status = status or _untold(error, output)
    _discard_output()
    return status


def _run(args: list[str], output: Output) -> int:
    try:
        result = cli.main(args, prog_name="maskreg", standalone_mode=False, obj=output)
    # The one place that catches everything: an error nobody expected becomes a file and exit code 70.
    except BaseException as error:  # noqa: BLE001, RUF100
        told = failure(error, output.ref)
        if isinstance(error, SystemExit) and told.exit not in (INTERRUPTED, TERMINATED):
            return told.exit
        return _tell(error, told, args, output)
    return result if isinstance(result, int) else 0


def _tell(error: BaseException, told: Failure, args: list[str], output: Output) -> int:
    try:
        if output.debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        elif told.exit == BUG:
            told = replace(told, hint=_report(error))
        elif told.hint.startswith("maskreg pull ") and "|" not in told.hint:
            told = replace(told, hint=_instead_of_pulling() or told.hint)
        output.failure(told.message, told.hint)
        # When the arguments could not be parsed, nobody has seen the option yet.
        if (output.json or "--json" in args) and not output.reported:
            output.document({"error": told.to_json()})
    except BrokenPipeError:
        raise
    except OSError:
        # Nowhere to say it; the exit code still does.
        return told.exit
    return told.exit


def _instead_of_pulling() -> str:
    from .places import settings

    # Settings that cannot be read must not hide what went wrong.
    with suppress(MaskregError, OSError):
        if not settings().remotes:
            return "extract it again, or add a remote: maskreg remote add NAME URL"
    return ""


def _report(error: BaseException) -> str:
    try:
        handle, path = tempfile.mkstemp(prefix="maskreg-trace-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write(f"maskreg {maskreg.__version__}, python {sys.version.split()[0]}, {sys.platform}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return "run it again with --debug, and report what it says"
    return f"report this with {path}"


def _stand_in() -> None:
    # A stream that was closed before the start is None: an empty one takes its place.
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def _untold(error: OSError, output: Output) -> int:
    with suppress(OSError):
        output.failure(f"the output could not be written: {error.strerror or error}")
    return CANNOT_WRITE


def _terminate(signum: int, frame: FrameType | None) -> None:
    # An exception, so that context managers clean up on the way out.
    raise SystemExit(TERMINATED)


def _discard_output() -> None:
    # What nobody takes any more: the interpreter's own flush at exit must not complain.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
