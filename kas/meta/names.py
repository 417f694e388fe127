"""Validation of names, labels, keys, port names and so on: apimachinery's ``util/validation`` and ``api/validate/content``.

Every ``is_*`` function returns a list of error messages in upstream's words, which is empty for a valid text. Lengths count UTF-8 bytes, as
in Go. ``fully_qualified_*`` and ``domain_prefixed_*`` return field errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kas.meta import field
from kas.meta.field import FieldError

# (name, whether it is a prefix (generateName)) -> error messages
NameFunction = Callable[[str, bool], list[str]]

_DNS1123_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN = rf"{_DNS1123_LABEL}(\.{_DNS1123_LABEL})*"
_DNS1123_UNDERSCORE = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN_UNDERSCORE = rf"{_DNS1123_UNDERSCORE}(\.{_DNS1123_UNDERSCORE})*"
_WILDCARD = rf"\*\.{_DNS1123_SUBDOMAIN}"
_DNS1035_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_LABEL_KEY})?"
_C_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_CONFIG_MAP_KEY = r"[-._a-zA-Z0-9]+"
_HTTP_HEADER = r"[-A-Za-z0-9]+"
_HTTP_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_PERCENT = r"[0-9]+%"
_PORT_NAME = r"[-a-z0-9]+"

SUBDOMAIN_MAX_LENGTH = 253
LABEL_MAX_LENGTH = 63


def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


# The patterns above are upstream's, for its RE2, and appear in messages. A backtracking engine takes quadratic time and worse on their
# nested repeats. These describe the same languages by the characters allowed and by what may not stand side by side: one possessive
# repeat of a character class never backtracks. (A possessive repeat of a group would, wrongly, before Python 3.11.5: gh-106052.)
_LINEAR_LABEL = r"[a-z0-9][-a-z0-9]*+(?<!-)"
_LINEAR_SUBDOMAIN = r"(?![^/]*(?:\.[-.]|-\.))[a-z0-9][-a-z0-9.]*+(?<![-.])"
_LINEAR_UNDERSCORE_SUBDOMAIN = r"(?!.*(?:\.(?!_?[a-z0-9])|[-_]\.))_?[a-z0-9][-_a-z0-9.]*+(?<![-_.])"
_LINEAR_KEY = r"[A-Za-z0-9][-A-Za-z0-9_.]*+(?<![-_.])"

_match_label = _matcher(_LINEAR_LABEL)
_match_subdomain = _matcher(_LINEAR_SUBDOMAIN)
_match_underscore_subdomain = _matcher(_LINEAR_UNDERSCORE_SUBDOMAIN)
_match_dns1035 = _matcher(r"[a-z][-a-z0-9]*+(?<!-)")
_match_label_key = _matcher(_LINEAR_KEY)
# A whole qualified name of proper lengths, so that the usual key costs one match.
_match_qualified_name = _matcher(rf"(?:(?=[^/]{{1,253}}/){_LINEAR_SUBDOMAIN}/)?(?=[^/]{{1,63}}\Z){_LINEAR_KEY}")
_match_c_identifier = _matcher(_C_IDENTIFIER)
_match_config_map_key = _matcher(_CONFIG_MAP_KEY)
# A key that is neither too long nor starts with a dot, so that the common key costs one match.
_match_undotted_config_map_key = _matcher(r"[-_a-zA-Z0-9][-._a-zA-Z0-9]{0,252}")
_match_http_header = _matcher(_HTTP_HEADER)
_match_http_path = _matcher(_HTTP_PATH)
_match_percent = _matcher(_PERCENT)
_match_port_name = _matcher(_PORT_NAME)
_has_letter = re.compile("[a-z]").search


def byte_length(text: str) -> int:
    """The length of a text in UTF-8 bytes, as in Go; a lone surrogate counts as the three bytes of its encoding."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def regex_error(message: str, pattern: str, *examples: str) -> str:
    """Upstream's ``RegexError``: the rule, examples, the expression."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{e}', " for e in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


def max_length_error(length: int) -> str:
    """``MaxLenError``."""
    return f"must be no more than {length} characters"


def max_bytes_error(length: int) -> str:
    """``MaxLenError`` for limits stated in bytes."""
    return f"must be no more than {length} bytes"


EMPTY_ERROR = "must be non-empty"

_LABEL_ERROR = regex_error(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start and end with an alphanumeric character",
    _DNS1123_LABEL, "my-name", "123-abc",
)  # fmt: skip
_SUBDOMAIN_ERROR = regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
    _DNS1123_SUBDOMAIN, "example.com",
)  # fmt: skip
_SUBDOMAIN_CASELESS_ERROR = regex_error(
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    _DNS1123_SUBDOMAIN, "Example.com",
)  # fmt: skip
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}  # ASCII only
_SUBDOMAIN_UNDERSCORE_ERROR = regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.',"
    " and must start and end with an alphanumeric character",
    _DNS1123_SUBDOMAIN_UNDERSCORE, "example.com",
)  # fmt: skip
_WILDCARD_ERROR = regex_error(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of"
    " lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    _WILDCARD, "*.example.com",
)  # fmt: skip
_DNS1035_ERROR = regex_error(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character",
    _DNS1035_LABEL, "my-name", "abc-123",
)  # fmt: skip
_LABEL_KEY_ERROR = regex_error(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _LABEL_KEY, "MyName", "my.name", "123-abc",
)  # fmt: skip
_LABEL_VALUE_ERROR = regex_error(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    _LABEL_VALUE, "MyValue", "my_value", "12345",
)  # fmt: skip
_C_IDENTIFIER_ERROR = regex_error(
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
    _C_IDENTIFIER, "my_name", "MY_NAME", "MyName",
)  # fmt: skip
_RELAXED_ENV_VAR_ERROR = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIG_MAP_KEY_ERROR = regex_error(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'", _CONFIG_MAP_KEY, "key.name", "KEY_NAME", "key-name"
)
_HTTP_HEADER_ERROR = regex_error("a valid HTTP header must consist of alphanumeric characters or '-'", _HTTP_HEADER, "X-Header-Name")
_PERCENT_ERROR = regex_error("a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%")


def is_dns1123_label(text: str) -> list[str]:
    """``IsDNS1123Label`` (RFC 1123)."""
    if len(text) <= LABEL_MAX_LENGTH and _match_label(text):
        return []
    errors = [max_length_error(LABEL_MAX_LENGTH)] if byte_length(text) > LABEL_MAX_LENGTH else []
    if not _match_label(text):
        # A valid subdomain that is not a label can only have dots too many.
        errors.append("must not contain dots" if _match_subdomain(text) else _LABEL_ERROR)
    return errors


def is_dns1123_subdomain(text: str) -> list[str]:
    """``IsDNS1123Subdomain``."""
    valid = _match_subdomain(text) is not None
    if valid and len(text) <= SUBDOMAIN_MAX_LENGTH:
        return []
    errors = [max_length_error(SUBDOMAIN_MAX_LENGTH)] if byte_length(text) > SUBDOMAIN_MAX_LENGTH else []
    if not valid:
        errors.append(_SUBDOMAIN_ERROR)
    return errors


def is_dns1123_subdomain_caseless(text: str) -> list[str]:
    """``IsDNS1123SubdomainCaseless``: accepts letters of either case."""
    return [_SUBDOMAIN_CASELESS_ERROR if e is _SUBDOMAIN_ERROR else e for e in is_dns1123_subdomain(text.translate(_LOWER))]


def is_dns1123_subdomain_with_underscore(text: str) -> list[str]:
    """``IsDNS1123SubdomainWithUnderscore``."""
    errors = [max_length_error(SUBDOMAIN_MAX_LENGTH)] if byte_length(text) > SUBDOMAIN_MAX_LENGTH else []
    if not _match_underscore_subdomain(text):
        errors.append(_SUBDOMAIN_UNDERSCORE_ERROR)
    return errors


def is_wildcard_dns1123_subdomain(text: str) -> list[str]:
    """``IsWildcardDNS1123Subdomain``: "*." and a subdomain."""
    errors = [max_length_error(SUBDOMAIN_MAX_LENGTH)] if byte_length(text) > SUBDOMAIN_MAX_LENGTH else []
    if not (text.startswith("*.") and _match_subdomain(text[2:])):
        errors.append(_WILDCARD_ERROR)
    return errors


def is_dns1035_label(text: str) -> list[str]:
    """``IsDNS1035Label`` (RFC 1035): starts with a letter."""
    errors = [max_length_error(LABEL_MAX_LENGTH)] if byte_length(text) > LABEL_MAX_LENGTH else []
    if not _match_dns1035(text):
        errors.append(_DNS1035_ERROR)
    return errors


def is_qualified_name(text: str) -> list[str]:
    """``IsQualifiedName``: ``[prefix/]name``, as of a label or annotation key, finalizer or condition type."""
    if _match_qualified_name(text):
        return []
    parts = text.split("/")
    if len(parts) > 2:
        return [f"a valid label key {_LABEL_KEY_ERROR} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    errors = []
    if len(parts) == 2:
        prefix = parts[0]
        if not prefix:
            errors.append(f"prefix part {EMPTY_ERROR}")
        else:
            if byte_length(prefix) > SUBDOMAIN_MAX_LENGTH:
                errors.append(f"prefix part {max_bytes_error(SUBDOMAIN_MAX_LENGTH)}")
            if not _match_subdomain(prefix):
                errors.append(f"prefix part {_SUBDOMAIN_ERROR}")
    name = parts[-1]
    if not name:
        errors.append(f"name part {EMPTY_ERROR}")
    elif byte_length(name) > LABEL_MAX_LENGTH:
        errors.append(f"name part {max_bytes_error(LABEL_MAX_LENGTH)}")
    if not _match_label_key(name):
        errors.append(f"name part {_LABEL_KEY_ERROR}")
    return errors


def is_label_value(text: str) -> list[str]:
    """``IsValidLabelValue``: an empty value is valid."""
    valid = not text or _match_label_key(text) is not None
    if valid and len(text) <= LABEL_MAX_LENGTH:
        return []
    errors = [max_bytes_error(LABEL_MAX_LENGTH)] if byte_length(text) > LABEL_MAX_LENGTH else []
    if not valid:
        errors.append(_LABEL_VALUE_ERROR)
    return errors


def is_c_identifier(text: str) -> list[str]:
    """``IsCIdentifier``."""
    return [] if _match_c_identifier(text) else [_C_IDENTIFIER_ERROR]


def is_percent(text: str) -> list[str]:
    """``IsValidPercent``: "5%"."""
    return [] if _match_percent(text) else [_PERCENT_ERROR]


def is_http_header_name(text: str) -> list[str]:
    """``IsHTTPHeaderName``."""
    return [] if _match_http_header(text) else [_HTTP_HEADER_ERROR]


def is_http_path(text: str) -> bool:
    """Whether the text has only the characters that RFC 3986 allows in a path."""
    return _match_http_path(text) is not None


def is_relaxed_env_var_name(text: str) -> list[str]:
    """The rule for environment variable names since 1.34 (KEP-4369)."""
    if not text:
        return [f"environment variable name {EMPTY_ERROR}"]
    return [] if all(" " <= c <= "~" and c != "=" for c in text) else [_RELAXED_ENV_VAR_ERROR]


def is_config_map_key(text: str) -> list[str]:
    """``IsConfigMapKey``: a key of a ConfigMap's or Secret's data."""
    if _match_undotted_config_map_key(text):
        return []
    errors = [max_length_error(SUBDOMAIN_MAX_LENGTH)] if byte_length(text) > SUBDOMAIN_MAX_LENGTH else []
    if not _match_config_map_key(text):
        errors.append(_CONFIG_MAP_KEY_ERROR)
    return errors + _climbs(text)


def _climbs(text: str) -> list[str]:
    if text in (".", ".."):
        return [f"must not be '{text}'"]
    return ["must not start with '..'"] if text.startswith("..") else []


def is_port_name(text: str) -> list[str]:
    """``IsValidPortName``: an IANA service name (RFC 6335)."""
    errors = [max_length_error(15)] if byte_length(text) > 15 else []
    if not _match_port_name(text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def is_port_number(port: int) -> list[str]:
    """``IsValidPortNum``: 1 to 65535."""
    return [] if 1 <= port <= 65535 else [in_range_error(1, 65535)]


def in_range_error(low: int, high: int) -> str:
    """``InclusiveRangeError``."""
    return f"must be between {low} and {high}, inclusive"


def is_path_segment_name(text: str) -> list[str]:
    """``IsValidPathSegmentName``: the minimum for object names, one segment of a URL path."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return is_path_segment_prefix(text) if "/" in text or "%" in text else []


