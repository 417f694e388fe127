"""Header blocks of HTTP/2 (RFC 7541), without a dynamic table.

The peer is told that our table has no room (SETTINGS_HEADER_TABLE_SIZE 0), so a block means the same whenever it comes, and the few that
servers repeat are looked up. What we send is literal.
"""

from __future__ import annotations

Headers = dict[bytes, bytes]

# RFC 7541, appendix A: names, and values behind the "=".
STATIC = tuple(
    tuple(entry.encode().split(b"=")) if "=" in entry else (entry.encode(), b"")
    for entry in (
        ":authority", ":method=GET", ":method=POST", ":path=/", ":path=/index.html", ":scheme=http", ":scheme=https", ":status=200",
        ":status=204", ":status=206", ":status=304", ":status=400", ":status=404", ":status=500", "accept-charset",
        "accept-encoding=gzip, deflate", "accept-language", "accept-ranges", "accept", "access-control-allow-origin", "age", "allow",
        "authorization", "cache-control", "content-disposition", "content-encoding", "content-language", "content-length",
        "content-location", "content-range", "content-type", "cookie", "date", "etag", "expect", "expires", "from", "host", "if-match",
        "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified", "link", "location", "max-forwards",
        "proxy-authenticate", "proxy-authorization", "range", "referer", "refresh", "retry-after", "server", "set-cookie",
        "strict-transport-security", "transfer-encoding", "user-agent", "vary", "via", "www-authenticate",
    )
)  # fmt: skip
# RFC 7541, appendix B: how many bits the code of each byte has, and of the end; "a" stands for 5. The codes follow from that: those of one
# length are consecutive, shorter ones come first.
LENGTHS = (
    "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhfibccccccccccccccccccccccdcdioijbkaba"
    "babbbaccbbbabcbaabccccckgjixprpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrsvvporsru"
    "vvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwvz"
)
END = 256
REMEMBERED, REMEMBERED_BYTES = 64, 256


class Malformed(ValueError):
    """No header block, or one that uses a table that is not there."""


def _codes() -> dict[tuple[int, int], int]:
    out, code, last = {}, 0, 0
    for length, symbol in sorted((ord(c) - ord("a") + 5, symbol) for symbol, c in enumerate(LENGTHS)):
        code <<= length - last
        out[length, code] = symbol
        code, last = code + 1, length
    return out


CODES = _codes()


def huffman(data: bytes) -> bytes:
    """What a coded string says. Raises ``Malformed``."""
    out, code, bits = bytearray(), 0, 0
    for byte in data:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            symbol = CODES.get((bits, code))
            if symbol is not None:
                if symbol == END:
                    raise Malformed("the end within a string")
                out.append(symbol)
                code = bits = 0
            elif bits > 30:
                raise Malformed("no code")
    if bits > 7 or code != (1 << bits) - 1:
        raise Malformed("padding")
    return bytes(out)


def _integer(block: bytes, at: int, prefix: int) -> tuple[int, int]:
    """A number whose first bits are the last ``prefix`` of a byte, and where it ends."""
    most = (1 << prefix) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 28, 7):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
    raise Malformed("a number is too large")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    coded = block[at] & 128
    length, at = _integer(block, at, 7)
    raw = block[at : at + length]
    if len(raw) != length:
        raise Malformed("it breaks off")
    return huffman(raw) if coded else raw, at + length


def _static(index: int) -> tuple[bytes, bytes]:
    if not 0 < index <= len(STATIC):
        raise Malformed(f"entry {index} of the table")
    name, value = STATIC[index - 1]
    return name, value


def _decode(block: bytes) -> Headers:
    headers: Headers = {}
    at = 0
    while at < len(block):
        first = block[at]
        if first & 128:
            index, at = _integer(block, at, 7)
            name, value = _static(index)
        elif first & 224 == 32:
            size, at = _integer(block, at, 5)
            if size:
                raise Malformed("a table larger than was offered")
            continue
        else:  # a literal; whether it would be remembered does not matter in a table without room
            index, at = _integer(block, at, 6 if first & 64 else 4)
            if index:
                name = _static(index)[0]
            else:
                name, at = _string(block, at)
            value, at = _string(block, at)
        headers[name] = value
    return headers


class Decoder:
    """Reads blocks; remembers small ones (``known``)."""

    def __init__(self) -> None:
        self.known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """The last value of each name. Not to be changed. Raises ``Malformed``."""
        known = self.known.get(block)
        if known is not None:
            return known
        try:
            headers = _decode(block)
        except IndexError:
            raise Malformed("it breaks off") from None
        if len(block) <= REMEMBERED_BYTES:
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[block] = headers
        return headers


def _length(n: int) -> bytes:
    if n < 127:
        return bytes((n,))
    out, n = bytearray((127,)), n - 127
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def literal(name: bytes, value: bytes) -> bytes:
    """One header of a block, as it is, never remembered by the peer."""
    return b"\x10" + _length(len(name)) + name + _length(len(value)) + value
