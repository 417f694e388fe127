"""The credentials of one server: its authenticators, and the keys that sign and verify its service-account tokens.

Files are read late: the supervisor creates the keys and the admin token while workers start, and service-account tokens are first needed
by the first pod, not at start-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kas.auth.authn import AuthenticationError, RequestAuthenticator, TokenAuthenticator
from kas.auth.authn.bearer import BearerToken, CacheCounts
from kas.auth.authn.jwttokens import Getter, JWTTokens, NoteUse, TokenCounts
from kas.auth.authn.tokenfile import admin_token, load_token_file
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authn.websocket import WebSocketToken
from kas.meta.errors import ApiError, internal
from kas.meta.records import NamedTuple

if TYPE_CHECKING:
    from kas.auth.authn.serviceaccount import ServiceAccountTokens
    from kas.auth.external import External
    from kas.auth.externaljwt import ExternalSigner
    from kas.auth.tokens import Signer, Verifier
    from kas.observe.metrics import Histogram


class ServiceAccountKeys:
    """The keys that sign service-account tokens and verify them.

    New tokens name the first of ``issuers``; all issuers are accepted. ``signing_key`` and the additional public keys in ``more`` are PEM
    files, read on first use. With ``own``, a missing signing key is created then. Using the keys raises ``ApiError`` if the key cannot be
    created, and ``OSError`` or ``ValueError`` for configured files that cannot be used.

    With ``endpoint``, a Unix socket, an external signer (``external``) signs and provides the public keys, and no file is read.
    """

    def __init__(
        self, issuers: Sequence[str], signing_key: Path, more: Sequence[Path] = (), own: bool = False, endpoint: str = ""
    ) -> None:
        self.issuers, self._path, self._more, self._own = issuers, signing_key, more, own
        self.external: ExternalSigner | None = None
        if endpoint:
            from kas.auth.externaljwt import ExternalSigner

            self.external = ExternalSigner(endpoint, issuers)

    @cached_property
    def _signing_key(self) -> bytes:
        from kas.auth.signingkey import ensure_signing_key

        if not self._own:
            return self._path.read_bytes()
        try:
            return ensure_signing_key(self._path)
        except OSError as e:  # a full disk; the next attempt may succeed
            raise internal(f"the key of service-account tokens cannot be made: {e.strerror}") from None

    @property
    def signer(self) -> Signer | ExternalSigner:
        """The signer for the first issuer: the external one if configured, else ``own_signer``."""
        return self.own_signer if self.external is None else self.external

    @cached_property
    def own_signer(self) -> Signer:
        """A signer for the first issuer, with the key that is on disk at first use."""
        from kas.auth.tokens import Signer

        return Signer(self._signing_key, self.issuers[0])

    @cached_property
    def verifier(self) -> Verifier:
        """A verifier for all issuers and the legacy one, with the keys that are on disk at first use."""
        if self.external is not None:
            return self.external.verifier
        from kas.auth.tokens import LEGACY_ISSUER, Verifier

        return Verifier([self._signing_key, *(path.read_bytes() for path in self._more)], [*self.issuers, LEGACY_ISSUER])


class Proxies(NamedTuple):
    """The authenticating proxies that may set the user of a request: their CA file ("" for none) and the headers they use."""

    ca_file: str = ""
    allowed_names: Sequence[str] = ()
    username_headers: Sequence[str] = ()
    group_headers: Sequence[str] = ()
    extra_prefixes: Sequence[str] = ()
    uid_headers: Sequence[str] = ()

    @property
    def headers(self) -> tuple[list[bytes], list[bytes]]:
        """(names, prefixes) of the headers that only authentication reads: upstream's standard headers and the configured ones."""
        names = {"x-remote-user", "x-remote-uid", "x-remote-group", *self.username_headers, *self.group_headers, *self.uid_headers}
        return sorted(n.lower().encode() for n in names), sorted({p.lower().encode() for p in ("x-remote-extra-", *self.extra_prefixes)})


NO_PROXIES = Proxies()


