"""Who asks: ``UserInfo`` and the names every part of the server knows (apiserver's ``pkg/authentication/user``)."""

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
    """What an authenticator has to say of a credential: annotations for the audit log, and warnings for the client. With each request, as
    long as the credential is remembered."""

    annotations: dict[str, str]
    warnings: tuple[str, ...] = ()


class UserInfo:
    """An identity. Never changed after it was made, so that authenticators may share one object between requests.

    ``key`` is what authorization depends on; authorizers use it as a cache key. ``compiled`` is a slot in which an
    authorizer, ``flows`` one in which flow control may keep what it worked out for this identity; it must check that it still holds.
    ``recorded`` is where the audit log keeps how it writes the identity.
    ``notes`` are about the credential and no part of the identity.
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
        """The characters of everything it holds: what keeping it takes."""
        extra = sum(len(k) + sum(map(len, v)) for k, v in self.extra.items())
        return len(self.name) + len(self.uid) + sum(map(len, self.groups)) + extra

    @property
    def subjects(self) -> dict[str, None]:
        """What policies may call this identity, each once: "u" and the name, "g" and a group. Made when first asked for, and in any thread,
        since somebody may be asked about who has 100,000 groups. Shared: do not change it."""
        found = self._subjects
        if found is None:
            found = self._subjects = dict.fromkeys(("u" + self.name, *["g" + group for group in self.groups]))
        return found

    def to_dict(self) -> dict[str, Any]:
        """``authentication.k8s.io/v1 UserInfo``: empty fields are left out. Shared: do not change it."""
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
        """The inverse of ``to_dict``."""
        return cls(obj.get("username") or "", obj.get("groups") or (), obj.get("uid") or "", obj.get("extra"))

    def with_groups(self, groups: Iterable[str]) -> UserInfo:
        """The same user with these groups instead."""
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
# The server acting for itself over its own request path; no one but the server may authenticate as it.
LOOPBACK_USER = UserInfo(KUBE_APISERVER, (AUTHENTICATED, MASTERS))


def with_authenticated(user: UserInfo) -> UserInfo:
    """Adds system:authenticated, unless the user is anonymous or already carries one of the two marker groups."""
    groups = user.groups
    if AUTHENTICATED in groups or user.name == ANONYMOUS or UNAUTHENTICATED in groups:
        return user
    return user.with_groups((*groups, AUTHENTICATED))


def service_account_username(namespace: str, name: str) -> str:
    """``MakeUsername``: ``system:serviceaccount:namespace:name``."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """``MakeGroupNames``: that of all service accounts and that of the namespace's."""
    return SERVICE_ACCOUNTS, SERVICE_ACCOUNT_GROUP_PREFIX + namespace


def split_service_account(username: str) -> tuple[str, str] | None:
    """(namespace, name) of a service account's user name, None when it is not a well-formed one."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, sep, name = username[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
    if not sep or ":" in name or not is_subdomain(name) or not _is_label(namespace):
        return None
    return namespace, name


def tenant(username: str) -> str:
    """Who takes turns with others: a user, but all service accounts of a namespace are one, since who may make one may make a hundred."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return username
    return username[: username.find(":", len(SERVICE_ACCOUNT_PREFIX)) + 1]


def node_name(user: UserInfo) -> str | None:
    """The node a kubelet's identity speaks for, "" when it names none, None for everyone else (upstream's NodeIdentifier)."""
    if user.name.startswith(NODE_PREFIX) and NODES in user.groups:
        return user.name[len(NODE_PREFIX) :]
    return None


_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LABEL = _ALNUM | {"-"}


def _is_label(s: str) -> bool:
    return 0 < len(s) <= 63 and s[0] in _ALNUM and s[-1] in _ALNUM and _LABEL.issuperset(s)


def is_subdomain(s: str) -> bool:
    """DNS-1123 subdomain."""
    # Parts of a DNS subdomain have no length limit of their own upstream.
    parts = s.split(".")
    return 0 < len(s) <= 253 and all(p and p[0] in _ALNUM and p[-1] in _ALNUM and _LABEL.issuperset(p) for p in parts)
