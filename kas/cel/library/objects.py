"""The types that Kubernetes adds: quantities, URLs, addresses, formats, versions, and authorizer checks.

Upstream: apiserver ``pkg/cel/library/{quantity,urls,ip,cidr,format,semverlib,authz}.go``.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable
from typing import Any

from kas._codecs import DecodeError
from kas.cel.environment import Cost
from kas.cel.library.declare import Library, of_first, on, one, plain, regex_cost, traversal
from kas.cel.problems import EvaluationError
from kas.cel.types import BOOL, DOUBLE, INT, STRING, Type, list_of, map_of, opaque, optional_of, struct
from kas.cel.values import NONE, Opaque, Optional, Uint, size
from kas.meta import names, quantity, strfmt
from kas.meta.field import go_quote
from kas.meta.gourl import URL as GoURL
from kas.meta.gourl import parse as parse_url
from kas.meta.gourl import parse_request_uri
from kas.meta.ip import IP
from kas.meta.netip import parse_addr, parse_prefix
from kas.meta.scalars import parse_uint64

LIB = Library()
QUANTITY, URL, FORMAT, SEMVER = (struct(f"kubernetes.{n}") for n in ("Quantity", "URL", "NamedFormat", "Semver"))
IP_TYPE, CIDR_TYPE = opaque("net.IP"), opaque("net.CIDR")
AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION = (
    struct(f"kubernetes.authorization.{n}") for n in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
)
NO_OVERLOAD = "no such overload"


def _of(kind: type, *values: Any) -> None:
    for v in values:
        if not isinstance(v, kind) or (kind is int and isinstance(v, (bool, Uint))):
            raise EvaluationError(NO_OVERLOAD)


def _valid(parse: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def run(text: Any, *more: Any) -> bool:
        _of(str, text)
        for flag in more:
            _of(bool, flag)
        try:
            parse(text, *more)
        except EvaluationError:
            return False
        return True

    return run


# --- quantities


class QuantityValue(Opaque):
    """A value of type kubernetes.Quantity."""

    __slots__ = ("quantity",)
    cel_type = QUANTITY

    def __init__(self, q: quantity.Quantity) -> None:
        self.quantity = q

    def key(self) -> quantity.Quantity:
        """The amount, by which quantities are compared."""
        return self.quantity

    def __str__(self) -> str:
        return str(self.quantity)


@LIB("quantity", plain("string_to_quantity", [STRING], QUANTITY), cost=of_first())
def to_quantity(text: Any) -> QuantityValue:
    """``quantity(text)``. Raises EvaluationError if the text is not a quantity."""
    _of(str, text)
    try:
        return QuantityValue(quantity.parse(text))
    except DecodeError as e:
        raise EvaluationError(str(e)) from None


LIB("isQuantity", plain("is_quantity_string", [STRING], BOOL), cost=of_first())(_valid(to_quantity))


def _quantity(v: Any) -> quantity.Quantity:
    _of(QuantityValue, v)
    found: quantity.Quantity = v.quantity
    return found


def _as_quantity(v: Any) -> quantity.Quantity:
    """Return a quantity, also of an int."""
    if isinstance(v, int) and not isinstance(v, (bool, Uint)):
        return quantity.Quantity(v, 0, quantity.DECIMAL_EXPONENT)
    return _quantity(v)


# Upstream declares it as a global function, although its documentation describes a member.
@LIB("sign", plain("quantity_sign", [QUANTITY], INT), cost=one)
def _sign(v: Any) -> int:
    return _quantity(v).sign()


@LIB("asInteger", on("quantity_get_int", [QUANTITY], INT), cost=one)
def _as_integer(v: Any) -> int:
    value, exact = _quantity(v).as_int64()
    if not exact:
        raise EvaluationError("cannot convert value to integer")
    return value


LIB("isInteger", on("quantity_is_integer", [QUANTITY], BOOL), cost=one)(lambda v: _quantity(v).as_int64()[1])
LIB("asApproximateFloat", on("quantity_get_float", [QUANTITY], DOUBLE), cost=one)(lambda v: _quantity(v).approximate())
for _name in ("add", "sub"):
    LIB(_name, on(f"quantity_{_name}", [QUANTITY, QUANTITY], QUANTITY), on(f"quantity_{_name}_int", [QUANTITY, INT], QUANTITY), cost=one)(
        lambda a, b, sign=1 if _name == "add" else -1: QuantityValue(
            _as_quantity(a) + _as_quantity(b) if sign > 0 else _as_quantity(a) - _as_quantity(b)
        )
    )


# --- versions


@functools.total_ordering
class SemverValue(Opaque):
    """A value of type kubernetes.Semver; ``pre`` are the pre-release identifiers; ``build`` does not affect the order."""

    __slots__ = ("build", "numbers", "pre")
    cel_type = SEMVER

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[str, ...], build: str = "") -> None:
        self.numbers, self.pre, self.build = numbers, pre, build

    def __str__(self) -> str:
        pre = f"-{'.'.join(self.pre)}" if self.pre else ""
        return ".".join(map(str, self.numbers)) + pre + (f"+{self.build}" if self.build else "")

    def key(self) -> Any:
        """The key for equality and order (semver.org, section 11)."""
        # A version without a pre-release is greater than one with; numeric identifiers are less than alphanumeric ones.
        return self.numbers, not self.pre, tuple((0, len(p), p) if p.isdigit() else (1, 0, p) for p in self.pre)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemverValue) and self.key() == other.key()

    def __lt__(self, other: SemverValue) -> bool:
        return self.key() < other.key()

    def __hash__(self) -> int:
        return hash(self.key())


_PART = re.compile(r"[0-9A-Za-z-]+\Z")
_NAMES = ("Major", "Minor", "Patch")


def _version_number(text: str, what: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise EvaluationError(f"Invalid character(s) found in {what.lower()} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(f"{what} number must not contain leading zeroes {go_quote(text)}")
    try:
        return parse_uint64(text)
    except ValueError as e:
        raise EvaluationError(str(e)) from None


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for i, p in enumerate(parts):
        if len(p.encode()) > 1:
            q = p.lstrip("0")
            parts[i] = q if q and q[0].isascii() and q[0].isdigit() else "0" + q
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


@LIB("semver", plain("string_to_semver", [STRING], SEMVER), plain("string_bool_to_semver", [STRING, BOOL], SEMVER), cost=of_first())
def to_semver(text: Any, normalize: Any = False) -> SemverValue:
    """``semver(text)``; with ``normalize`` a leading "v", missing parts and leading zeros are accepted."""
    _of(str, text)
    _of(bool, normalize)
    if normalize:
        text = _normalized(text)
    if not text:
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _version_number(parts[0], "Major"), _version_number(parts[1], "Minor")
    rest, plus, build = parts[2].partition("+")
    patch, dash, pre = rest.partition("-")
    number = _version_number(patch, "Patch")
    pieces = tuple(pre.split(".")) if dash else ()
    for p in pieces:
        if not p:
            raise EvaluationError("Prerelease is empty")
        if not _PART.match(p):
            raise EvaluationError(f"Invalid character(s) found in prerelease {go_quote(p)}")
        if p.isdigit() and len(p) > 1 and p[0] == "0":
            raise EvaluationError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(p)}")
    for b in build.split(".") if plus else ():
        if not b:
            raise EvaluationError("Build meta data is empty")
        if not _PART.match(b):
            raise EvaluationError(f"Invalid character(s) found in build meta data {go_quote(b)}")
    return SemverValue((major, minor, number), pieces, build)


LIB("isSemver", plain("is_semver_string", [STRING], BOOL), plain("is_semver_string_bool", [STRING, BOOL], BOOL), cost=of_first())(
    _valid(to_semver)
)
for _i, _name in enumerate(("major", "minor", "patch")):

    @LIB(_name, on(f"semver_{_name}", [SEMVER], INT), cost=one)
    def _number(v: Any, i: int = _i) -> int:
        _of(SemverValue, v)
        return v.numbers[i]


def _order(a: Any, b: Any) -> int:
    if isinstance(a, SemverValue) and isinstance(b, SemverValue):
        return (a > b) - (a < b)
    _of(QuantityValue, a, b)
    return a.quantity.cmp(b.quantity)


for _name, _suffix, _test, _result in (
    ("isGreaterThan", "is_greater_than", lambda c: c > 0, BOOL), ("isLessThan", "is_less_than", lambda c: c < 0, BOOL),
    ("compareTo", "compare_to", lambda c: c, INT),
):  # fmt: skip
    LIB(
        _name, on(f"quantity_{_suffix}", [QUANTITY, QUANTITY], _result), on(f"semver_{_suffix}", [SEMVER, SEMVER], _result), cost=one
    )(lambda a, b, test=_test: test(_order(a, b)))  # fmt: skip


# --- addresses


class IPValue(Opaque):
    """A value of type net.IP."""

    __slots__ = ("ip",)
    cel_type = IP_TYPE

    def __init__(self, ip: IP) -> None:
        self.ip = ip

    @property
    def cost_size(self) -> int:
        """The size in bytes that costs are based on."""
        return self.ip.bits // 8

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        """The address as the standard library's type."""
        return ipaddress.IPv4Address(self.ip.number) if self.ip.bits == 32 else ipaddress.IPv6Address(self.ip.number)

    def key(self) -> IP:
        """The address, by which values are compared."""
        return self.ip

    def __str__(self) -> str:
        return str(self.address)


