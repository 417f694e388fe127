"""Go's regular expressions: RE2, whose time is linear whatever the pattern.

All patterns that come from clients run here. Patterns that Go refuses are refused with the error texts of Go's ``regexp/syntax``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from kas.meta.offload import LOOP_BUDGET, LOOP_BUDGET_UNITS
from kas.meta.regexnames import GroupError, for_re2
from kas.observe.caches import CHARACTER_BYTES, Cache

# The memory in which RE2 keeps a pattern and its search states: MOST_BYTES bounds compilation to about 50 ms (some 100,000 instructions,
# which hold \pL{1,80}); KEPT_BYTES is enough for patterns that are cached.
MOST_BYTES, KEPT_BYTES = 3 << 19, 128 << 10
MOST_INSTRUCTIONS = 100_000  # the equivalent of MOST_BYTES
# Parsing precedes that check and takes 34 kB and 0.1 ms for each Unicode class: 60 kB of \pL took 680 MB.
MOST_CHARACTERS, MOST_CLASSES = 128 << 10, 200
# Instructions times characters: where RE2 cannot build a DFA, each step takes some 5 ns, and it cannot be interrupted.
MOST_STEPS = 1_000_000_000
MOST_SECONDS = 2.5  # of thread CPU time, for all searches in one text
TOO_LONG = "the text is too long for the expression"
LONGEST = 1024 + KEPT_BYTES // CHARACTER_BYTES
_kept: Cache[str, Pattern] = Cache("patterns", "compiled patterns of schemas and expressions", 32 << 20, LONGEST)
SHOWN = 100  # characters quoted of a pattern that is too large
TOO_LARGE = "expression too large"  # Go's text
_TOO_LARGE = "pattern too large - compile failed"

# RE2's error texts -> Go's, where they differ.
_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    _TOO_LARGE: TOO_LARGE,
}
# A repetition count that Go's parser reports as too large, but RE2's does not recognise as a count: it would treat the braces as literals.
_LONG_COUNT = re.compile(r"\{(?:0*[1-9][0-9]{9,}(?:,[0-9]*)?|[0-9]+,0*[1-9][0-9]{9,})\}")
# An escape, or literal text; \C exists only in RE2.
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)

_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]*:\]|\\.|[^\]\\])*\]", re.DOTALL)


_FEW_STEPS = 1000  # so many steps take some microseconds
_SHORT = 256  # a pattern of this length without counted repetitions compiles in a tenth of a millisecond


class RegexError(ValueError):
    """A pattern that Go refuses, or a search that would take too long. ``str()`` is the error text."""


class Pattern:
    """A compiled pattern. Both methods raise RegexError for a text that may take ``MOST_STEPS`` or more, and may raise BudgetSpentError
    (``offload.LOOP_BUDGET``).
    """

    __slots__ = ("_longest", "_regexp", "instructions")

    def __init__(self, regexp: Any) -> None:
        self._regexp = regexp
        self.instructions: int = max(1, regexp.programsize)
        self._longest = MOST_STEPS // self.instructions

    def search(self, text: str) -> Any:
        """The first match, or None."""
        steps = len(text) * self.instructions
        if steps > _FEW_STEPS:
            if len(text) > self._longest:
                raise RegexError(TOO_LONG)
            LOOP_BUDGET.spend(steps // _FEW_STEPS)
        return self._regexp.search(text)

    def found_in(self, text: str) -> Iterator[str]:
        """Yields all non-overlapping matches from the left. As in Go, an empty match directly after another match does not count.

        Each match is a new search, which may scan all the remaining text before it finds a short match. A search that becomes quadratic in
        its text ends after ``MOST_SECONDS``.
        """
        if len(text) > self._longest:
            raise RegexError(TOO_LONG)
        # For ASCII text, searching bytes avoids the translation of offsets, which took most of the time.
        found: Iterator[Any] = self._regexp.finditer(text.encode() if text.isascii() else text)
        end, began = -1, time.thread_time()
        for i, m in enumerate(found):
            LOOP_BUDGET.spend(2 + (len(text) - m.start()) // _FEW_STEPS)
            if not i % 16 and time.thread_time() - began > MOST_SECONDS:
                raise RegexError(TOO_LONG)
            if m.end() > m.start() or m.start() != end:
                one = m.group()
                yield one if isinstance(one, str) else one.decode()
            end = m.end()


def compiled(pattern: str) -> Pattern:
    """Compiles a pattern. Raises RegexError, also when compiling would take too much, and may raise BudgetSpentError. Small ones are
    cached, up to a bound.
    """
    found = _kept.entries.get(pattern)
    if found is None:
        LOOP_BUDGET.spend(LOOP_BUDGET_UNITS // 50 if len(pattern) <= _SHORT and "{" not in pattern else LOOP_BUDGET_UNITS + 1)
        import re2

        if len(pattern) > MOST_CHARACTERS or pattern.count("\\p") + pattern.count("\\P") > MOST_CLASSES:
            raise _refused(TOO_LARGE, pattern[:SHOWN])
        found = _compile(pattern, KEPT_BYTES)
        if found is not None:
            _kept.put(pattern, found, len(pattern) + KEPT_BYTES // CHARACTER_BYTES)
        else:
            found = _compile(pattern, MOST_BYTES)
            assert found is not None  # or it was refused
        re2.purge()  # its own cache keeps the last patterns regardless of size
    return found


def _compile(pattern: str, memory: int) -> Pattern | None:
    """Compiles a pattern within ``memory`` bytes; None when a valid pattern does not fit. Raises RegexError."""
    import re2  # a compiled library that few servers need

    if "\\C" in pattern and any(m[1] == "C" for m in _ESCAPES.finditer(pattern)):
        raise _refused("invalid escape sequence", "\\C")
    found = _long_count(pattern) if "{" in pattern else ""
    if found:
        raise _refused("invalid repeat count", found)
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    given = pattern
    try:
        given = for_re2(pattern)
        return Pattern(re2.compile(given, options))
    except UnicodeEncodeError:
        raise _refused("invalid UTF-8", pattern) from None
    except GroupError as e:
        raise _refused(_GO_WORDS["invalid named capture group"], str(e)) from None
    except re2.error as e:
        reason = e.args[0] if e.args else ""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        what, _, where = text.partition(": ")
        if what == _TOO_LARGE and memory < MOST_BYTES:
            return None
        if where == given:
            where = pattern
        if what == "invalid UTF-8" and pattern.endswith("\\x{"):
            what, where = "invalid escape sequence", "\\x{"  # RE2 reads past the end of the text
        if what == "invalid perl operator" and where.startswith("(?<"):
            # Go takes a lookbehind for the start of a named group, and quotes it up to the end of the name.
            what, rest = "invalid named capture group", pattern[pattern.find(where) :]
            where = rest[: rest.find(">") + 1] or rest
        raise _refused(_GO_WORDS.get(what, what), where) from None


def _long_count(pattern: str) -> str:
    """The first repetition count that Go reports as too large but RE2 treats as text; "" for none."""
    if _LONG_COUNT.search(pattern) is None:
        return ""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            skipped = _ESCAPES.match(pattern, at)
            at = skipped.end() if skipped is not None else at + 1
        elif pattern[at] == "[":
            # A leading bracket in a class is literal.
            end = _CLASS.match(pattern, at)
            at = end.end() if end is not None else len(pattern)
        else:
            count = _LONG_COUNT.match(pattern, at) if pattern[at] == "{" else None
            if count is not None:
                return count[0]
            at += 1
    return ""


def _refused(what: str, where: str) -> RegexError:
    return RegexError(f"error parsing regexp: {what}: `{where}`")