class Credentials:
    """The authenticators of a server, available after ``load``.

    - ``admin_token``, ``token_file`` and ``basic_file`` ("" for none) are file paths.
    - ``audiences`` are the API server's own.
    - ``get`` reads the objects that service-account tokens refer to; ``note_use`` is called with each Secret whose token was used.
    - ``client_cas`` are files with the CAs of client certificates; none disables client certificates.
    - ``more`` are authenticators of an embedding program, tried last.
    - ``lifetimes`` records the remaining lifetime of client certificates.
    - Without ``lookup``, legacy tokens (which never expire) are accepted without checking their Secret and account.

    ``load`` raises ``TokenFileError``, ``ValueError`` and ``OSError``.
    """

    def __init__(
        self, admin_token: Path, token_file: str, keys: ServiceAccountKeys, audiences: Sequence[str], get: Getter, anonymous: bool,
        note_use: NoteUse | None = None, client_cas: Sequence[Path] = (), proxies: Proxies = NO_PROXIES, bootstrap_tokens: bool = False,
        more: Sequence[RequestAuthenticator | TokenAuthenticator] = (),
        counts: TokenCounts | None = None, basic_file: str = "", lifetimes: Histogram | None = None,
        cache_counts: CacheCounts | None = None, lookup: bool = True,
    ) -> None:  # fmt: skip
        self._client_cas, self._proxies, self._bootstrap_tokens = client_cas, proxies, bootstrap_tokens
        self._admin_token, self._token_file, self._basic_file = admin_token, token_file, basic_file
        self._keys, self._audiences, self._get, self._anonymous = keys, audiences, get, anonymous
        self._note_use, self._counts, self._lifetimes, self._cache_counts = note_use, counts, lifetimes, cache_counts
        self._lookup = lookup
        self._more_tokens = [cast(TokenAuthenticator, m) for m in more if hasattr(m, "authenticate_token")]
        self._more = [cast(RequestAuthenticator, m) for m in more if not hasattr(m, "authenticate_token")]
        self.tokens: TokenUnion
        self.bearer: BearerToken
        self.authenticators: Authenticators

    def load(self, external: External | None = None) -> None:
        """Read the token files, after the supervisor has created them. ``external`` holds the authenticators that call other services."""
        members: list[TokenAuthenticator] = [admin_token(self._admin_token.read_text().strip())]
        if self._token_file:
            members.append(load_token_file(self._token_file))
        tokens = JWTTokens(self._service_accounts)
        if self._keys.external is None:
            members.append(tokens)
        else:
            from kas.auth.externaljwt import FreshKeys

            members.append(FreshKeys(tokens, self._keys.external))
        if self._bootstrap_tokens:
            from kas.auth.authn.bootstrap import BootstrapTokens

            members.append(BootstrapTokens(self._get))
        if external is not None:
            members += external.members
        members += self._more_tokens
        self.tokens = TokenUnion(members, self._audiences)
        self.bearer = BearerToken(self.tokens, counts=self._cache_counts)
        said = external.anonymous if external is not None else None
        anonymous, paths = (self._anonymous, None) if said is None else (said.enabled, said.paths)
        self.authenticators = Authenticators([*self._others(), self.bearer, WebSocketToken(self.bearer), *self._more], anonymous, paths)

    def _others(self) -> list[RequestAuthenticator]:
        """Return the authenticators that precede bearer tokens. Proxies come first: their certificate does not identify a user."""
        basic: list[RequestAuthenticator] = []
        if self._basic_file:
            from kas.auth.authn.basicfile import load_basic_file

            basic.append(load_basic_file(self._basic_file))
        if not self._client_cas and not self._proxies.ca_file:
            return list(basic)
        from kas.auth.authn.chain import Bundle, Verifier  # not loaded on servers without client certificates
        from kas.auth.authn.requestheader import RequestHeader
        from kas.auth.authn.x509 import ClientCertificate

        out: list[RequestAuthenticator] = []
        p = self._proxies
        if p.ca_file:
            verifier = Verifier(Bundle(p.ca_file))
            out.append(RequestHeader(verifier, p.username_headers, p.group_headers, p.extra_prefixes, p.uid_headers, p.allowed_names))
        out += basic
        if self._client_cas:
            out.append(ClientCertificate(Verifier(Bundle(*map(str, self._client_cas))), self._lifetimes))
        return out

    def _service_accounts(self) -> ServiceAccountTokens:
        from kas.auth.authn.serviceaccount import ServiceAccountTokens

        try:
            verifier = self._keys.verifier
        except ApiError as e:  # without a key, no token can be verified
            raise AuthenticationError(str(e)) from None
        return ServiceAccountTokens(verifier, self._audiences, self._get, note_use=self._note_use, counts=self._counts, lookup=self._lookup)
