"""What this broker says of itself to others."""

from importlib.metadata import PackageNotFoundError, version

try:
    CLIENT_VERSION = version("pyspark-minilog")
except PackageNotFoundError:  # run from a source tree that was not installed
    CLIENT_VERSION = "0.0.0+source"


def say_version() -> None:
    """One line on stdout."""
    print(f"minilog {CLIENT_VERSION}")
