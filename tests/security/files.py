"""The files of a recorded server: texts, and certificates made from recipes (see tests/vectors/data/README.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509

from tests import pki


class Files:
    """Writes them into a directory; CAs are kept, because later certificates are issued by them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.issued: dict[str, pki.Issued] = {}

    def path(self, name: str) -> Path:
        return self.directory / name

    def put(self, name: str, what: Any, fill: Callable[[str], str]) -> None:
        """``what`` is a text or a recipe; ``fill`` replaces ``${…}``."""
        if isinstance(what, str):
            self.path(name).write_text(fill(what))
        elif "json" in what:
            self.path(name).write_text(fill(json.dumps(what["json"])))
        elif "concat" in what:
            self.path(name).write_bytes(b"\n".join(self.path(n).read_bytes() for n in what["concat"]))
        else:
            self.issued[name] = issued = self._issue(what)
            self.path(name).write_bytes(issued.pem)
            self.path(name).with_suffix(".key").write_bytes(issued.key_pem)

    def _issue(self, r: dict[str, Any]) -> pki.Issued:
        permitted = [*map(x509.DNSName, r.get("permittedDNS", ())), *map(x509.UniformResourceIdentifier, r.get("permittedURI", ()))]
        return pki.issue(
            r["ca"] if "ca" in r else r["cert"], self.issued[r["by"]] if "by" in r else None,
            ca=True if "ca" in r or r.get("isCA") else None, usages=r.get("eku", ["client"]), begins_s=r.get("notBefore", -3600),
            ends_s=r.get("notAfter", 86400), path_length=r.get("pathlen"), dns=r.get("dns", ()), uris=r.get("uri", ()), ips=r.get("ip", ()),
            emails=r.get("email", ()), permitted=permitted, key=self.issued[r["sameKeyAs"]].key if "sameKeyAs" in r else None,
            chain=[self.issued[n] for n in r.get("chain", ())],
        )  # fmt: skip
