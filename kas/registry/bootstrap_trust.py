"""The ConfigMap ``kube-system/extension-apiserver-authentication``: the certificates and headers by which all API servers of
a cluster authenticate clients.

Upstream: ``pkg/controlplane/controller/clusterauthenticationtrust``. A server adds its own data to those of other servers:
otherwise two servers with different authorities, as during a rotation, would each remove the other's.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from time import time

import orjson

from kas.meta.files import read_configuration
from kas.meta.pem import pem_blocks, unreadable

CLIENT_CA, PROXY_CA = "client-ca-file", "requestheader-client-ca-file"
LISTS = ("allowed-names", "extra-headers-prefix", "group-headers", "uid-headers", "username-headers")
_EXPIRED_FOR_S = 300.0
_MOST = 1 << 20  # bytes of a ConfigMap's data
_LINE = 64


def combined(known: dict[str, str], client_ca: str, proxy_ca: str, lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns the data ``known`` with a server's own data added. Unreadable data and expired certificates are dropped; so are
    all known data if both together would be too large for a ConfigMap."""
    data = {}
    if clients := _certificates(known.get(CLIENT_CA, ""), client_ca):
        data[CLIENT_CA] = clients
    if proxies := _certificates(known.get(PROXY_CA, ""), proxy_ca):
        data[PROXY_CA] = proxies
        for key in LISTS:
            values = dict.fromkeys((*_strings(known.get(f"requestheader-{key}", "")), *lists.get(key, ())))
            data[f"requestheader-{key}"] = orjson.dumps(list(values)).decode()
    if known and sum(len(k) + len(v.encode()) for k, v in data.items()) > _MOST:
        return combined({}, client_ca, proxy_ca, lists)
    return dict(sorted(data.items()))


def wanted(data: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    """Returns ``known`` with ``data`` added, which is a result of ``combined`` without known data."""
    lists = {key: _strings(data.get(f"requestheader-{key}", "")) for key in LISTS}
    return combined(known, data.get(CLIENT_CA, ""), data.get(PROXY_CA, ""), lists)


def _certificates(*bundles: str) -> str:
    """Returns the unexpired certificates of ``bundles``, each once."""
    if not any(bundles):
        return ""
    from cryptography import x509  # 6 MiB that a server without a client CA does not need

    found: dict[bytes, None] = {}
    for bundle in bundles:
        try:
            for block in pem_blocks(bundle.encode()):
                if block.kind == "CERTIFICATE" and not block.has_headers and block.der not in found:
                    if x509.load_der_x509_certificate(block.der).not_valid_after_utc.timestamp() > time() - _EXPIRED_FOR_S:
                        found[block.der] = None
        except unreadable():
            continue
    return "".join(map(_encoded, found))


def _encoded(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    return "\n".join(("-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""))


def _strings(text: str) -> list[str]:
    try:
        found = orjson.loads(text) if text else []
    except ValueError:
        return []
    return [s for s in found if isinstance(s, str)] if isinstance(found, list) else []


class Texts:
    """Certificate files, with the content of the last successful read."""

    def __init__(self) -> None:
        self._read: dict[str, str] = {}
        self._seen: dict[str, tuple[int, ...]] = {}

    def changed(self) -> bool:
        """Returns whether a file has changed since the last call."""
        seen, self._seen = self._seen, {file: _stamp(file) for file in list(self._read)}
        return any(self._seen[file] != stamp for file, stamp in seen.items())

    def of(self, file: str) -> str:
        """Returns the content of a file; "" for no file. Raises ``OSError`` if it could never be read."""
        if not file:
            return ""
        try:
            self._seen.setdefault(file, _stamp(file))
            self._read[file] = read_configuration(file).decode(errors="replace")
        except OSError:
            if file not in self._read:
                raise
        return self._read[file]


def _stamp(file: str) -> tuple[int, ...]:
    try:
        s = os.stat(file)
    except OSError:
        return ()
    return s.st_mtime_ns, s.st_size, s.st_ino
