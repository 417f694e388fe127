"""Quantities: ``apimachinery/pkg/api/resource.Quantity``, with its arithmetic, rounding and canonical forms.

A Quantity is exact: ``unscaled * 10**-scale`` with Python integers. Upstream keeps small numbers in an int64 and others in an
arbitrary-precision decimal. A few results depend on that (``value()`` is 0 when an int64 overflows, but wraps in a decimal), so
``is_decimal`` records which one upstream would use. Objects hold quantities as text; ``canonical`` returns the text that is stored.
"""

from __future__ import annotations

from kas._codecs import DecodeError
from kas.meta.field import GO_SPACE
from kas.observe.caches import remembered

DECIMAL_SI = "DecimalSI"
BINARY_SI = "BinarySI"
DECIMAL_EXPONENT = "DecimalExponent"

ERR_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
ERR_SUFFIX = "unable to parse quantity's suffix"
ERR_NUMERIC = "unable to parse numeric part of quantity"

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {v: k for k, v in _DECIMAL.items()}
_BINARY_SUFFIX = {v: k for k, v in _BINARY.items()} | {0: ""}
_DIGITS = frozenset("0123456789")
_SUFFIX_LETTERS = frozenset("eEinumkKMGTP")
_MAX = (1 << 63) - 1
# Upstream accepts any number of digits and any exponent. Beyond these limits every real resource is equal anyway, and parsing and printing
# take time quadratic in the digits.
_MAX_EXPONENT = 1_000
_MAX_DIGITS = 1_000


def _wrap(n: int) -> int:
    """The low 64 bits as a signed integer: ``big.Int.Int64()``."""
    n &= (1 << 64) - 1
    return n - (1 << 64) if n >> 63 else n


def _fits(n: int) -> bool:
    return -_MAX - 1 <= n <= _MAX


def _scaled_up(n: int, power: int) -> int:
    """``n * 10**power`` as an int64. An overflow gives 0, except that it wraps for the powers by which upstream multiplies in one step."""
    if power > 18:
        return 0
    result = n * 10**power
    if _fits(result):
        return result
    return _wrap(result) if power in (1, 2, 3, 6, 9) else 0


def _round_up(n: int, divisor: int) -> int:
    """Integer division, rounded away from zero."""
    q, r = divmod(abs(n), divisor)
    q += r != 0
    return -q if n < 0 else q


