"""The identity behind a request: ``UserInfo`` and the well-known names (apiserver's ``pkg/authentication/user``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kas.meta.records import NamedTuple

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
NODES = "system:nodes"
SERVICE_ACCOUNTS = "system:serviceaccounts"
KUBE_APISERVER = "system:apiserver"

SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
SERVICE_ACCOUNT_GROUP_PREFIX = "system:serviceaccounts:"
NODE_PREFIX = "system:node:"

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"


class Notes(NamedTuple):
    """What an authenticator reports about a credential: annotations for the audit log and warnings for the client. They are added to
    every request for as long as the credential is cached."""

    annotations: dict[str, str]
    warnings: tuple[str, ...] = ()


class UserInfo:
    """An identity. Immutable after construction, so that authenticators may share one object between requests.

    - ``key`` is what authorization depends on; authorizers use it as a cache key.
    - ``compiled`` and ``flows`` are cache slots, for an authorizer and for flow control. Their owner must check that the cached value is
      still valid.
    - ``recorded`` caches the identity as the audit log writes it.
    - ``notes`` describe the credential and are not part of the identity.
    """

    __slots__ = ("_dict", "_subjects", "compiled", "extra", "flows", "groups", "key", "name", "notes", "recorded", "uid")

    def __init__(
        self,
        name: str,
        groups: Iterable[str] = (),
        uid: str = "",
        extra: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name = name
        self.uid = uid
        self.groups = tuple(groups)
        self.extra: dict[str, list[str]] = {k: list(v) for k, v in extra.items()} if extra else {}
        self.key = (name, self.groups)
        self.compiled: Any = None
        self.flows: Any = None
        self.notes: Notes | None = None
        self.recorded: bytes | None = None
        self._dict: dict[str, Any] | None = None
        self._subjects: dict[str, None] | None = None

    @property
    def length(self) -> int:
        """The number of characters in all fields, as a measure of the memory it takes."""
        extra = sum(len(k) + sum(map(len, v)) for k, v in self.extra.items())
        return len(self.name) + len(self.uid) + sum(map(len, self.groups)) + extra

    @property
    def subjects(self) -> dict[str, None]:
        """The names that policies may use for this identity, without duplicates: "u" + user name, "g" + group.

        Computed on first use, in any thread: the user of an access review may be in 100,000 groups. Shared; do not modify it.
        """
        found = self._subjects
        if found is None:
            found = self._subjects = dict.fromkeys(("u" + self.name, *["g" + group for group in self.groups]))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return ``authentication.k8s.io/v1 UserInfo``, without empty fields. Shared; do not modify it."""
        out = self._dict
        if out is None:
            out = {}
            if self.name:
                out["username"] = self.name
            if self.uid:
                out["uid"] = self.uid
            if self.groups:
                out["groups"] = list(self.groups)
            if self.extra:
                out["extra"] = {k: list(self.extra[k]) for k in sorted(self.extra)}
            self._dict = out
        return out

    @classmethod
    def from_dict(cls, obj: Mapping[str, Any]) -> UserInfo:
        """Build a user from ``authentication.k8s.io/v1 UserInfo``; the inverse of ``to_dict``."""
        return cls(obj.get("username") or "", obj.get("groups") or (), obj.get("uid") or "", obj.get("extra"))

    def with_groups(self, groups: Iterable[str]) -> UserInfo:
        """Return the same user with other groups."""
        made = UserInfo(self.name, groups, self.uid, self.extra)
        made.notes = self.notes
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UserInfo):
            return NotImplemented
        return self.key == other.key and self.uid == other.uid and self.extra == other.extra

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"UserInfo({self.name!r}, {self.groups!r}, uid={self.uid!r}, extra={self.extra!r})"


ANONYMOUS_USER = UserInfo(ANONYMOUS, (UNAUTHENTICATED,))
# The server's own identity on its own request path; no client may authenticate as it.
LOOPBACK_USER = UserInfo(KUBE_APISERVER, (AUTHENTICATED, MASTERS))


def with_authenticated(user: UserInfo) -> UserInfo:
    """Add system:authenticated, unless the user is anonymous or already has one of the two marker groups."""
    groups = user.groups
    if AUTHENTICATED in groups or user.name == ANONYMOUS or UNAUTHENTICATED in groups:
        return user
    return user.with_groups((*groups, AUTHENTICATED))


def service_account_username(namespace: str, name: str) -> str:
    """Return ``system:serviceaccount:namespace:name`` (``MakeUsername``)."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """Return the groups of all service accounts and of the namespace's (``MakeGroupNames``)."""
    return SERVICE_ACCOUNTS, SERVICE_ACCOUNT_GROUP_PREFIX + namespace


def split_service_account(username: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account's user name, or None if the name is not well-formed."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, sep, name = username[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
    if not sep or ":" in name or not is_subdomain(name) or not _is_label(namespace):
        return None
    return namespace, name


def tenant(username: str) -> str:
    """Return the unit of fair sharing for a user: the user name, but one unit for all service accounts of a namespace, since a client
    that can create one account can create a hundred."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return username
    return username[: username.find(":", len(SERVICE_ACCOUNT_PREFIX)) + 1]


def node_name(user: UserInfo) -> str | None:
    """Return the node of a kubelet's identity, "" if it names none, None for any other user (upstream's NodeIdentifier)."""
    if user.name.startswith(NODE_PREFIX) and NODES in user.groups:
        return user.name[len(NODE_PREFIX) :]
    return None


_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LABEL = _ALNUM | {"-"}


def _is_label(s: str) -> bool:
    return 0 < len(s) <= 63 and s[0] in _ALNUM and s[-1] in _ALNUM and _LABEL.issuperset(s)


def is_subdomain(s: str) -> bool:
    """Return whether ``s`` is a DNS-1123 subdomain."""
    # As upstream, its labels have no length limit of their own.
    parts = s.split(".")
    return 0 < len(s) <= 253 and all(p and p[0] in _ALNUM and p[-1] in _ALNUM and _LABEL.issuperset(p) for p in parts)
