"""What there is of tokens of service accounts before the first of them comes: most of what reads them is loaded then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kas.auth.authn.bearer import has_three_parts
from kas.auth.user import UserInfo
from kas.observe.metrics import Registry

if TYPE_CHECKING:
    from kas.auth.authn.serviceaccount import ServiceAccountTokens

# (resource, namespace, name) -> the object or None: serviceaccounts, pods, secrets, nodes.
Getter = Callable[[str, str, str], dict[str, Any] | None]
# (namespace, name) of a Secret whose token was used, when its label says otherwise.
NoteUse = Callable[[str, str], None]
# Of a Secret with a token: the day it was last used.
LAST_USED_LABEL = "kubernetes.io/legacy-token-last-used"


class TokenCounts:
    """How many tokens of service accounts were good, by their age. What is remembered of a token is not counted again."""

    def __init__(self, metrics: Registry) -> None:
        self.legacy = metrics.counter("serviceaccount_legacy_tokens_total", "Cumulative legacy service account tokens used")
        self.stale = metrics.counter("serviceaccount_stale_tokens_total", "Cumulative stale projected service account tokens used")
        self.valid = metrics.counter("serviceaccount_valid_tokens_total", "Cumulative valid projected service account tokens used")
        self.manual = metrics.counter("serviceaccount_legacy_manual_token_uses_total", "Cumulative manually created legacy tokens used")
        self.generated = metrics.counter("serviceaccount_legacy_auto_token_uses_total", "Cumulative auto-generated legacy tokens used")
        self.invalidated = metrics.counter(
            "serviceaccount_invalid_legacy_auto_token_uses_total", "Cumulative invalid auto-generated legacy tokens used"
        )


class JWTTokens:
    """Asks an authenticator, made when the first token comes that looks like a JWT, about such tokens only."""

    def __init__(self, make: Callable[[], ServiceAccountTokens]) -> None:
        self._make = make
        self._made: ServiceAccountTokens | None = None

    def _authenticator(self, token: str) -> ServiceAccountTokens | None:
        if not has_three_parts(token):
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