# Upstream's name.
is_valid_path_segment_name = is_path_segment_name


def is_path_segment_prefix(text: str) -> list[str]:
    """``IsValidPathSegmentPrefix``: the start of a segment of a URL path."""
    return [f"may not contain '{c}'" for c in "/%" if c in text]


def path_segment(name: str, prefix: bool) -> list[str]:
    """``ValidatePathSegmentName``: a name, or the prefix of a name that will be generated."""
    return is_path_segment_prefix(name) if prefix else is_path_segment_name(name)


def _mask_trailing_dash(name: str) -> str:
    # "my-name-" is a valid generateName, although no name may end so. Upstream replaces the last two bytes by an "a", and validates the
    # resulting name.
    if len(name) < 2 or not name.endswith("-"):
        return name
    # two bytes; of a multi-byte character a part remains, which no name may contain
    return f"{name[:-2] if name[-2].isascii() else name[:-1]}a"


def dns_subdomain(name: str, prefix: bool) -> list[str]:
    """``NameIsDNSSubdomain``, the rule of most kinds."""
    return is_dns1123_subdomain(_mask_trailing_dash(name) if prefix else name)


def dns_label(name: str, prefix: bool) -> list[str]:
    """``NameIsDNSLabel``; also the rule for namespaces."""
    return is_dns1123_label(_mask_trailing_dash(name) if prefix else name)


