"""Who of the configured mutators is asked again when the object changed after it (``reinvocationPolicy: IfNeeded``).

Upstream: ``plugin/webhook/mutating/reinvocationcontext.go`` and its twin of policies.
"""

from __future__ import annotations

from collections.abc import Hashable

from kas.admission import Reinvocation
from kas.admission.versioned import Versioned


class Rounds:
    """What one plug-in remembers of a request from the first round of mutating plug-ins to the second, and last. In the second only those
    are asked that want to be and were asked in the first, and only if somebody changed the object after them."""

    def __init__(self) -> None:
        self._asked: set[Hashable] = set()
        self._again: set[Hashable] = set()
        self._left: bytes | None = None

    def begin(self, reinvocation: Reinvocation, objects: Versioned) -> None:
        """A round begins; what others changed since the last one counts, too."""
        if reinvocation.again and self._asked and self._left != objects.encoded()[0]:
            self.changed()

    def due(self, reinvocation: Reinvocation, who: Hashable) -> bool:
        """Whether ``who`` is to be asked in this round."""
        return not reinvocation.again or who in self._again

    def asked(self, who: Hashable) -> None:
        """``who`` was asked, and wants to be again."""
        self._asked.add(who)

    def changed(self) -> None:
        """The object is another now: all who were asked and want to be again have to see it."""
        self._again |= self._asked
        self._asked = set()

    def end(self, reinvocation: Reinvocation, objects: Versioned) -> None:
        """A round is over."""
        if self._asked and not reinvocation.again:
            self._left = objects.encoded()[0]