class CIDRValue(Opaque):
    """A value of type net.CIDR; the address may have bits set beyond the prefix."""

    __slots__ = ("ip", "prefix")
    cel_type = CIDR_TYPE

    def __init__(self, ip: IP, prefix: int) -> None:
        self.ip, self.prefix = ip, prefix

    @property
    def cost_size(self) -> int:
        """The size in bytes of the prefix, which costs are based on."""
        return -(-self.prefix // 8)

    def masked(self, ip: IP) -> int:
        """Return an address without its host bits, as a number; -1 for an address of the other family."""
        return ip.number >> (ip.bits - self.prefix) if ip.bits == self.ip.bits else -1

    def key(self) -> Any:
        """The address and the prefix length, by which values are compared."""
        return self.ip, self.prefix

    def __str__(self) -> str:
        return f"{IPValue(self.ip)}/{self.prefix}"


def _address(text: Any) -> IP:
    _of(str, text)
    try:
        ip, zone = parse_addr(text)
    except ValueError as e:
        raise EvaluationError(f"IP Address {go_quote(text)} parse error during conversion from string: {e}") from None
    if zone:
        raise EvaluationError(f"IP address {go_quote(text)} with zone value is not allowed")
    if ip.is_mapped:
        raise EvaluationError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return ip


def _ip_cost(overload: str, args: list[Any], result: Any) -> int:
    return 1 if overload == "cidr_ip" else traversal(size(args[0]))


@LIB("ip", plain("string_to_ip", [STRING], IP_TYPE), on("cidr_ip", [CIDR_TYPE], IP_TYPE), cost=_ip_cost)
def to_ip(v: Any) -> IPValue:
    """``ip(text)``, or the address of a CIDR."""
    return IPValue(v.ip) if isinstance(v, CIDRValue) else IPValue(_address(v))


LIB("isIP", plain("is_ip", [STRING], BOOL), cost=of_first())(_valid(_address))
LIB("ip.isCanonical", plain("ip_is_canonical", [STRING], BOOL), cost=of_first(2))(lambda v: str(to_ip(v)) == v)


@LIB("family", on("ip_family", [IP_TYPE], INT), cost=one)
def _family(v: Any) -> int:
    _of(IPValue, v)
    return 4 if v.ip.bits == 32 else 6


def _link_local_multicast(a: Any) -> bool:
    if a.version == 4:
        return a in ipaddress.IPv4Network("224.0.0.0/24")
    return a.packed[0] == 0xFF and a.packed[1] & 0x0F == 2


_BROADCAST = ipaddress.IPv4Address("255.255.255.255")
for _name, _id, _test in (
    ("isUnspecified", "ip_is_unspecified", lambda a: a.is_unspecified), ("isLoopback", "ip_is_loopback", lambda a: a.is_loopback),
    ("isLinkLocalMulticast", "ip_is_link_local_multicast", _link_local_multicast),
    ("isLinkLocalUnicast", "ip_is_link_local_unicast", lambda a: a.is_link_local),
    ("isGlobalUnicast", "ip_is_global_unicast",
     lambda a: not (a.is_unspecified or a.is_loopback or a.is_multicast or a.is_link_local or a == _BROADCAST)),
):  # fmt: skip

    @LIB(_name, on(_id, [IP_TYPE], BOOL), cost=one)
    def _is(v: Any, test: Any = _test) -> bool:
        _of(IPValue, v)
        return bool(test(v.address))


_TWICE = "network address parse error during conversion from string: "


@LIB("cidr", plain("string_to_cidr", [STRING], CIDR_TYPE), cost=of_first())
def to_cidr(text: Any) -> CIDRValue:
    """``cidr(text)``. Raises EvaluationError in ``netip.ParsePrefix``'s words."""
    _of(str, text)
    try:
        ip, bits = parse_prefix(text)
    except ValueError as e:
        raise EvaluationError(f"{_TWICE}{_TWICE}{e}") from None
    if ip.is_mapped:
        raise EvaluationError(f"{_TWICE}IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return CIDRValue(ip, bits)


LIB("isCIDR", plain("is_cidr", [STRING], BOOL), cost=of_first())(_valid(to_cidr))


def _contains_cost(extra: bool, by_text: str):
    def cost(overload: str, args: list[Any], result: Any) -> int:
        n = size(args[0])
        total = traversal(2 * n) + (traversal(n) + 1 if extra else 0)
        return total + (traversal(size(args[1])) if overload == by_text else 0)

    return cost


@LIB(
    "containsIP", on("cidr_contains_ip_string", [CIDR_TYPE, STRING], BOOL), on("cidr_contains_ip_ip", [CIDR_TYPE, IP_TYPE], BOOL),
    cost=_contains_cost(False, "cidr_contains_ip_string"),
)  # fmt: skip
def _contains_ip(c: Any, v: Any) -> bool:
    _of(CIDRValue, c)
    if not isinstance(v, IPValue):
        try:
            v = to_ip(v)
        except EvaluationError:
            raise EvaluationError(NO_OVERLOAD) from None  # upstream's only message for a text that is not an address
    return c.masked(v.ip) == c.masked(c.ip)


@LIB(
    "containsCIDR", on("cidr_contains_cidr_string", [CIDR_TYPE, STRING], BOOL), on("cidr_contains_cidr", [CIDR_TYPE, CIDR_TYPE], BOOL),
    cost=_contains_cost(True, "cidr_contains_cidr_string"),
)  # fmt: skip
def _contains_cidr(c: Any, v: Any) -> bool:
    _of(CIDRValue, c)
    other = v if isinstance(v, CIDRValue) else to_cidr(v)
    return c.prefix <= other.prefix and c.masked(other.ip) == c.masked(c.ip)


@LIB("prefixLength", on("cidr_prefix_length", [CIDR_TYPE], INT), cost=one)
def _prefix_length(c: Any) -> int:
    _of(CIDRValue, c)
    return c.prefix


@LIB("masked", on("cidr_masked", [CIDR_TYPE], CIDR_TYPE), cost=one)
def _masked(c: Any) -> CIDRValue:
    _of(CIDRValue, c)
    shift = c.ip.bits - c.prefix
    return CIDRValue(IP(c.ip.number >> shift << shift, c.ip.bits), c.prefix)


# --- URLs: Go's ``url.URL``


class URLValue(Opaque):
    """A value of type kubernetes.URL. Raises ValueError in Go's words if the text is not one."""

    __slots__ = ("url",)
    cel_type = URL

    def __init__(self, text: str) -> None:
        try:
            parse_request_uri(text)  # requires a scheme or a path, and does not parse fragments
        except ValueError as e:
            raise ValueError(f"parse {go_quote(text)}: {e}") from None
        self.url = parse_url(text)

    def key(self) -> str:
        """The normalized text, by which values are compared."""
        return str(self.url)

    def __str__(self) -> str:
        return str(self.url)


@LIB("url", plain("string_to_url", [STRING], URL), cost=of_first())
def to_url(text: Any) -> URLValue:
    """``url(text)``. Raises EvaluationError unless the text is an absolute URL or path."""
    _of(str, text)
    try:
        return URLValue(text)
    except ValueError as e:
        raise EvaluationError(f"URL parse error during conversion from string: {e}") from None


@LIB("isURL", plain("is_url_string", [STRING], BOOL))
def _is_url(text: Any) -> bool:
    _of(str, text)
    return strfmt.is_uri(text)


for _name, _suffix, _result, _get in (
    ("getScheme", "get_scheme", STRING, lambda u: u.scheme), ("getHost", "get_host", STRING, lambda u: u.host),
    ("getHostname", "get_hostname", STRING, lambda u: u.hostname), ("getPort", "get_port", STRING, lambda u: u.port),
    ("getEscapedPath", "get_escaped_path", STRING, lambda u: u.escaped_path),
    ("getQuery", "get_query", map_of(STRING, list_of(STRING)), GoURL.values),
):  # fmt: skip

    @LIB(_name, on(f"url_{_suffix}", [URL], _result), cost=one)
    def _part(u: Any, get: Any = _get) -> Any:
        _of(URLValue, u)
        return get(u.url)


# --- formats


class FormatValue(Opaque):
    """A named format: ``check`` returns a text's errors; ``regex_size`` is the size of upstream's pattern, used for costs."""

    __slots__ = ("check", "name", "regex_size")
    cel_type = FORMAT

    def __init__(self, name: str, check: Callable[[str], list[str]], regex_size: int) -> None:
        self.name, self.check, self.regex_size = name, check, regex_size

    def key(self) -> str:
        """The name, by which values are compared."""
        return self.name


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except ValueError as e:
        return [f"parse {go_quote(text)}: {e}"]
    return []


def _said(valid: Callable[[str], object], message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if valid(text) else [message]


# The pattern sizes that upstream charges for: for the last five the lengths of the patterns in govalidator (URL, Base64) and strfmt
# (UUIDPattern, DateTimePattern), however they are checked.
FORMATS = {
    name: FormatValue(shown, check, n)
    for name, shown, check, n in (
        ("dns1123Label", "DNS1123Label", lambda s: names.dns_label(s, False), 30),
        ("dns1123Subdomain", "DNS1123Subdomain", lambda s: names.dns_subdomain(s, False), 60),
        ("dns1035Label", "DNS1035Label", lambda s: names.dns1035_label(s, False), 30),
        ("qualifiedName", "QualifiedName", names.is_qualified_name, 60),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", lambda s: names.dns_label(s, True), 30),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", lambda s: names.dns_subdomain(s, True), 60),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", lambda s: names.dns1035_label(s, True), 30),
        ("labelValue", "LabelValue", names.is_label_value, 40),
        ("uri", "URI", _uri, 1103),
        ("uuid", "uuid", _said(strfmt.FORMATS["uuid"], "does not match the UUID format"), 70),
        ("byte", "byte", _said(strfmt.FORMATS["byte"], "invalid base64"), 84),
        ("date", "date", _said(strfmt.FORMATS["date"], "invalid date"), 71),
        ("datetime", "datetime", _said(strfmt.FORMATS["datetime"], "invalid datetime"), 71),
    )
}


def _validate_cost(overload: str, args: list[Any], result: Any) -> int:
    return regex_cost(size(args[1]), args[0].regex_size) if isinstance(args[0], FormatValue) else 1


@LIB("validate", on("format-validate", [FORMAT, STRING], optional_of(list_of(STRING))), cost=_validate_cost)
def _validate(f: Any, text: Any) -> Optional:
    _of(FormatValue, f)
    _of(str, text)
    found = f.check(text)
    return Optional(found) if found else NONE


@LIB("format.named", plain("format-named", [STRING], optional_of(FORMAT)), cost=one)
def _named(name: Any) -> Optional:
    _of(str, name)
    return Optional(FORMATS[name]) if name in FORMATS else NONE


for _name, _format in FORMATS.items():
    LIB(f"format.{_name}", plain(f"format.{_name}", [], FORMAT))(lambda f=_format: f)


# --- authorizers. What runs them brings a value with these methods.


def _asked(method: str) -> Callable[..., Any]:
    def run(target: Any, *args: Any) -> Any:
        found = getattr(target, f"cel_{method}", None)
        if found is None:
            raise EvaluationError(NO_OVERLOAD)
        return found(*args)

    return run


def _authz(name: str, *overloads: tuple[str, list[Type], Type], cost: Cost = one) -> None:
    LIB(name, *(on(*o) for o in overloads), cost=cost)(_asked(name))


_REQUIREMENT = 10 + 40  # a new list and a new object


def _to_parse(overload: str, args: list[Any], result: Any) -> int:
    """Return the cost of parsing a selector: every second character may become a requirement, an object with a list."""
    n = size(args[1])
    return 10 + traversal(n) + (n + 1) // 2 * _REQUIREMENT


_authz("path", ("authorizer_path", [AUTHORIZER, STRING], PATH_CHECK))
_authz("group", ("authorizer_group", [AUTHORIZER, STRING], GROUP_CHECK))
_authz("serviceAccount", ("authorizer_serviceaccount", [AUTHORIZER, STRING, STRING], AUTHORIZER))
_authz("resource", ("groupcheck_resource", [GROUP_CHECK, STRING], RESOURCE_CHECK))
_authz("subresource", ("resourcecheck_subresource", [RESOURCE_CHECK, STRING], RESOURCE_CHECK))
_authz("namespace", ("resourcecheck_namespace", [RESOURCE_CHECK, STRING], RESOURCE_CHECK))
_authz("name", ("resourcecheck_name", [RESOURCE_CHECK, STRING], RESOURCE_CHECK))
_authz("fieldSelector", ("authorizer_fieldselector", [RESOURCE_CHECK, STRING], RESOURCE_CHECK), cost=_to_parse)
_authz("labelSelector", ("authorizer_labelselector", [RESOURCE_CHECK, STRING], RESOURCE_CHECK), cost=_to_parse)
_authz(
    "check", ("pathcheck_check", [PATH_CHECK, STRING], DECISION), ("resourcecheck_check", [RESOURCE_CHECK, STRING], DECISION),
    cost=lambda overload, args, result: 350_000,
)  # fmt: skip
_authz("errored", ("decision_errored", [DECISION], BOOL))
_authz("error", ("decision_error", [DECISION], STRING))
_authz("allowed", ("decision_allowed", [DECISION], BOOL))
_authz("reason", ("decision_reason", [DECISION], STRING))
