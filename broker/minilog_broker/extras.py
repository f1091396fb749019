"""What is installed with the extra `broker` alone, and the sentence for a command line that is there without it.

The plain package is a client and the Spark connector: an executor installs no web server. The command `minilog` is
installed with both, since a script of a package belongs to no extra. `pyproject.toml` has the same names, and
`tests/unit/test_repository.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

BROKER_EXTRA: Mapping[str, str] = {
    "cryptography": "cryptography",
    "grpc_health": "grpcio-health-checking",
    "jinja2": "jinja2",
    "jwt": "pyjwt",
    "msgspec": "msgspec",
    "prometheus_client": "prometheus-client",
    "rich": "rich",
    "starlette": "starlette",
    "structlog": "structlog",
    "typer": "typer",
    "uvicorn": "uvicorn",
}
"""By the name that is imported: the name that is installed."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to do about an import that failed; None where it is of no package of the extra."""
    package = BROKER_EXTRA.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return (
        f"{package} is not installed, which brokers and the command line need and clients do not: "
        "pip install 'pyspark-minilog[broker]'"
    )
