"""MLflow's model registry with the same names: filled by rows, started from an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg

from scripts.bench.service.filling import TAGS, cards, name_of


def fill(mlflow: Path, url: str, count: int) -> None:
    """Fill MLflow's tables: a registered model per name, a version per tag, with our cards as its tags.

    Args:
        mlflow: its program.
        url: of an empty PostgreSQL database, as libpq has it.
        count: how many versions.
    """
    subprocess.run([mlflow, "db", "upgrade", url], check=True, capture_output=True)
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        names = "COPY registered_models (name, creation_time, last_updated_time, description) FROM STDIN"
        with cursor.copy(names) as copy:
            for number in range(0, count, TAGS):
                copy.write_row((name_of(number), number, number, ""))
        columns = "name, version, creation_time, last_updated_time, description, current_stage, source, status"
        with cursor.copy(f"COPY model_versions ({columns}) FROM STDIN".encode()) as copy:
            for number, card in enumerate(cards(count)):
                about = card.description
                copy.write_row(
                    (name_of(number), number % TAGS + 1, number, number, about, "None", "s3://bucket/run", "READY")
                )
        with cursor.copy("COPY model_version_tags (key, value, name, version) FROM STDIN") as copy:
            for number, card in enumerate(cards(count)):
                for key in ("family", "method", "license"):
                    copy.write_row((key, getattr(card, key), name_of(number), number % TAGS + 1))
        with cursor.copy("COPY registered_model_aliases (alias, version, name) FROM STDIN") as copy:
            for number in range(0, count, TAGS):
                copy.write_row(("champion", 1, name_of(number)))
    settle(url)


def settle(url: str) -> None:
    """Do at once what PostgreSQL does by itself some time after many rows were written."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


def start(mlflow: Path, url: str, port: int, folder: Path, workers: int) -> subprocess.Popen[bytes]:
    """Start MLflow's server."""
    command = [str(mlflow), "server", "--backend-store-uri", url, "--port", str(port), "--workers", str(workers)]
    command += ["--default-artifact-root", str(folder / "mlflow-artifacts"), "--no-serve-artifacts"]
    with (folder / "mlflow.log").open("wb") as log:
        own = {**os.environ, "MLFLOW_TRACKING_URI": "", "MLFLOW_DISABLE_TELEMETRY": "true"}
        return subprocess.Popen(command, stdout=log, stderr=log, env=own, cwd=folder, start_new_session=True)
