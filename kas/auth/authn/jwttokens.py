"""The parts of service-account authentication that exist before the first token arrives; the rest is loaded then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kas.auth.authn.bearer import has_three_parts
from kas.auth.user import UserInfo
from kas.observe.metrics import Registry

if TYPE_CHECKING:
    from kas.auth.authn.serviceaccount import ServiceAccountTokens

# (resource, namespace, name) -> the object or None; resources are serviceaccounts, pods, secrets and nodes.
Getter = Callable[[str, str, str], dict[str, Any] | None]
# Called with (namespace, name) of a Secret whose token was used and whose last-used label is out of date.
NoteUse = Callable[[str, str], None]
# Label of a Secret with a token: the day the token was last used.
LAST_USED_LABEL = "kubernetes.io/legacy-token-last-used"


class TokenCounts:
    """Counters of valid service-account tokens by age. Cached authentications are not counted again."""

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
    """Passes tokens that look like a JWT to an authenticator, which is created when the first such token arrives."""

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
        """Authenticate a token that looks like a JWT; None for any other."""
        authenticator = self._authenticator(token)
        return None if authenticator is None else authenticator.authenticate_token(token)

    def review(self, token: str, audiences: Sequence[str]) -> tuple[UserInfo, list[str]] | None:
        """Review a token for TokenReview, as ``ServiceAccountTokens.review``."""
        authenticator = self._authenticator(token)
        return None if authenticator is None else authenticator.review(token, audiences)