def dns1035_label(name: str, prefix: bool) -> list[str]:
    """``NameIsDNS1035Label``, the rule for services."""
    return is_dns1035_label(_mask_trailing_dash(name) if prefix else name)


def fully_qualified_name(path: str, name: str) -> list[FieldError]:
    """``IsFullyQualifiedName``: a DNS subdomain of at least three segments."""
    if not name:
        return [field.required(path)]
    errors = is_dns1123_subdomain(name)
    if errors:
        return [field.invalid(path, name, ",".join(errors))]
    if name.count(".") < 2:
        return [field.invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def fully_qualified_domain_name(path: str, name: str) -> list[FieldError]:
    """``IsFullyQualifiedDomainName``: at least two segments, each a label; a closing dot is allowed."""
    if not name:
        return [field.required(path)]
    name = name.removesuffix(".")
    errors = is_dns1123_subdomain(name)
    if errors:
        return [field.invalid(path, name, ",".join(errors))]
    labels = name.split(".")
    if len(labels) < 2:
        return [field.invalid(path, name, "should be a domain with at least two segments separated by dots")]
    for label in labels:
        errors = is_dns1123_label(label)
        if errors:
            return [field.invalid(path, label, ",".join(errors))]
    return []


def domain_prefixed_key(path: str, text: str) -> list[FieldError]:
    """``acme.io/foo``: a label key with a domain."""
    if not text:
        return [field.required(path)]
    errors = [field.invalid(path, text, message) for message in is_qualified_name(text)]
    if not errors and "/" not in text:
        errors.append(field.invalid(path, text, 'must be a domain-prefixed key (such as "acme.io/foo")'))
    return errors


def domain_prefixed_path(path: str, text: str) -> list[FieldError]:
    """``acme.io/foo/bar``: a domain and a URL path, as a controller's or scheduler's name."""
    if not text:
        return [field.required(path)]
    host, _, rest = text.partition("/")
    if not host or not rest:
        return [field.invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    errors = [field.invalid(path, host, message) for message in is_dns1123_subdomain(host)]
    if not is_http_path(rest):
        errors.append(field.invalid(path, rest, regex_error("Invalid path", _HTTP_PATH)))
    return errors
