"""``kas serve --help``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kas.config.flags import SECTIONS, Flag

WIDTH = 120
_INDENT = " " * 8


def usage() -> str:
    """Every flag by sections: name, type, what it is for, its default, and what it does here where that is less."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "Serve the Kubernetes API."
    yield ""
    yield "usage: kas serve [--flag=value | --flag value] ..."
    yield ""
    yield "Lists are comma separated or repeated. Durations are written like 1h30m or 500ms, sizes as Kubernetes quantities (512Mi, 64Gi)."
    for section, flags in SECTIONS.items():
        yield ""
        yield "Flags kube-apiserver does not have:" if section == "kas" else f"{section.capitalize()} flags:"
        for flag in flags:
            yield ""
            yield from _flag(flag)


def _flag(flag: Flag) -> Iterator[str]:
    name = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
    kind = "" if flag.type == "bool" else f" {flag.kind.name}"
    yield name + kind
    text = flag.text
    if flag.shown_default:
        text += f" (default {flag.shown_default})" if not flag.shown else f" (default: {flag.shown})"
    yield from textwrap.wrap(text, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    if flag.effect.kind == "no effect":
        yield from textwrap.wrap(f"No effect: {flag.effect.why}.", WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
