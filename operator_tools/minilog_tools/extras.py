"""The packages of the extra `broker`, and the error sentence for an installation without them.

The plain package is a client and the Spark connector: an executor installs no web server. The command `minilog` comes
with both, since a script of a package belongs to no extra. `pyproject.toml` has the same names, and
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
"""The name to install, by the name to import."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The sentence for a failed import, None where the import is of no package of the extra."""
    package = BROKER_EXTRA.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return (
        f"{package} is not installed: brokers and the command line need it, and clients do not. Install it: "
        "pip install 'pyspark-minilog[broker]'"
    )
