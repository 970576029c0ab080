"""A Python that has imported torch, transformers and the product already: commands and scripts start in a moment.

A server imports them once and forks for each of them. So each still has a process, an environment, a folder and streams
of its own. :func:`programs` starts the server, and puts programs of two names into a folder for the front of ``PATH``::

    maskreg extract A B  ->  {"words", "folder", "environment"} and its three streams
    python block1.py     ->  the same
    SIGINT, SIGTERM      ->  the number of the signal, as one byte
                         <-  the exit code, as text

When the program is killed, so is what runs for it.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STREAMS = (0, 1, 2)

_PROGRAM = """#!/bin/sh
{cold}exec {python} -IS {here} {socket} {name} "$@"
"""


@contextmanager
def programs(folder: Path) -> Iterator[Path]:
    """A folder that is to come first in ``PATH``, whose programs a server runs as long as this lasts.

    All processes that name the same folder share the server: the first one starts it, and ends it after all others.
    """
    folder.mkdir(exist_ok=True)
    path = folder / "socket"
    with (folder / "starting").open("w") as starting, (folder / "users").open("w") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        server = None if path.exists() else _started(folder, path)
        fcntl.flock(starting, fcntl.LOCK_UN)
        try:
            yield folder / "bin"
        finally:
            if server is not None:
                fcntl.flock(users, fcntl.LOCK_EX)
                path.unlink()
                server.kill()
                server.communicate()


def _started(folder: Path, path: Path) -> subprocess.Popen[str]:
    # Options of Python mean what they mean to a real one.
    names = {"maskreg": "", "python": f'case "$1" in -*) exec {sys.executable} "$@" ;; esac\n'}
    (folder / "bin").mkdir(exist_ok=True)
    for name, cold in names.items():
        program = folder / "bin" / name
        program.write_text(_PROGRAM.format(cold=cold, python=sys.executable, here=__file__, socket=path, name=name))
        program.chmod(0o755)
    # Without its folder on the path: a test's file can have the name of a package that transformers looks for.
    argv = [sys.executable, "-P", __file__, str(path)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server


def serve(path: str) -> None:
    """Import what takes long, then run what arrives at a socket, each in a process of its own."""
    import maskreg_cli
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor.experimental  # noqa: F401
    from transformers import AutoModelForCausalLM, Qwen3ForCausalLM  # noqa: F401
    from trl import SFTTrainer  # noqa: F401

    import maskreg

    for package in (maskreg_cli, maskreg):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(("maskreg.sync.verl", "maskreg.sync.vllm")):
                importlib.import_module(module.name)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        running = 0
        while True:
            connection, _ = server.accept()
            running += 1
            if os.fork() == 0:
                server.close()
                break
            connection.close()
            while running and os.waitpid(-1, os.WNOHANG)[0]:
                running -= 1
    _run(connection)


def _run(connection: socket.socket) -> None:
    import runpy

    from maskreg_cli.start import main

    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, len(_STREAMS))
    threading.Thread(target=_obey, args=(connection,), daemon=True).start()
    wanted = json.loads(data)
    for stream, number in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, closefd=False)  # noqa: SIM115
        for number, mode, buffering in zip(_STREAMS, "rww", (-1, -1, 1), strict=True)
    )
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = wanted["words"]
    code = 0
    # What a script raises ends this process, and so the connection.
    if sys.argv[0] == "maskreg":
        code = main()
    else:
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
    # To take thousands of modules apart would take longer than most commands.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())
    os._exit(0)


def _obey(connection: socket.socket) -> None:
    # The main thread can wait in a call that only a signal of its own interrupts.
    main = threading.main_thread().ident
    assert main is not None
    while signals := connection.recv(1):
        signal.pthread_kill(main, signals[0])
    os.kill(os.getpid(), signal.SIGKILL)


def hand_over(path: str, words: list[str]) -> int:
    """Have a command or a script run by the server.

    Returns:
        Its exit code; 1 if an exception or a signal ended it.
    """
    request = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
        socket.send_fds(connection, [json.dumps(request).encode()], _STREAMS)
        return int(connection.recv(16) or 1)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(hand_over(sys.argv[1], sys.argv[2:]))
    serve(sys.argv[1])
