"""The lexer (cel-spec ``doc/langdef.md``), which splits text and reports errors as ANTLR's lexer does."""

from __future__ import annotations

import re

from kas.cel.problems import Problem
from kas.meta.records import NamedTuple

_ESC = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TOKEN = re.compile(
    r"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<float>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<text>(?P<prefix>[bB]?)(?:
        '{3}(?:[^\\]|ESC)*?'{3} | "{3}(?:[^\\]|ESC)*?"{3} | '(?:[^'\\\n\r]|ESC)*' | "(?:[^"\\\n\r]|ESC)*"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[<>\[\]{}()!.,:?+\-*/%])""".replace("ESC", _ESC),
    re.X | re.S,
)
# The longest possible start of a token, where no whole token matches.
_BEGUN = re.compile(
    r"""'(?:[^'\\\n\r]|ESC)*PART?|"(?:[^"\\\n\r]|ESC)*PART?|`[A-Za-z0-9_.\-/ ]*|[&|=]|""".replace("ESC", _ESC).replace(
        "PART", r"(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)"
    ),
    re.S,
)
_RAW = re.compile(
    r"""(?P<prefix>[bB]?[rR])(?P<body>'{3}.*?'{3}|"{3}.*?"{3}|'[^'\n\r]*'|"[^"\n\r]*")""", re.S
)
END = "<EOF>"


class Token(NamedTuple):
    """A token; ``at`` is the position where it begins."""

    kind: str  # float, uint, int, text, raw, name, escaped, mark, end
    text: str
    at: int


class Unread(NamedTuple):
    """Text that is not a token; ``before`` is the index of the following token."""

    before: int
    text: str
    problem: Problem


def tokens(text: str) -> tuple[list[Token], list[Unread]]:
    """Return the tokens, the last of which is the end, and the text that is not a token."""
    out, unread, at = list[Token](), list[Unread](), 0
    while at < len(text):
        m = _RAW.match(text, at)
        if m is not None:
            out.append(Token("raw", m.group(), at))
            at = m.end()
            continue
        m = _TOKEN.match(text, at)
        if m is None:
            end = _unreadable(text, at)
            problem = Problem(at, f"Syntax error: token recognition error at: '{text[at:end]}'")
            unread.append(Unread(len(out), text[at:end], problem))
            at = end
            continue
        kind = m.lastgroup if m.lastgroup != "prefix" else "text"
        if kind != "space":
            out.append(Token(kind or "text", m.group(), at))
        at = m.end()
    out.append(Token("end", END, len(text)))
    return out, unread


def _unreadable(text: str, at: int) -> int:
    """Return where the lexer continues: after the start of a possible token and the character that ended it."""
    begun = _BEGUN.match(text, at)
    return min((begun.end() if begun is not None else at) + 1, len(text))
