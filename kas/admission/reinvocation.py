"""Reinvocation of mutating webhooks and policies after later changes of the object (``reinvocationPolicy: IfNeeded``).

Upstream: ``plugin/webhook/mutating/reinvocationcontext.go`` and its counterpart for policies.
"""

from __future__ import annotations

from collections.abc import Hashable

from kas.admission import Reinvocation
from kas.admission.versioned import Versioned


class Rounds:
    """What one plug-in remembers of a request between the first and the second, last, round of mutating plug-ins.

    The second round calls only those webhooks or policies that want reinvocation and were called in the first round, and only if the
    object changed after their call.
    """

    def __init__(self) -> None:
        self._asked: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._left: bytes | None = None

    def begin(self, reinvocation: Reinvocation, objects: Versioned) -> None:
        """Begin a round; changes by other plug-ins since the last round count, too."""
        if reinvocation.again and self._asked and self._left != objects.encoded()[0]:
            self.changed()

    def due(self, reinvocation: Reinvocation, who: Hashable) -> bool:
        """Return whether ``who`` must be called in this round."""
        return not reinvocation.again or who in self._again

    def asked(self, who: Hashable) -> None:
        """Record a call of ``who``, which wants reinvocation."""
        self._asked.add(who)

    def changed(self) -> None:
        """Record a change of the object: all recorded so far must be called again."""
        self._again |= self._asked
        self._asked = set()

    def end(self, reinvocation: Reinvocation, objects: Versioned) -> None:
        """End a round."""
        if self._asked and not reinvocation.again:
            self._left = objects.encoded()[0]
