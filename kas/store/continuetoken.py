"""The ``continue`` token of a chunked list: apiserver's ``storage/continue.go``.

A token names the next key below the list's prefix and the revision at which the list is consistent (-1: any). It is neither
secret nor signed; ``decode`` refuses keys outside the prefix.
"""

from __future__ import annotations

import base64
import posixpath
import re
from typing import Any

from kas.meta import gojson

VERSION = "meta.k8s.io/v1"

_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9_\-\r\n]")
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029", "\b": "\\b", "\f": "\\f"}
_ESCAPES |= {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ESCAPED = {**{i: f"\\u{i:04x}" for i in range(32)}, **{ord(c): text for c, text in _ESCAPES.items()}}


class ContinueError(ValueError):
    """An invalid token or key; ``str()`` is upstream's message."""


def encode(key: str, prefix: str, resource_version: int) -> str:
    """Returns the token to continue at ``key``. Raises ContinueError when ``key`` is not below ``prefix``."""
    start = key.removeprefix(prefix)
    if start == key:
        raise ContinueError("unable to encode next field: the key and key prefix do not match")
    text = f'{{"v":"{VERSION}","rv":{resource_version},"start":{_json_string(start)}}}'
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode("ascii")


def decode(token: str, prefix: str) -> tuple[str, int]:
    """Returns (key to start at, revision) of ``token``; the key is always below ``prefix``. Raises ContinueError."""
    try:
        data = gojson.loads(_decode_base64(token))
        value = _fields(data)
    except gojson.JSONError as e:
        raise ContinueError(f"continue key is not valid: {e}") from None
    version, revision, start = value["v"], value["rv"], value["start"]
    if version != VERSION:
        raise ContinueError(f"continue key is not valid: server does not recognize this encoded version {version}")
    if revision == 0:
        raise ContinueError(f"continue key is not valid: incorrect encoded start resourceVersion (version {VERSION})")
    if not start:
        raise ContinueError(f"continue key is not valid: encoded start key empty (version {VERSION})")
    # A token comes from the client: "../" must not climb out of the prefix.
    absolute = start if start.startswith("/") else f"/{start}"
    if _clean(absolute) != absolute:
        raise ContinueError(f"continue key is not valid: {start}")
    return prefix + absolute[1:], revision


def _clean(path: str) -> str:
    # posixpath keeps two leading slashes, Go's path.Clean does not.
    cleaned = posixpath.normpath(path)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def _decode_base64(token: str) -> bytes:
    raw = token.encode("utf-8", "surrogatepass")
    bad = _NOT_BASE64.search(raw)
    if bad:
        raise ContinueError(f"continue key is not valid: illegal base64 data at input byte {bad.start()}")
    text = raw.replace(b"\r", b"").replace(b"\n", b"")
    if len(text) % 4 == 1:
        raise ContinueError(f"continue key is not valid: illegal base64 data at input byte {len(raw) - 1}")
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


_TYPES: dict[str, tuple[type, str]] = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}


def _fields(data: Any) -> dict[str, Any]:
    """Returns the three fields by Go's rules: keys are case-insensitive, null and unknown keys are ignored, missing ones are
    zero values."""
    out: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
    if data is None:
        return out
    if not isinstance(data, dict):
        raise gojson.JSONError(gojson.cannot_unmarshal(data, "storage.continueToken"))
    for key, value in data.items():
        name = key.lower()
        if name not in _TYPES or value is None:
            continue
        kind, go_kind = _TYPES[name]
        if not isinstance(value, kind) or isinstance(value, bool) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            shown = f"number {value}" if gojson.go_type(value) == "number" and kind is int else gojson.go_type(value)
            raise gojson.JSONError(f"json: cannot unmarshal {shown} into Go struct field continueToken.{name} of type {go_kind}")
        out[name] = value
    return out


def _json_string(text: str) -> str:
    """Returns ``text`` as encoding/json writes it, which escapes more than JSON requires."""
    if text.isalnum() and text.isascii():
        return f'"{text}"'
    return f'"{text.translate(_ESCAPED)}"'