class Quantity:
    """An exact number with the notation in which it was written. Immutable: operations return new objects."""

    __slots__ = ("_text", "format", "is_decimal", "scale", "unscaled")

    def __init__(
        self, unscaled: int, scale: int = 0, format: str = DECIMAL_SI, *, is_decimal: bool = False, text: str | None = None
    ) -> None:
        self.unscaled, self.scale, self.format, self.is_decimal, self._text = unscaled, scale, format, is_decimal, text

    def __str__(self) -> str:
        return self._text if self._text is not None else self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _aligned(self, other: Quantity) -> tuple[int, int, int]:
        scale = max(self.scale, other.scale)
        return self.unscaled * 10 ** (scale - self.scale), other.unscaled * 10 ** (scale - other.scale), scale

    def cmp(self, other: Quantity) -> int:
        """-1, 0 or 1: compares by value, regardless of suffixes."""
        if not self.unscaled or not other.unscaled or (self.unscaled < 0) != (other.unscaled < 0):
            a, b = self.sign(), other.sign()
        else:
            a, b, _ = self._aligned(other)
        return (a > b) - (a < b)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.cmp(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.cmp(other) < 0

    def __le__(self, other: Quantity) -> bool:
        return self.cmp(other) <= 0

    def __gt__(self, other: Quantity) -> bool:
        return self.cmp(other) > 0

    def __ge__(self, other: Quantity) -> bool:
        return self.cmp(other) >= 0

    def __hash__(self) -> int:
        n, zeros = _without_zeros(self.unscaled)
        return hash((n, self.scale - zeros if n else 0))

    def __add__(self, other: Quantity) -> Quantity:
        a, b, scale = self._aligned(other)
        return self._combined(other, a + b, scale)

    def __sub__(self, other: Quantity) -> Quantity:
        a, b, scale = self._aligned(other)
        return self._combined(other, a - b, scale)

    def __neg__(self) -> Quantity:
        return Quantity(-self.unscaled, self.scale, self.format, is_decimal=self.is_decimal)

    def _combined(self, other: Quantity, unscaled: int, scale: int) -> Quantity:
        # A sum that starts at zero takes the notation of the other operand.
        format = other.format if self.unscaled == 0 else self.format
        decimal = self.is_decimal or other.is_decimal or not _fits(unscaled)
        return Quantity(unscaled, scale, format, is_decimal=decimal)

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def is_zero(self) -> bool:
        """Whether the value is zero."""
        return self.unscaled == 0

    def value(self) -> int:
        """The integer value, rounded away from zero. On overflow it returns what upstream returns."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """The value in thousandths, rounded away from zero."""
        return self.scaled_value(-3)

    def scaled_value(self, exponent: int) -> int:
        """The value in units of ``10**exponent`` as an int64, rounded away from zero (``ScaledValue``)."""
        difference = self.scale + exponent
        if not self.is_decimal:
            if difference > 0:
                return _round_up(self.unscaled, 10**difference)
            return _scaled_up(self.unscaled, -difference)
        if difference <= 0:
            return _wrap(self.unscaled * 10**-difference)
        divisor = 10**difference
        if self.unscaled < _MAX and difference < 18:
            # Upstream takes this shortcut for negative numbers of any size.
            small = _wrap(self.unscaled)
            quotient = abs(small) // divisor * (1 if small >= 0 else -1)
            return quotient + (small % divisor != 0)
        quotient, rest = divmod(self.unscaled, divisor)
        return _wrap(_wrap(quotient) + (rest != 0))

    def as_int64(self) -> tuple[int, bool]:
        """(value, True) if upstream holds it as an integer in 64 bits, else (unspecified, False) (``AsInt64``)."""
        if self.is_decimal or self.scale > 0:
            return 0, False
        result = _scaled_up(self.unscaled, -self.scale)
        return result, not self.unscaled or (self.scale >= -18 and _fits(self.unscaled * 10**-self.scale))

    def approximate(self) -> float:
        """The value as a float; infinite when it is out of range."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = float("inf") if self.unscaled > 0 else float("-inf")
        exponent = -self.scale
        if exponent == 0:
            return base
        if exponent > 308:
            return base * float("inf") if base else 0.0
        return base * float(f"1e{exponent}")

    def round_up(self, exponent: int) -> tuple[Quantity, bool]:
        """Rounds away from zero to units of ``10**exponent`` (``RoundUp``). Returns the result and whether it is exact."""
        difference = self.scale + exponent
        if difference <= 0:
            if self.is_decimal:
                n = self.unscaled * 10**-difference
                return Quantity(n, -exponent, self.format, is_decimal=True), True
            return self, True
        divisor = 10**difference
        rounded = Quantity(_round_up(self.unscaled, divisor), -exponent, self.format, is_decimal=self.is_decimal)
        return rounded, self.unscaled % divisor == 0

    def canonical(self) -> str:
        """The canonical text of ``CanonicalizeBytes``: no fraction, and the largest suffix that fits."""
        if self.unscaled == 0:
            return "0"
        if self.format == BINARY_SI:
            small = self.cmp(Quantity(1024)) < 0 and self.cmp(Quantity(-1024)) > 0
            n, exact = self.unscaled, True
            if self.scale > 0:
                n, rest = divmod(self.unscaled, 10**self.scale)
                exact = rest == 0
            else:
                n *= 10**-self.scale
            if not small and exact:
                exponent = 0
                while n % 1024 == 0:
                    n //= 1024
                    exponent += 10
                return f"{n}{_BINARY_SUFFIX.get(exponent, '')}"
        n, zeros = _without_zeros(self.unscaled)
        exponent = zeros - self.scale
        while exponent % 3:
            n *= 10
            exponent -= 1
        if self.format == DECIMAL_EXPONENT:
            return f"{n}e{exponent}" if exponent else str(n)
        return f"{n}{_DECIMAL_SUFFIX.get(exponent, '')}"


def _without_zeros(n: int) -> tuple[int, int]:
    """(``n`` without trailing zeros, their number); none are removed from 0."""
    if n % 10 or not n:
        return n, 0
    digits = str(n)
    short = digits.rstrip("0")
    return int(short), len(digits) - len(short)


def _digits(text: str, start: int) -> int:
    end = start
    while end < len(text) and text[end] in _DIGITS:
        end += 1
    return end


def _split(text: str) -> tuple[bool, str, str, str]:
    """``parseQuantityString``: (positive, whole digits without leading zeros, fraction digits, suffix). Raises DecodeError."""
    pos, end = 0, len(text)
    positive = not text.startswith("-")
    if text[:1] in ("-", "+"):
        pos = 1
    while pos < end and text[pos] == "0":
        pos += 1
    if pos == end:
        return positive, "0", "", ""
    stop = _digits(text, pos)
    whole, pos = text[pos:stop] or "0", stop
    fraction = ""
    if pos < end and text[pos] == ".":
        stop = _digits(text, pos + 1)
        fraction, pos = text[pos + 1 : stop], stop
    suffix = text[pos:]
    while pos < end and text[pos] in _SUFFIX_LETTERS:
        pos += 1
    if pos < end and text[pos] in "+-":
        pos += 1
    if _digits(text, pos) != end:
        raise DecodeError(ERR_FORMAT)
    return positive, whole, fraction, suffix


def _interpret(suffix: str) -> tuple[int, int, str]:
    if suffix in _DECIMAL:
        return 10, _DECIMAL[suffix], DECIMAL_SI
    if suffix in _BINARY:
        return 2, _BINARY[suffix], BINARY_SI
    if len(suffix) > 1 and suffix[0] in "eE":
        number = suffix[1:]
        if number.lstrip("+-").isascii() and number.lstrip("+-").isdigit() and len(number.lstrip("+-")) >= len(number) - 1:
            exponent = int(number) if len(number) < 12 else _MAX_EXPONENT + 1
            if -100_000 <= exponent <= _MAX_EXPONENT:  # values that are too small are rounded up cheaply
                return 10, exponent, DECIMAL_EXPONENT
    raise DecodeError(ERR_SUFFIX)


def parse(text: str) -> Quantity:
    """``ParseQuantity``. Raises DecodeError with upstream's text. Keeps the original text where upstream does (it counts as canonical)."""
    if not text:
        raise DecodeError(ERR_FORMAT)
    positive, whole, fraction, suffix = _split(text)
    base, exponent, format = _interpret(suffix)
    shifted = whole + fraction
    if format == BINARY_SI:
        precision = 15 - len(whole) - exponent * 3 // 10 - 1 if not fraction else -1
        scale = 0
    else:
        precision = 18 - len(shifted)
        scale = len(fraction) - exponent
    if len(shifted) > _MAX_DIGITS:
        raise DecodeError(ERR_NUMERIC)
    number = int(shifted)
    if precision >= 0 and scale <= 9:
        unscaled = number << exponent if base == 2 else number
        if _fits(unscaled):
            if base == 2:
                kept = number & 7 != 0
            else:
                kept = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
            return Quantity(unscaled if positive else -unscaled, scale, format, text=text if kept else None)
    if not any(c in _DIGITS for c in text[: len(text) - len(suffix)]):
        raise DecodeError(ERR_NUMERIC)
    if base == 2:
        number, scale = number << exponent, len(fraction)
    if not number:
        return Quantity(0, min(scale, _MAX_EXPONENT), format, is_decimal=True)
    # Values finer than nano are rounded up, so that a request for some of a resource is never zero.
    if scale > 9:
        excess = scale - 9
        number = 1 if excess > len(shifted) + 20 else _round_up(number, 10**excess)
    else:
        number *= 10 ** (9 - scale)
    scale = 9
    if format == BINARY_SI:
        if number > _MAX * 10**9:
            number, scale = _MAX, 0
        elif number < 10**9:
            format = DECIMAL_SI
    return Quantity(number if positive else -number, scale, format, is_decimal=True)


@remembered("quantities", "quantities as they were read", 4096, 32, 512)
def cached(text: str) -> Quantity:
    """``parse`` with a cache, for repeated use (validation, quota, printers)."""
    return parse(text)


def canonical(value: str | int | float) -> str:
    """The text kube-apiserver stores for a JSON string or number (``Quantity.UnmarshalJSON``, then ``String``)."""
    if isinstance(value, str):
        return str(parse(value.strip(GO_SPACE)))
    return str(parse(repr(value) if isinstance(value, float) else str(value)))
