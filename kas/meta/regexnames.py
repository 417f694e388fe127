"""Names in Go's patterns: those of Unicode classes, of which RE2 knows fewer, and those of groups, of which it takes more.

Go takes the names of categories and their aliases, and those of scripts, whatever their case, with blanks, hyphens and underscores between
their letters, and a few of its own (``regexp/syntax``). RE2 takes the names of the tables alone.
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
# What has no table in RE2: (what a class holds for the name, what it holds for all else; None where no class can say it).
_CASED, _UNASSIGNED = (r"\p{Lu}\p{Ll}\p{Lt}", None), (None, _ASSIGNED)
_SETS: dict[str, tuple[str | None, str | None]] = {
    "Ascii": (r"\x00-\x7F", r"\x{80}-\x{10FFFF}"), "Lc": _CASED, "Casedletter": _CASED, "Assigned": (_ASSIGNED, None),
    "Cn": _UNASSIGNED, "Unassigned": _UNASSIGNED,
}  # fmt: skip

# Outside of a class, and inside: what a backslash begins, and what begins or ends the class.
_OUTSIDE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\[pP](?:\{(?P<long>[^}]*)\}|[^{])|\\.|\[\^?\]?|\(\?P?<(?P<group>[^>(]*)>", re.DOTALL)
_INSIDE = re.compile(r"\[:\^?[a-z]*:\]|\\[pP](?:\{(?P<long>[^}]*)\}|[^{])|\\.|\]", re.DOTALL)
_GROUP = re.compile(r"[A-Za-z0-9_]+")


class GroupError(ValueError):
    """A group whose name Go does not take; ``str`` is its beginning: "(?P<é>"."""


def for_re2(pattern: str) -> str:
    """The pattern with the names of its classes as RE2 knows them; unknown ones stay. Raises GroupError."""
    if "\\p{" not in pattern and "\\P{" not in pattern and (pattern.isascii() or "<" not in pattern):
        return pattern  # what RE2 does not take of ASCII names Go does not take either
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
    """The class ``text``, which is called ``name``; "^" before a name stands for all else, as \\P does."""
    positive = (text[1] == "p") is not name.startswith("^")
    canonical = re.sub("[-_ ]", "", name.removeprefix("^")).capitalize()
    if canonical in _SETS:
        same, other = _SETS[canonical] if positive else _SETS[canonical][::-1]
        if inside:
            return text if same is None else same
        return f"[^{other}]" if same is None else f"[{same}]"
    known = _ALIASES.get(canonical, canonical)
    if _TWO_WORDS.fullmatch(name) and known == canonical:
        return text  # RE2 calls scripts so
    return f"\\{'p' if positive else 'P'}{{{known}}}" if known != name.removeprefix("^") and _KNOWN.fullmatch(known) else text


_TWO_WORDS = re.compile("(?:[A-Z][a-z]+_?){2,}")
# Categories and scripts of one word.
_KNOWN = re.compile("[CLMNPSZ][a-z]?|[A-Z][a-z]{2,}")
