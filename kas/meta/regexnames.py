"""Translates names in Go's patterns to RE2: names of Unicode classes, of which RE2 knows fewer, and names of groups, of which it accepts
more.

Go accepts the names of categories and their aliases, and those of scripts, in any case, with blanks, hyphens and underscores between their
letters, and a few names of its own (``regexp/syntax``). RE2 accepts only the names in its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ALIASES = {
    "Other": "C", "Control": "Cc", "Cntrl": "Cc", "Format": "Cf", "Privateuse": "Co", "Surrogate": "Cs", "Letter": "L",
    "Lowercaseletter": "Ll", "Modifierletter": "Lm", "Otherletter": "Lo", "Titlecaseletter": "Lt", "Uppercaseletter": "Lu", "Mark": "M",
    "Combiningmark": "M", "Spacingmark": "Mc", "Enclosingmark": "Me", "Nonspacingmark": "Mn", "Number": "N", "Decimalnumber": "Nd",
    "Digit": "Nd", "Letternumber": "Nl", "Othernumber": "No", "Punctuation": "P", "Punct": "P", "Connectorpunctuation": "Pc",
    "Dashpunctuation": "Pd", "Closepunctuation": "Pe", "Finalpunctuation": "Pf", "Initialpunctuation": "Pi", "Otherpunctuation": "Po",
    "Openpunctuation": "Ps", "Symbol": "S", "Currencysymbol": "Sc", "Modifiersymbol": "Sk", "Mathsymbol": "Sm", "Othersymbol": "So",
    "Separator": "Z", "Lineseparator": "Zl", "Paragraphseparator": "Zp", "Spaceseparator": "Zs",
}  # fmt: skip
_ASSIGNED = r"\pL\pM\pN\pP\pS\pZ\pC"
# Names without a table in RE2: (contents of a class for the name, contents for its complement; None where a class cannot express it).
_CASED, _UNASSIGNED = (r"\p{Lu}\p{Ll}\p{Lt}", None), (None, _ASSIGNED)
_SETS: dict[str, tuple[str | None, str | None]] = {
    "Ascii": (r"\x00-\x7F", r"\x{80}-\x{10FFFF}"), "Lc": _CASED, "Casedletter": _CASED, "Assigned": (_ASSIGNED, None),
    "Cn": _UNASSIGNED, "Unassigned": _UNASSIGNED,
}  # fmt: skip

# Tokens outside and inside a character class: escapes, and the class delimiters.
_OUTSIDE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\[pP](?:\{(?P<long>[^}]*)\}|[^{])|\\.|\[\^?\]?|\(\?P?<(?P<group>[^>(]*)>", re.DOTALL)
_INSIDE = re.compile(r"\[:\^?[a-z]*:\]|\\[pP](?:\{(?P<long>[^}]*)\}|[^{])|\\.|\]", re.DOTALL)
_GROUP = re.compile(r"[A-Za-z0-9_]+")


class GroupError(ValueError):
    """A group with a name that Go refuses; ``str()`` is its beginning: "(?P<é>"."""


def for_re2(pattern: str) -> str:
    """Returns the pattern with the class names that RE2 knows; unknown names are kept. Raises GroupError."""
    if "\\p{" not in pattern and "\\P{" not in pattern and (pattern.isascii() or "<" not in pattern):
        return pattern  # ASCII group names are treated the same by both
    return "".join(_parts(pattern))


def _parts(pattern: str) -> Iterator[str]:
    at, inside = 0, False
    while (found := (_INSIDE if inside else _OUTSIDE).search(pattern, at)) is not None:
        yield pattern[at : found.start()]
        at, text = found.end(), found[0]
        if found["long"] is not None:
            text = _named(text, found["long"], inside)
        elif inside:
            inside = text != "]"
        elif text[0] == "[":
            inside = True
        elif text[0] == "(" and not _GROUP.fullmatch(found["group"]):
            raise GroupError(text)
        yield text
    yield pattern[at:]


def _named(text: str, name: str, inside: bool) -> str:
    """Translates the class ``text`` with the name ``name``. "^" before the name negates it, as \\P does."""
    positive = (text[1] == "p") is not name.startswith("^")
    canonical = re.sub("[-_ ]", "", name.removeprefix("^")).capitalize()
    if canonical in _SETS:
        same, other = _SETS[canonical] if positive else _SETS[canonical][::-1]
        if inside:
            return text if same is None else same
        return f"[^{other}]" if same is None else f"[{same}]"
    known = _ALIASES.get(canonical, canonical)
    if _TWO_WORDS.fullmatch(name) and known == canonical:
        return text  # RE2's own form of script names
    return f"\\{'p' if positive else 'P'}{{{known}}}" if known != name.removeprefix("^") and _KNOWN.fullmatch(known) else text


_TWO_WORDS = re.compile("(?:[A-Z][a-z]+_?){2,}")
# Categories, and scripts of one word.
_KNOWN = re.compile("[CLMNPSZ][a-z]?|[A-Z][a-z]{2,}")
