"""Identity vouched for by a front proxy (``authentication/request/headerrequest``).

The headers count only when the connection's client certificate was issued by the request-header CA and its common name
is among the allowed ones; the caller of ``authenticate`` proves that with ``peer``. Without that proof the headers are
spoofed and mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from kas.auth.authn import AuthenticationError, HeaderGet
from kas.auth.user import UserInfo


class RequestHeader:
    """``peer`` needs ``request_header_ca`` (its chain ends in that CA), ``common_name`` and ``headers()``, which lists all
    (lower-case name, value) pairs of the request: groups and extras come in several headers of one name."""

    def __init__(
        self,
        username_headers: Sequence[str] = ("X-Remote-User",),
        group_headers: Sequence[str] = ("X-Remote-Group",),
        extra_prefixes: Sequence[str] = ("X-Remote-Extra-",),
        uid_headers: Sequence[str] = (),
        allowed_names: Sequence[str] = (),
    ) -> None:
        self._user = tuple(h.lower() for h in username_headers)
        self._group = tuple(h.lower() for h in group_headers)
        self._uid = tuple(h.lower() for h in uid_headers)
        self._extra = tuple(p.lower() for p in extra_prefixes)
        self._allowed = frozenset(allowed_names)

    @property
    def header_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(names, prefixes) the edge must strip from every request, proven or not, once authentication is over."""
        return self._user + self._group + self._uid, self._extra

    def authenticate(self, get: HeaderGet, peer: Any = None) -> UserInfo | None:
        """The user the front proxy names; None without its certificate or a name; AuthenticationError when its own name is not allowed."""
        if peer is None or not peer.request_header_ca:
            return None
        name = next((v for v in map(get, self._user) if v), "")
        if not name:
            return None
        if self._allowed and peer.common_name not in self._allowed:
            raise AuthenticationError(f"x509: subject with cn={peer.common_name} is not in the allowed list")
        uid = next((v for v in map(get, self._uid) if v), "")
        return self._user_info(name, uid, peer.headers())

    def _user_info(self, name: str, uid: str, headers: Sequence[tuple[str, str]]) -> UserInfo:
        groups: list[str] = []
        extra: dict[str, list[str]] = {}
        for wanted in self._group:
            groups.extend(v for k, v in headers if k == wanted)
        for key, value in headers:
            for prefix in self._extra:
                if key.startswith(prefix):
                    extra.setdefault(unquote(key[len(prefix) :]), []).append(value)
                    break
        return UserInfo(name, groups, uid, extra)
