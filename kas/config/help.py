"""``kas serve --help``."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator

from kas.config.flags import SECTIONS, Flag

NARROWEST, WIDEST, USUAL = 40, 120, 80  # columns
_INDENT = " " * 8


def columns() -> int:
    """Return the width for output, within limits: $COLUMNS, or that of the terminal.

    If the output is not a terminal, as in a pipe to a pager, standard error's or input's is used.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given):
        return min(max(int(given), NARROWEST), WIDEST)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        try:
            found = os.get_terminal_size(stream.fileno()).columns if stream is not None else 0
        except (OSError, ValueError):  # not a terminal, or closed
            continue
        if found:
            return min(max(found, NARROWEST), WIDEST)
    return USUAL


def usage(width: int) -> str:
    """Return the help text in lines of ``width`` columns, longer only for long words.

    It lists every flag by sections: name, type, purpose, default, and its effect here if it differs.
    """
    return "\n".join(_lines(width)) + "\n"


def _lines(width: int) -> Iterator[str]:
    yield "Serve the Kubernetes API."
    yield ""
    yield from _wrapped("Usage: kas serve [--flag=value | --flag value] ...", width)
    yield ""
    yield from _wrapped(
        "Lists are comma separated or repeated. Durations are written like 1h30m or 500ms, sizes as Kubernetes quantities (512Mi, 64Gi).",
        width,
    )
    for section, flags in SECTIONS.items():
        yield ""
        yield "Flags kube-apiserver does not have:" if section == "kas" else f"{section.capitalize()} flags:"
        for flag in flags:
            yield ""
            yield from _flag(flag, width)


def _flag(flag: Flag, width: int) -> Iterator[str]:
    name = f"  -{flag.short}, --{flag.name}" if flag.short else f"      --{flag.name}"
    kind = "" if flag.type == "bool" else f" {flag.kind.name}"
    yield name + kind
    text = flag.text
    if flag.shown_default:
        text += f" (default {flag.shown_default})" if not flag.shown else f" (default: {flag.shown})"
    yield from _wrapped(text, width, _INDENT)
    if flag.effect.kind != "works":
        yield from _wrapped(f"{flag.effect.kind.capitalize()}: {flag.effect.why}.", width, _INDENT)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text without splitting names of flags and values, which are searched for and copied."""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
