"""A row of the table of flags."""

from __future__ import annotations

from typing import Any

from kas.config.flagtypes import TYPES, FlagType
from kas.meta.records import NamedTuple


class Effect(NamedTuple):
    """What a flag does here. ``kind`` is "works", "no effect" (accepted, with a warning) or "one value" (any other is refused).

    ``why`` completes "--x has no effect: …", or says why there is one value. ``same`` are values that say what kas does anyway: they are
    taken in silence.
    """

    kind: str
    why: str = ""
    same: tuple[Any, ...] = ()


WORKS = Effect("works")


def no_effect(why: str, *same: Any) -> Effect:
    """Accept the flag with one warning; nothing depends on it here."""
    return Effect("no effect", why, same=same)


def one_value(why: str) -> Effect:
    """Refuse what asks for anything but what is so anyway."""
    return Effect("one value", why)


class Flag(NamedTuple):
    """``type`` is a name of ``flagtypes.TYPES``; ``default`` a value of it. ``upstream`` is kube-apiserver's default as its help prints
    it, where kas has another; ``own`` flags are unknown there. ``short`` is a one-letter name; ``shown`` what help says instead of
    an empty default."""

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
        """The name in ``Options``."""
        return self.name.replace("-", "_")

    @property
    def kind(self) -> FlagType:
        """How its values are read and shown."""
        return TYPES[self.type]

    @property
    def shown_default(self) -> str:
        """The default as help prints it; empty when there is nothing to say."""
        return self.shown or (self.kind.show(self.default) if self.default or isinstance(self.default, bool | int | float) else "")
