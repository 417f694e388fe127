"""Content negotiation: the media type of a response and of a body, as in ``endpoints/handlers/negotiation``.

Pure functions of header texts. Results for an Accept header are memoised, since clients send few different ones; the
memo is bounded and emptied when full. Refusals are ApiErrors with upstream's lists (406, 415).
"""

from __future__ import annotations

import re

from kas.meta import errors
from kas.meta.records import NamedTuple
from kas.observe.caches import Cache

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TEXT = "text/plain"
SUPPORTED = (JSON, YAML, PROTOBUF)
STREAMABLE = (JSON, PROTOBUF)

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
CUSTOM_PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)

PAGE_VERSIONS = ("v1beta1", "v1alpha1")  # of Statusz and Flagz

_PARTIAL = ("PartialObjectMetadata", "PartialObjectMetadataList")


class Convert(NamedTuple):
    """The kind that a response is converted to (``as``, ``v``, ``g``)."""

    group: str
    version: str
    kind: str


class MediaType(NamedTuple):
    """The form of a response.

    ``media_type`` is one of those offered, ``convert`` the requested conversion, ``stream`` is "watch" or "",
    ``pretty`` what the Accept header asks for (see ``is_pretty`` for the query and the user agent).
    """

    media_type: str
    convert: Convert | None = None
    stream: str = ""
    pretty: bool = False
    export: bool = False
    use_server_version: str = ""
    unrecognized: tuple[str, ...] = ()


class Restrictions(NamedTuple):
    """What an endpoint supports: the media types of its own objects, whether there are Tables of them, and whether
    they are converted at all. ``page`` is the kind of a debugging page, which is plain text unless that kind is
    requested."""

    media_types: tuple[str, ...] = SUPPORTED
    table: bool = True
    page: str = ""
    conversions: bool = True

    @property
    def offered(self) -> tuple[str, ...]:
        """The media types that an Accept header is matched with, and that the error names if none matches."""
        return (JSON, YAML, TEXT) if self.page else SUPPORTED

    def allows(self, media_type: str, convert: Convert | None) -> bool:
        """Whether a response may have this media type, and this conversion to a Table or to metadata."""
        if self.page:
            if convert is None or media_type not in (JSON, YAML):
                return convert is None and media_type == TEXT
            return convert.group == "config.k8s.io" and convert.version in PAGE_VERSIONS and convert.kind == self.page
        if convert is None:
            return media_type in self.media_types
        if not self.conversions or convert.group != "meta.k8s.io" or convert.version not in ("v1", "v1beta1"):
            return False
        if convert.kind == "Table":
            # A Table's cells are free-form JSON; it has no protobuf form.
            return self.table and media_type in (JSON, YAML)
        return convert.kind in _PARTIAL


LONGEST_ACCEPT = 16 << 10  # some hundred clauses; a longer header accepts nothing

BUILT_IN = Restrictions()
# Custom resources have no protobuf form, but their metadata has one.
CUSTOM = Restrictions(media_types=(JSON, YAML))
# Reviews, tokens, evictions and bindings: responses that have no columns.
NO_TABLE = Restrictions(table=False)
# Errors, which are not objects of the endpoint.
NO_CONVERSION = Restrictions(conversions=False)

# Long headers are not remembered.
_memo: Cache[tuple[str, Restrictions], MediaType | None] = Cache("media_types", "Accept headers and what they come to", 1 << 20, 1024)


def negotiate(accept: str, restrictions: Restrictions = BUILT_IN) -> MediaType:
    """The media type for a response. Raises ApiError 406."""
    key = (accept, restrictions)
    try:
        found = _memo.entries[key]
    except KeyError:
        found = _negotiate(accept, restrictions)
        _memo.put(key, found, len(accept))
    if found is None:
        raise not_acceptable(restrictions.offered)
    return found


def negotiate_stream(accept: str, restrictions: Restrictions = BUILT_IN) -> MediaType:
    """The media type for a watch, which must be one for a list; YAML has no framing. Raises ApiError 406."""
    found = negotiate(accept, restrictions)
    if found.media_type not in STREAMABLE:
        raise not_acceptable(tuple(f"{media};stream=watch" for media in STREAMABLE))
    return found


def not_acceptable(accepted: tuple[str, ...]) -> errors.ApiError:
    """406 in upstream's words, with the media types that are supported."""
    return errors.not_acceptable(f"only the following media types are accepted: {', '.join(accepted)}")


def unsupported(accepted: tuple[str, ...]) -> errors.ApiError:
    """415 in upstream's words, with the media types that a body may have."""
    return errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    )


def _negotiate(accept: str, restrictions: Restrictions) -> MediaType | None:
    if not accept:
        return MediaType(SUPPORTED[0])
    for clause in parse_accept(accept):
        for media_type in restrictions.offered:
            kind, _, sub = media_type.partition("/")
            if (clause.type, clause.sub) in ((kind, sub), (kind, "*"), ("*", "*")):
                found = _options(clause.params, media_type, restrictions)
                if found is not None:
                    return found
    return None


