"""Header blocks of HTTP/2 (RFC 7541), without a dynamic table.

The peer is told that our table has size 0 (SETTINGS_HEADER_TABLE_SIZE), so a block always has the same meaning, and the few
blocks that servers repeat are cached. Blocks that we send are literal.
"""

from __future__ import annotations

Headers = dict[bytes, bytes]

# RFC 7541, appendix A: names, with values after the "=".
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
# RFC 7541, appendix B: the code length in bits for each byte, and for the end; "a" means 5. The codes follow from the
# lengths: codes of the same length are consecutive, shorter ones come first.
LENGTHS = (
    "isxxxxxxxtzxxzxxxxxxxxzxxxxxxxxxbffhibdgffdgdbbbaaabbbbbbbcdkbhfibccccccccccccccccccccccdcdioijbkaba"
    "babbbaccbbbabcbaabccccckgjixprpprrrsrssssststtrstssssqrsrsstrqprrssqsrrtqrssqqrqsrssprrrsrrsvvporsru"
    "vvvwwvtuoqvwwvwtqqvvxwwwptpqrqqsrruuttvsvwvvwwwwwxwwwwwvz"
)
END = 256
REMEMBERED, REMEMBERED_BYTES = 64, 256


class Malformed(ValueError):
    """An invalid header block, or one that refers to a dynamic table."""


def _codes() -> dict[tuple[int, int], int]:
    out, code, last = {}, 0, 0
    for length, symbol in sorted((ord(c) - ord("a") + 5, symbol) for symbol, c in enumerate(LENGTHS)):
        code <<= length - last
        out[length, code] = symbol
        code, last = code + 1, length
    return out


CODES = _codes()


def huffman(data: bytes) -> bytes:
    """Returns the decoded string. Raises ``Malformed``."""
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
    """Returns an integer that begins in the last ``prefix`` bits of a byte, and its end."""
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
        else:  # a literal; indexing has no effect with a table of size 0
            index, at = _integer(block, at, 6 if first & 64 else 4)
            if index:
                name = _static(index)[0]
            else:
                name, at = _string(block, at)
            value, at = _string(block, at)
        headers[name] = value
    return headers


class Decoder:
    """Decodes blocks; caches small ones (``known``)."""

    def __init__(self) -> None:
        self.known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Returns the last value of each name; the result must not be changed. Raises ``Malformed``."""
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
    """Returns a literal header that is never indexed by the peer."""
    return b"\x10" + _length(len(name)) + name + _length(len(value)) + value
