"""What the ConfigMap ``kube-system/extension-apiserver-authentication`` says: by which certificates and headers the API servers of a
cluster, all of them, know who asks.

Upstream: ``pkg/controlplane/controller/clusterauthenticationtrust``. A server adds what is its own to what others wrote: otherwise two
with different authorities, as while these are replaced, would each take away what the other says.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time

import orjson

from kas.meta.pem import pem_blocks, unreadable

CLIENT_CA, PROXY_CA = "client-ca-file", "requestheader-client-ca-file"
LISTS = ("allowed-names", "extra-headers-prefix", "group-headers", "uid-headers", "username-headers")
_EXPIRED_FOR_S = 300.0
_MOST = 1 << 20  # bytes of a ConfigMap's data
_LINE = 64


def combined(known: dict[str, str], client_ca: str, proxy_ca: str, lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The data ``known`` with what a server wants in it. What cannot be read of it, and expired certificates, go; so does all of it
    when both together were too much for a ConfigMap."""
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
    """``data``, which ``combined`` has made of nothing, put into ``known``."""
    lists = {key: _strings(data.get(f"requestheader-{key}", "")) for key in LISTS}
    return combined(known, data.get(CLIENT_CA, ""), data.get(PROXY_CA, ""), lists)


def _certificates(*bundles: str) -> str:
    """Those of ``bundles`` that have not expired, each once."""
    if not any(bundles):
        return ""
    from cryptography import x509  # 4 MiB that only some servers need

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
    """Files of certificates, as they were when last they could be read."""

    def __init__(self) -> None:
        self._read: dict[str, str] = {}
        self._seen: dict[str, tuple[int, ...]] = {}

    def changed(self) -> bool:
        """Whether one that was read has changed since this was last asked."""
        seen, self._seen = self._seen, {file: _stamp(file) for file in list(self._read)}
        return any(self._seen[file] != stamp for file, stamp in seen.items())

    def of(self, file: str) -> str:
        """The text of a file; "" for none. Raises ``OSError`` when it never could be read."""
        if not file:
            return ""
        try:
            self._seen.setdefault(file, _stamp(file))
            self._read[file] = Path(file).read_text(errors="replace")
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
