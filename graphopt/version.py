"""The package version, without importing the package."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("graphopt")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0+unknown"
