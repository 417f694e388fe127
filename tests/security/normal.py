"""Normalizes answers as the recorded ones were: without times, uids, versions, tokens, addresses and digests, which differ from run to
run."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

HEADERS = ("content-type", "warning", "retry-after", "www-authenticate", "allow", "cache-control")
_TIMES = ("exp", "nbf", "iat", "warnafter")
_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_FIXED = [(re.compile(pattern), put) for pattern, put in (
    (r"eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)*", "<token>"),
    (r"X509SHA256=[0-9a-f]{64}", "X509SHA256=<sha256>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", "<time>"),
    (r"(resource version: )\d+(?: \(\d+\))?", r"\1<rv>"),
)]  # fmt: skip
_AGE = re.compile(r"(?:\d+[smhd])+")
_ADDRESS = re.compile(r"\b10\.0\.0\.\d+\b")


class Normal:
    """For one case: ``given`` replaces the case's own names, uids are numbered in order."""

    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._uids: dict[str, str] = {}

    def text(self, s: str) -> str:
        for own, put in self._given.items():
            s = s.replace(own, put)
        s = s.replace("\u00a0", " ")
        for pattern, put in _FIXED:
            s = pattern.sub(put, s)
        return _ADDRESS.sub("<ip>", _UID.sub(lambda m: self._uids.setdefault(m.group(), f"<uid{len(self._uids) + 1}>"), s))

    def value(self, v: Any, key: str = "") -> Any:
        if isinstance(v, dict):
            prefix = v.get("generateName")
            if prefix and str(v.get("name", "")).startswith(prefix):
                v = {**v, "name": prefix + "<gen>"}
            return {self.text(k): self.value(x, k) for k, x in v.items() if k != "managedFields"}
        if isinstance(v, list):
            out = [self.value(x, key) for x in v]
            ordered = key not in ("resourceRules", "nonResourceRules")  # these have no order
            return out if ordered else sorted(out, key=lambda x: json.dumps(x, sort_keys=True))
        if not isinstance(v, str):
            return v
        if key == "resourceVersion":
            return v if v in ("", "0") else "<rv>"
        return "<token>" if key == "token" and v.startswith("eyJ") else self.text(v)

    def jwt(self, token: Any) -> Any:
        """Returns header and claims of a token, with times relative to its iat; None for an invalid one."""
        if not isinstance(token, str) or token.count(".") != 2:
            return None
        header, claims = parts(token)
        iat = claims.get("iat")

        def relative(v: Any, key: str = "") -> Any:
            if isinstance(v, dict):
                return {k: relative(x, k) for k, x in v.items()}
            if isinstance(v, list):
                return [relative(x, key) for x in v]
            if isinstance(v, int) and not isinstance(v, bool) and key in _TIMES and iat is not None:
                return f"iat{v - iat:+d}"
            return self.value(v, key)

        return {"header": header, "claims": relative(claims)}


def parts(token: str) -> list[dict[str, Any]]:
    """Returns header and claims of a token, unverified."""
    return [json.loads(base64.urlsafe_b64decode(p + "=" * (-len(p) % 4))) for p in token.split(".")[:2]]


def differences(want: Any, got: Any, at: str = "") -> list[str]:
    """Yields where two answers differ, one line each."""
    if isinstance(want, dict) and isinstance(got, dict):
        out = []
        for key in sorted({*want, *got}):
            if key in want and key in got:
                out += differences(want[key], got[key], f"{at}/{key}")
            else:
                out.append(f"{at}/{key}: " + ("missing" if key in want else f"unexpected {json.dumps(got[key])[:200]}"))
        return out
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [x for i, (w, g) in enumerate(zip(want, got, strict=True)) for x in differences(w, g, f"{at}/{i}")]
    if at.rpartition("/")[0].endswith("/cells") and all(isinstance(v, str) and _AGE.fullmatch(v) for v in (want, got)):
        return []  # the age when it was shown
    return [] if want == got else [f"{at}: want {json.dumps(want)[:200]} got {json.dumps(got)[:200]}"]
