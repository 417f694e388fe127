"""E-mail addresses as parsed by Go's ``net/mail.ParseAddress``: RFC 5322, with names and text in UTF-8."""

from __future__ import annotations

import ipaddress

_SPECIALS = frozenset('()<>[]:;@\\,."')


def is_address(text: str) -> bool:
    """Whether a text is an e-mail address: ``gopher@example.com`` or ``Gopher <gopher@example.com>``."""
    reader = _Reader(text)
    try:
        reader.address()
    except ValueError:
        return False
    return True


def _is_atom(c: str) -> bool:
    return c.isprintable() and c != " " and c not in _SPECIALS


def _is_visible(c: str) -> bool:
    return c > "\x7f" or "!" <= c <= "~"


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, c: str) -> bool:
        if c and self.peek() == c:
            self.at += 1
            return True
        return False

    def need(self, held: object) -> None:
        if not held:
            raise ValueError(self.text)

    def blank(self) -> None:
        while self.peek() and self.peek() in " \t":
            self.at += 1

    def comments(self) -> None:
        """Skips white space and nested comments in parentheses."""
        self.blank()
        while self.take("("):
            depth = 1
            while depth:
                c = self.peek()
                self.need(c)
                self.at += 1
                if c == "\\" and self.peek():
                    self.at += 1
                depth += (c == "(") - (c == ")")
            self.blank()

    def address(self) -> None:
        """Parses one address up to the end of the text."""
        self.comments()
        self.need(self.peek())
        start = self.at
        try:
            self.spec()
        except ValueError:
            self.at = start
            if self.peek() != "<":
                self.phrase()
            self.blank()
            self.need(self.take("<"))
            self.spec()
            self.need(self.take(">"))
        self.comments()
        self.need(self.at == len(self.text))

    def spec(self) -> None:
        """Parses ``local@domain``."""
        self.blank()
        if self.peek() == '"':
            self.need(self.quoted())
        else:
            self.atom(dots=True)
        self.need(self.take("@"))
        self.blank()
        self.need(self.peek())
        if self.take("["):
            self.literal()
        else:
            self.atom(dots=True)

    def literal(self) -> None:
        end = self.text.find("]", self.at)
        self.need(end >= 0)
        ipaddress.ip_address(self.text[self.at : end].removeprefix("IPv6:"))
        self.at = end + 1

    def quoted(self) -> str:
        """Parses a quoted string; returns its content."""
        self.at += 1
        out = []
        while not self.take('"'):
            c = self.peek()
            self.need(c)
            self.at += 1
            if c == "\\":
                c = self.peek()
                self.at += 1
            self.need(c and (_is_visible(c) or c in " \t"))
            out.append(c)
        return "".join(out)

    def atom(self, dots: bool) -> None:
        start = self.at
        while (c := self.peek()) and (_is_atom(c) or (dots and c == ".")):
            self.at += 1
        found = self.text[start : self.at]
        self.need(found and not (dots and (found[0] == "." or found[-1] == "." or ".." in found)))

    def phrase(self) -> None:
        """Parses a display name: words, which may contain dots."""
        words = 0
        while True:
            self.comments()
            c = self.peek()
            if not c or c == "<":
                break
            if c == '"':
                self.quoted()
            else:
                start = self.at
                while (c := self.peek()) and (_is_atom(c) or c == "."):
                    self.at += 1
                self.need(self.at > start)
            words += 1
        self.need(words)
