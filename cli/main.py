"""The program: finds the command, runs it, and turns whatever comes out into an exit code."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from types import FrameType

import click

import maskreg

from .command import LazyGroup
from .exits import BROKEN_PIPE, BUG, INTERRUPTED, TERMINATED, Failure, failure
from .output import Output

COMMANDS = {
    "extract": "extract",
    "pull": "pull",
    "push": "push",
    "apply": "apply",
    "list": "list",
    "show": "show",
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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    output = Output(debug=os.environ.get("MASKREG_DEBUG", "") not in ("", "0"))
    try:
        status = _run(args, output)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        status = BROKEN_PIPE
    if status == BROKEN_PIPE:
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
    if output.debug:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    elif told.exit == BUG:
        told = Failure(told.code, told.message, f"report this with {_trace_file(error)}", BUG)
    output.failure(told.message, told.hint)
    # When the arguments could not be parsed, nobody has seen the option yet.
    if (output.json or "--json" in args) and not output.reported:
        output.document({"error": told.to_json()})
    return told.exit


def _trace_file(error: BaseException) -> str:
    handle, path = tempfile.mkstemp(prefix="maskreg-trace-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        file.write(f"maskreg {maskreg.__version__}, python {sys.version.split()[0]}, {sys.platform}\n")
        file.write("".join(traceback.format_exception(error)))
    return path


def _terminate(signum: int, frame: FrameType | None) -> None:
    # An exception, so that context managers clean up on the way out.
    raise SystemExit(TERMINATED)


def _discard_output() -> None:
    # Nobody reads any more: the interpreter's own flush at exit must not complain.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
