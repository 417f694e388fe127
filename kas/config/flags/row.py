"""The rows of the table of flags."""

from __future__ import annotations

from typing import Any

from kas.config.flagtypes import TYPES, FlagType
from kas.meta.records import NamedTuple


class Effect(NamedTuple):
    """What a flag does here. ``kind`` is "works", "no effect" (accepted, with a warning) or "one value" (any other is refused).

    ``why`` completes "--x has no effect: …", or says why there is only one value. ``same`` are values that match what kas does anyway: they
    are accepted without a warning.
    """

    kind: str
    why: str = ""
    same: tuple[Any, ...] = ()


WORKS = Effect("works")


def no_effect(why: str, *same: Any) -> Effect:
    """Accept the flag with a warning; nothing depends on it here."""
    return Effect("no effect", why, same=same)


def one_value(why: str) -> Effect:
    """Refuse any value other than the one that always applies."""
    return Effect("one value", why)


class Flag(NamedTuple):
    """A flag. ``type`` is a name in ``flagtypes.TYPES``; ``default`` is a value of that type.

    ``upstream`` is kube-apiserver's default as its help prints it, if it differs; ``own`` flags do not exist there. ``short`` is a
    one-letter name; ``shown`` is what help prints instead of an empty default.
    """

    name: str
    type: str
    default: Any
    text: str
    effect: Effect = WORKS
    upstream: str | None = None
    short: str = ""
    shown: str = ""
    own: bool = False

    @property
    def attribute(self) -> str:
        """The flag's attribute name in ``Options``."""
        return self.name.replace("-", "_")

    @property
    def kind(self) -> FlagType:
        """How its values are parsed and printed."""
        return TYPES[self.type]

    @property
    def shown_default(self) -> str:
        """The default as help prints it; empty if there is nothing to print."""
        return self.shown or (self.kind.show(self.default) if self.default or isinstance(self.default, bool | int | float) else "")
