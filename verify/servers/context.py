"""``with`` for what can be started and closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Running(ABC):
    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc: object) -> None:
        self.close()