def _options(params: dict[str, str], media_type: str, restrictions: Restrictions) -> MediaType | None:
    convert = None
    if not params.keys().isdisjoint(("as", "g", "v")):
        convert = Convert(params.get("g", ""), params.get("v", ""), params.get("as", ""))
    stream = params.get("stream", "")
    if stream and (media_type not in STREAMABLE or stream != "watch"):
        return None
    version = params.get("sv", "")
    if version and version != "v1":
        return None
    if not restrictions.allows(media_type, convert):
        return None
    return MediaType(
        media_type,
        convert,
        stream,
        params.get("pretty") == "1",
        params.get("export") == "1",
        version,
        tuple(sorted(params.keys() - {"as", "g", "v", "stream", "sv", "pretty", "export"})),
    )


class Clause(NamedTuple):
    """One alternative of an Accept header."""

    type: str
    sub: str
    q: float
    params: dict[str, str]


def parse_accept(header: str) -> list[Clause]:
    """The clauses of an Accept header, best first (github.com/munnerz/goautoneg). Malformed clauses are left out,
    and all clauses of a header beyond ``LONGEST_ACCEPT``."""
    clauses: list[Clause] = []
    if len(header) > LONGEST_ACCEPT:
        return clauses
    for part in header.split(","):
        media, *params = part.strip(" ").split(";")
        kind, _, rest = media.partition("/")
        kind = kind.strip(" ")
        sub, _, more = rest.partition("/")
        if more or (not rest and kind != "*"):
            continue
        sub = sub.strip(" ") if rest else "*"
        q, known = 1.0, {}
        for param in params:
            name, _, rest = param.partition("=")
            value, _, more = rest.partition("=")
            if not rest or more:
                continue
            name = name.strip(" ")
            if name == "q":
                q = _quality(value)
            else:
                known[name] = value.strip(" ")
        clauses.append(Clause(kind, sub, q, known))
    return _sorted(clauses)


_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]{1,4})?\Z")


def _quality(text: str) -> float:
    """The result of Go's ParseFloat; 0 for what is not a number."""
    return float(text) if len(text) <= 64 and _FLOAT.match(text) else 0.0


def _before(a: Clause, b: Clause) -> bool:
    return a.q > b.q or (a.type != "*" and b.type == "*") or (a.sub != "*" and b.sub == "*")


def _sorted(clauses: list[Clause]) -> list[Clause]:
    # Upstream's comparison is not an ordering (a wildcard with a high q is both before and behind), so the result
    # depends on the algorithm: Go sorts up to twelve clauses by insertion. Longer lists get the intended order.
    if len(clauses) > 12:
        return sorted(clauses, key=lambda c: (-c.q, c.type == "*", c.sub == "*"))
    for i in range(1, len(clauses)):
        j = i
        while j > 0 and _before(clauses[j], clauses[j - 1]):
            clauses[j], clauses[j - 1] = clauses[j - 1], clauses[j]
            j -= 1
    return clauses


_TRUE = ("1", "t", "T", "TRUE", "true", "True")


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client accepts gzip. With any quality value it counts as refused, as in kube-apiserver: it may be 0."""
    return any(token.strip() == "gzip" for token in accept_encoding.split(","))


def is_pretty(pretty: str, user_agent: str) -> bool:
    """Whether JSON is indented: according to the ``pretty`` query parameter, else for browsers and command line tools."""
    if pretty:
        return pretty in _TRUE
    return user_agent.startswith(("curl", "Wget", "Mozilla/5.0"))


_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA = re.compile(rf"\s*({_TOKEN}(?:/{_TOKEN})?)\s*(?=;|\Z)")
_PARAM = re.compile(rf'\s*;\s*({_TOKEN})\s*=\s*({_TOKEN}|"(?:[^"\\\r\n]|\\.)*")\s*(?=;|\Z)')
_TAIL = re.compile(r"\s*+;?\s*+\Z")


def parse_media_type(header: str) -> tuple[str, dict[str, str]] | None:
    """Go's ``mime.ParseMediaType``: (type in lower case, parameters), None if malformed."""
    match = _MEDIA.match(header)
    if match is None:
        return None
    params: dict[str, str] = {}
    position = match.end()
    while not _TAIL.match(header, position):
        param = _PARAM.match(header, position)
        if param is None or param[1].lower() in params:
            return None
        value = param[2]
        params[param[1].lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
        position = param.end()
    return match[1].lower(), params


def body_media_type(content_type: str, accepted: tuple[str, ...] = SUPPORTED) -> str:
    """The media type of a request body; JSON if none is given. Raises ApiError 415."""
    if content_type in accepted:
        return content_type
    if not content_type:
        return accepted[0]
    parsed = parse_media_type(content_type)
    if parsed is None or parsed[0] not in accepted:
        raise unsupported(accepted)
    return parsed[0]


def patch_media_type(content_type: str, accepted: tuple[str, ...] = PATCH_TYPES) -> str:
    """The media type of a patch; what follows ``;`` is ignored. Raises ApiError 415."""
    index = content_type.find(";")
    if index > 0:
        content_type = content_type[:index]
    if content_type not in accepted:
        raise unsupported(accepted)
    return content_type
