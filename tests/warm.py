"""A Python that has imported torch and transformers already: scripts that need both start in a moment.

A server imports them once and forks for each script. So a script still has a process, an environment, a folder and an
output of its own, and imports everything else, maskreg included, by itself. Beside the server stands the program that
hands a script over; it is run in place of ``python``::

    python -IS tests/warm.py SOCKET script.py   ->  {"path", "folder", "environment"} and its three streams
                                                <-  the exit code, as text
"""

import json
import os
import socket
import sys
from pathlib import Path

_STREAMS = (0, 1, 2)


def serve(path: str) -> None:
    """Import what takes long, then run the scripts that arrive at a socket, each in a process of its own."""
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, Qwen3ForCausalLM, Trainer  # noqa: F401

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                break
            connection.close()
    _run(connection)


def _run(connection: socket.socket) -> None:
    import runpy

    data, streams, _, _ = socket.recv_fds(connection, 1 << 20, len(_STREAMS))
    script = json.loads(data)
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(code).encode())
        os._exit(0)
    connection.close()
    for stream, number in zip(streams, _STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(script["folder"])
    os.environ.clear()
    os.environ.update(script["environment"])
    sys.argv = [script["path"]]
    runpy.run_path(script["path"], run_name="__main__")


def hand_over(path: str, script: str) -> int:
    """Have a script run by the server.

    Returns:
        Its exit code; 1 if a signal ended it.
    """
    request = {"path": script, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], _STREAMS)
        code = int(connection.recv(16))
    return code if code >= 0 else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(hand_over(sys.argv[1], sys.argv[2]))
    serve(sys.argv[1])
