"""Idempotency keys of pushes."""

from __future__ import annotations

import itertools
import os


class Keys:
    """Keys that are never used twice, by any thread or process."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            # A forked process would go on with the same keys, and its jobs would be taken for repeated pushes.
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._prefix = os.urandom(12).hex() + "-"
        self._numbers = itertools.count(1)

    def fresh(self) -> str:
        # `next` of a counter is atomic.
        return self._prefix + str(next(self._numbers))


fresh = Keys().fresh
