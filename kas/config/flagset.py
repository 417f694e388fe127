"""Parsing of the command line as spf13/pflag does it, but to its end: all errors are reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.config.flags import BY_NAME, FLAGS, Flag
from kas.config.flagtypes import quote
from kas.meta.suggest import did_you_mean

_SHORT = {flag.short: flag for flag in FLAGS if flag.short}


class Parsed:
    """``values`` of the given flags by name, in order of first appearance, and the errors, one line each."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.errors: list[str] = []


def parse(args: Sequence[str]) -> Parsed:
    """Parse ``--name=value``, ``--name value``, ``--bool``, ``-v 4``, ``-v4``; names may contain underscores. Never raises."""
    out = Parsed()
    rest, extra = list(args), []
    while rest:
        arg = rest.pop(0)
        if arg == "--":
            extra += rest
            break
        if arg.startswith("--"):
            _long(out, arg, rest)
        elif arg.startswith("-") and arg != "-":
            _shorts(out, arg, rest)
        else:
            extra.append(arg)
    if extra:
        out.errors.append(f'"kas serve" does not take any arguments, got [{" ".join(map(quote, extra))}]')
    return out


def _long(out: Parsed, arg: str, rest: list[str]) -> None:
    name, sep, value = arg[2:].partition("=")
    if not name or name.startswith("-"):
        out.errors.append(f"bad flag syntax: {arg}")
        return
    flag = BY_NAME.get(name.replace("_", "-"))
    if flag is None:
        out.errors.append(f"unknown flag: --{name}{did_you_mean(name.replace('_', '-'), BY_NAME, '--')}")
        if not sep and rest and not rest[0].startswith("-"):
            rest.pop(0)  # most likely the unknown flag's value, so no further error
    elif sep:
        _set(out, flag, value)
    elif flag.kind.bare is not None:
        _set(out, flag, flag.kind.bare)
    elif rest:
        _set(out, flag, rest.pop(0))
    else:
        out.errors.append(f"flag needs an argument: --{name}")


def _shorts(out: Parsed, arg: str, rest: list[str]) -> None:
    """Parse ``-v4``, ``-v=4``, ``-v 4``; several letters are several flags, the last of which may take the rest as its value."""
    letters = arg[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        flag = _SHORT.get(letter)
        if flag is None:
            out.errors.append(f"unknown shorthand flag: {quote(letter).replace(chr(34), chr(39))} in {arg}")
            return
        if letters.startswith("="):
            _set(out, flag, letters[1:])
            return
        if flag.kind.bare is not None:
            _set(out, flag, flag.kind.bare)
            continue
        if letters:
            _set(out, flag, letters)
        elif rest:
            _set(out, flag, rest.pop(0))
        else:
            out.errors.append(f"flag needs an argument: '{letter}' in {arg}")
        return


def _set(out: Parsed, flag: Flag, text: str) -> None:
    try:
        out.values[flag.name] = flag.kind.read(text, out.values.get(flag.name))
    except ValueError as e:
        shown = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
        out.errors.append(f"invalid argument {quote(text)} for {quote(shown)} flag: {e}")
