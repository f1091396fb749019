"""The version of this installation, as brokers and the command line report it."""

from importlib.metadata import PackageNotFoundError, version

try:
    CLIENT_VERSION = version("pyspark-minilog")
except PackageNotFoundError:  # run from a source tree that was not installed
    CLIENT_VERSION = "0.0.0+source"


def say_version() -> None:
    """Print the version in one line on stdout."""
    print(f"minilog {CLIENT_VERSION}")
