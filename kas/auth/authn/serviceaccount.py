"""Service-account tokens, legacy and bound: is what they speak for still there?

``pkg/serviceaccount/{claims,legacy}.go``: a token dies with its service account, and with the pod, secret or node it is
bound to; the object of the same name made later has another uid.
"""

from __future__ import annotations

import base64
import hmac
import logging
from calendar import timegm
from collections.abc import Callable, Sequence
from time import gmtime, strftime, strptime, time
from typing import Any

from kas.auth.authn import AuthenticationError
from kas.auth.authz.rules import go_list
from kas.auth.tokens import LEGACY_ISSUER, MAX_NUMBER, Claims, Verifier
from kas.auth.user import (
    CREDENTIAL_ID,
    NODE_NAME,
    NODE_UID,
    POD_NAME,
    POD_UID,
    UserInfo,
    service_account_groups,
    service_account_username,
)  # fmt: skip
from kas.observe.metrics import Registry

log = logging.getLogger("kas.authn")

# (resource, namespace, name) -> the object or None: serviceaccounts, pods, secrets, nodes.
Getter = Callable[[str, str, str], dict[str, Any] | None]
# Labels of a Secret with a token: the day it was last used, the day it was taken out of use.
LAST_USED_LABEL = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE_LABEL = "kubernetes.io/legacy-token-invalid-since"
# (namespace, name) of a Secret whose token was used, when its label says otherwise.
NoteUse = Callable[[str, str], None]
# Clock skew allowed when times are compared, and how long a deleted object's tokens live on.
LEEWAY_S = 60


class TokenCounts:
    """How many tokens of service accounts were good, by their age. What is remembered of a token is not counted again."""

    def __init__(self, metrics: Registry) -> None:
        self.legacy = metrics.counter("serviceaccount_legacy_tokens_total", "Cumulative legacy service account tokens used")
        self.stale = metrics.counter("serviceaccount_stale_tokens_total", "Cumulative stale projected service account tokens used")
        self.valid = metrics.counter("serviceaccount_valid_tokens_total", "Cumulative valid projected service account tokens used")


class JWTTokens:
    """Asks an authenticator, made when the first token comes that looks like a JWT, about such tokens only."""

    def __init__(self, make: Callable[[], ServiceAccountTokens]) -> None:
        self._make = make
        self._made: ServiceAccountTokens | None = None

    def _authenticator(self, token: str) -> ServiceAccountTokens | None:
        if token.count(".") != 2:
            return None
        if self._made is None:
            self._made = self._make()
        return self._made

    def authenticate_token(self, token: str) -> UserInfo | None:
        """Ask the authenticator of the token's issuer; None when there is none."""
        authenticator = self._authenticator(token)
        return None if authenticator is None else authenticator.authenticate_token(token)

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """For TokenReview, as ``ServiceAccountTokens.review``."""
        authenticator = self._authenticator(token)
        return None if authenticator is None else authenticator.review(token, audiences)


