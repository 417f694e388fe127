"""Syntax errors of JSON paths in the words of client-go's parser; ``jsonpath`` evaluates the paths.

The parser reads ``{path}``: text after a closing brace is literal, up to the next opening brace.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kas.apiextensions.jsonpath import PathError

_ENDS = r".,\[\]$@{} \t\r\n"
_NAMED = rf"(?:\\.|[^\\{_ENDS}])*\\?"
_FIELD, _IDENTIFIER = re.compile(_NAMED, re.DOTALL), re.compile(rf"[^{_ENDS}]*")
_FIELDS = re.compile(rf"(?:\.(?!\.){_NAMED})+", re.DOTALL)  # the form of most paths
_NUMBER = re.compile(r"[+-]?[\d.]*")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_ARRAY = re.compile(r"\[([^\]\n]*)\]")
_NAME = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)[!<>=]+(.+)", re.DOTALL)
_QUOTED = {q: re.compile(rf"{q}(?:[^{q}\n]*\\{q})*[^{q}\n]*{q}") for q in "'\""}
_ESCAPED = r"[abfnrtv\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}"
_UNQUOTED = {q: re.compile(rf"(?:[^\\{q}]|\\(?:{q}|{_ESCAPED}))*") for q in "'\""}
_MOST = 1 << 63


def problem(path: str) -> str:
    """Return the reason why ``path`` cannot be parsed, or "" if it can."""
    try:
        _text("{" + path + "}")
    except PathError as why:
        return str(why)
    return ""


def _text(text: str) -> None:
    """Check a text with actions. Filters nest no deeper than there are kinds of quotes to hide a parenthesis in."""
    at = 0
    while (at := text.find("{", at)) >= 0:
        at = _action(text, at + 1)


def _action(text: str, at: int) -> int:
    """Check from after an opening brace; return the position after the closing one."""
    descended = False
    while not text.startswith("}", at):
        if text.startswith("..", at):
            if descended:
                raise PathError("invalid multiple recursive descent")
            at, descended = at + 2, True
            if not _is_word(text[at : at + 1]):
                continue
            at = _end(_FIELD, text, at)
        elif text.startswith("[?(", at):
            at = _filter(text, at + 3)
        elif text[at : at + 1] in ("", "\r", "\n"):
            raise PathError("unclosed action")
        elif text[at] in " @$":
            at += 1
            continue  # not a step
        elif read := _READERS.get(text[at]):
            at = read(text, at)
        elif text[at].isdecimal():
            at = _number(text, at)
        elif _is_word(text[at]):
            at = _end(_IDENTIFIER, text, at)
        else:
            shown = f" '{text[at]}'" if text[at].isprintable() else ""
            raise PathError(f"unrecognized character in action: U+{ord(text[at]):04X}{shown}")
        descended = False
    return at + 1


def _is_word(c: str) -> bool:
    return c == "_" or c.isalpha() or c.isdecimal()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _field(text: str, at: int) -> int:
    return _end(_FIELDS, text, at)


def _number(text: str, at: int) -> int:
    end = _end(_NUMBER, text, at)
    if not _DECIMAL.fullmatch(text, at, end) or abs(float(text[at:end])) == float("inf"):
        raise PathError(f"cannot parse number {text[at:end]}")
    return end


def _array(text: str, at: int) -> int:
    found = _ARRAY.match(text, at)
    if not found:
        raise PathError("unterminated array")
    inner, parts = found[1], found[1].split(",")
    if len(parts) > 1:
        for part in parts:
            _text("{[" + part.strip(" ") + "]}")
    elif name := _NAME.fullmatch(inner):
        _text("{." + name[1] + "}")
    elif inner != "*":
        bounds = _SLICE.fullmatch(inner)
        if not bounds:
            raise PathError(f"invalid array index {inner}")
        for bound in bounds.groups():
            written = (bound or "").removeprefix(":")
            digits = written.removeprefix("-").lstrip("0")
            if written == "-" or len(digits) > 19 or int(digits or 0) >= _MOST + (written[:1] == "-"):
                raise PathError(f"array index {written} is not a number")
    return found.end()


def _filter(text: str, at: int) -> int:
    """Check a filter. Only the first pair of quotes can contain its closing parenthesis; later quotes do not count."""
    start, quote, closed = at, "", False
    while True:
        c = text[at : at + 1]
        at += 1
        if c in ("", "\n"):
            raise PathError("unterminated filter")
        if c in "'\"":
            closed = closed or (c == quote and text[at - 2] != "\\")
            quote = quote or c
        elif c == ")" and bool(quote) == closed:
            break
    if text[at : at + 1] != "]":
        raise PathError("unclosed array expect ]")
    inner = text[start : at - 1]
    compared = _COMPARISON.fullmatch(inner)
    for part in compared.groups() if compared else (inner,):
        _text("{" + part + "}")
    return at + 1


def _quoted(text: str, at: int) -> int:
    quote = text[at]
    found = _QUOTED[quote].match(text, at)
    if not found:
        raise PathError("unterminated quoted string")
    if not _UNQUOTED[quote].fullmatch(found[0][1:-1]):
        raise PathError(f"unquote string {found[0]} error invalid syntax")
    return found.end()


_READERS: dict[str, Callable[[str, int], int]] = {
    "[": _array,
    "'": _quoted,
    '"': _quoted,
    ".": _field,
    "+": _number,
    "-": _number,
}
