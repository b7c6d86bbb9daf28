"""What `close` ends also ends with a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """A context manager that closes itself."""

    def close(self) -> None:
        """Ends what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()