class ServiceAccountTokens:
    """Token authenticator. ``lookup`` off trusts the signature alone (``--service-account-lookup=false``, legacy only)."""

    def __init__(
        self,
        verifier: Verifier,
        audiences: Sequence[str],
        get: Getter,
        clock: Callable[[], float] = time,
        lookup: bool = True,
        note_use: NoteUse | None = None,
        counts: TokenCounts | None = None,
    ) -> None:
        self._counts = counts
        self._verifier = verifier
        self._audiences = frozenset(audiences)
        self._get = get
        self._clock = clock
        self._lookup = lookup
        self._note_use = note_use

    def authenticate_token(self, token: str) -> UserInfo | None:
        """The service account of a token that was signed here, bound or legacy; None for the tokens of others."""
        claims = self._verifier.claims(token)
        if claims is None:
            return None
        if claims.get("iss") == LEGACY_ISSUER and f"{LEGACY_ISSUER}/namespace" in claims:
            return self._legacy(token, claims)
        return self._bound(claims)

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """For TokenReview: the user and which of ``audiences`` the token is for."""
        claims = self._verifier.claims(token)
        if claims is None:
            return None
        if claims.get("iss") == LEGACY_ISSUER and f"{LEGACY_ISSUER}/namespace" in claims:
            good = [a for a in audiences if a in self._audiences]
            return (self._legacy(token, claims), good) if good else None
        user = self._bound(claims, frozenset(audiences))
        return user, [a for a in audiences if a in _audiences(claims)]

    # --- bound

    def _bound(self, claims: Claims, wanted: frozenset[str] | None = None) -> UserInfo:
        audiences = _audiences(claims)
        targets = self._audiences if wanted is None else wanted
        if targets.isdisjoint(audiences):
            good = go_list(sorted(targets))
            raise AuthenticationError(f"token audiences {go_list(audiences)} is invalid for the target audiences {good}")
        now = self._clock()
        private = claims.get("kubernetes.io")
        if not isinstance(private, dict):
            raise AuthenticationError("service account token has no kubernetes.io claims")
        if "exp" in claims and now > _number(claims, "exp", 0.0) + LEEWAY_S:
            raise AuthenticationError("service account token has expired")
        if now < _number(claims, "nbf", 0.0) - LEEWAY_S:
            raise AuthenticationError("service account token is not valid yet")
        if now < _number(claims, "iat", 0.0) - LEEWAY_S:
            raise AuthenticationError("service account token is issued in the future")

        namespace, (name, uid) = _text(private, "namespace"), _claim(private, "serviceaccount")
        account = self._get("serviceaccounts", namespace, name)
        if account is None:
            raise AuthenticationError(f'serviceaccounts "{name}" not found')
        if self._gone(account, now):
            raise AuthenticationError("service account token has been invalidated")
        _same_uid(account, uid, "service account UID ({}) does not match claim ({})")

        extra: dict[str, list[str]] = {}
        if "secret" in private:
            self._check_ref(private, "secret", namespace, now)
        if "pod" in private:
            pod_name, pod_uid = self._check_ref(private, "pod", namespace, now)
            extra[POD_NAME], extra[POD_UID] = [pod_name], [pod_uid]
        if "node" in private:
            # Beside a pod it only tells where the pod runs; alone it is what the token is bound to.
            node, node_uid = _claim(private, "node") if "pod" in private else self._check_ref(private, "node", "", now)
            extra[NODE_NAME] = [node]
            if node_uid:
                extra[NODE_UID] = [node_uid]
        self._aged(claims, private, now)
        jti = claims.get("jti")
        if isinstance(jti, str) and jti:
            extra[CREDENTIAL_ID] = [f"JTI={jti}"]
        return UserInfo(service_account_username(namespace, name), service_account_groups(namespace), uid, extra)

    def _aged(self, claims: Claims, private: Claims, now: float) -> None:
        """A token whose life was extended, and is over but for that, is one a client did not read again in time."""
        if not private.get("warnafter"):
            return
        late = int(now - _number(private, "warnafter", 0.0))
        if self._counts is not None:
            (self._counts.stale if late > 0 else self._counts.valid).inc()
        if late > 0:
            log.warning("stale token: subject: %s, seconds after warning threshold: %d", claims.get("sub"), late)

    def _check_ref(self, private: Claims, kind: str, namespace: str, now: float) -> tuple[str, str]:
        name, uid = _claim(private, kind)
        obj = self._get(kind + "s", namespace, name)
        if obj is None or self._gone(obj, now):
            raise AuthenticationError("service account token has been invalidated")
        _same_uid(obj, uid, kind + " UID ({}) does not match service account " + kind + " ref claim ({})")
        return name, uid

    @staticmethod
    def _gone(obj: dict[str, Any], now: float) -> bool:
        deleted = obj["metadata"].get("deletionTimestamp")
        return bool(deleted) and timegm(strptime(deleted, "%Y-%m-%dT%H:%M:%SZ")) < now - LEEWAY_S

    # --- legacy

    def _legacy(self, token: str, claims: Claims) -> UserInfo:
        namespace, name, uid, secret_name = (
            _text(claims, f"{LEGACY_ISSUER}/{part}") for part in ("namespace", "service-account.name", "service-account.uid", "secret.name")
        )
        username = service_account_username(namespace, name)
        if claims.get("sub") != username:
            raise AuthenticationError("sub claim does not match the service account")
        if not (namespace and name and uid and secret_name):
            raise AuthenticationError("token is missing a claim")
        extra: dict[str, list[str]] = {}
        if self._lookup:
            secret = self._get("secrets", namespace, secret_name)
            if secret is None or secret["metadata"].get("deletionTimestamp"):
                raise AuthenticationError("service account token has been invalidated")
            stored = base64.b64decode((secret.get("data") or {}).get("token") or "")
            if not hmac.compare_digest(stored, token.encode("utf-8", "surrogateescape")):
                raise AuthenticationError("service account token does not match the secret")
            account = self._get("serviceaccounts", namespace, name)
            if account is None:
                raise AuthenticationError(f'serviceaccounts "{name}" not found')
            if account["metadata"].get("deletionTimestamp"):
                raise AuthenticationError(f"service account {namespace}/{name} has been deleted")
            _same_uid(account, uid, "service account UID ({}) does not match claim ({})")
            self._used(secret, name)
        if self._counts is not None:
            self._counts.legacy.inc()
        return UserInfo(username, service_account_groups(namespace), uid, extra)

    def _used(self, secret: dict[str, Any], account: str) -> None:
        """Has the use noted, of a token out of use too; such a one is refused."""
        meta = secret["metadata"]
        labels, namespace = meta.get("labels") or {}, meta["namespace"]
        if self._note_use is not None and labels.get(LAST_USED_LABEL) != strftime("%Y-%m-%d", gmtime(self._clock())):
            self._note_use(namespace, meta["name"])
        if labels.get(INVALID_SINCE_LABEL):
            raise AuthenticationError(
                f"the token in secret {namespace}/{meta['name']} for service account {namespace}/{account} has been marked invalid. "
                "Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
                f"'{INVALID_SINCE_LABEL}' label from the secret to temporarily allow use of this token"
            )


def _audiences(claims: Claims) -> list[str]:
    aud = claims.get("aud")
    if isinstance(aud, str):
        return [aud]
    return [a for a in aud if isinstance(a, str)] if isinstance(aud, list) else []


def _number(claims: Claims, key: str, default: float) -> float:
    value = claims.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise AuthenticationError(f"claim {key} is not a number")
    return float(value)


def _text(claims: Claims, key: str) -> str:
    value = claims.get(key)
    return value if isinstance(value, str) else ""


def _claim(private: Claims, kind: str) -> tuple[str, str]:
    ref = private.get(kind)
    if not isinstance(ref, dict):
        raise AuthenticationError(f"claim {kind} is not an object")
    return _text(ref, "name"), _text(ref, "uid")


def _same_uid(obj: dict[str, Any], uid: str, text: str) -> None:
    actual = obj["metadata"].get("uid", "")
    if actual != uid:
        raise AuthenticationError(text.format(actual, uid))
