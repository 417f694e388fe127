"""The credentials of one server: who its tokens are of, and the keys of the tokens it gives itself.

Files are read late: the supervisor makes keys and the admin token while workers start, and tokens of service accounts are wanted by the
first pod, not by the start.
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
    """What signs service-account tokens and what tells them from others'. The first of ``issuers`` is the one that new tokens name, all
    are accepted. ``signing_key`` and the further public keys in ``more`` are PEM files, read at the first use; with ``own`` the
    first is made then when nobody has yet. Raises ``ApiError`` then where that cannot be, and ``OSError`` and ``ValueError`` for what is in
    files of others. With ``endpoint``, a socket, both are asked of a signer outside (``external``), and no file is read."""

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
        except OSError as e:  # a full disk; asked again, it may have room
            raise internal(f"the key of service-account tokens cannot be made: {e.strerror}") from None

    @property
    def signer(self) -> Signer | ExternalSigner:
        """What signs for the first issuer."""
        return self.own_signer if self.external is None else self.external

    @cached_property
    def own_signer(self) -> Signer:
        """A signer with the key as it is on disk now, for the first issuer."""
        from kas.auth.tokens import Signer

        return Signer(self._signing_key, self.issuers[0])

    @cached_property
    def verifier(self) -> Verifier:
        """A verifier with all keys as they are on disk now, for all issuers and the legacy one."""
        if self.external is not None:
            return self.external.verifier
        from kas.auth.tokens import LEGACY_ISSUER, Verifier

        return Verifier([self._signing_key, *(path.read_bytes() for path in self._more)], [*self.issuers, LEGACY_ISSUER])


class Proxies(NamedTuple):
    """The authenticating proxies that may name the user of a request: their CA's file ("" for none) and the headers they use."""

    ca_file: str = ""
    allowed_names: Sequence[str] = ()
    username_headers: Sequence[str] = ()
    group_headers: Sequence[str] = ()
    extra_prefixes: Sequence[str] = ()
    uid_headers: Sequence[str] = ()

    @property
    def headers(self) -> tuple[list[bytes], list[bytes]]:
        """(names, prefixes) of the headers that mean something only to authentication: upstream's standard ones and those configured."""
        names = {"x-remote-user", "x-remote-uid", "x-remote-group", *self.username_headers, *self.group_headers, *self.uid_headers}
        return sorted(n.lower().encode() for n in names), sorted({p.lower().encode() for p in ("x-remote-extra-", *self.extra_prefixes)})


NO_PROXIES = Proxies()


class Credentials:
    """The authenticators of a server, once ``load`` was called.

    ``admin_token``, ``token_file`` and ``basic_file`` ("" for none) are files; ``audiences`` are the API server's own; ``get`` reads what
    service-account tokens speak for, ``note_use`` is told of Secrets whose token was used. ``client_cas`` are files with the CAs of
    clients, none for no client certificates. ``more`` are authenticators of an embedding program, asked last. ``lifetimes`` counts
    how long certificates of clients last yet. Without ``lookup`` tokens without end need neither Secret nor account. Raises
    ``TokenFileError``, ``ValueError`` and ``OSError`` from ``load``.
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
        """Reads the token files; after the supervisor has made them. ``external`` are others who are asked about tokens."""
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
        """Proxies come first: their certificate is no user's."""
        basic: list[RequestAuthenticator] = []
        if self._basic_file:
            from kas.auth.authn.basicfile import load_basic_file

            basic.append(load_basic_file(self._basic_file))
        if not self._client_cas and not self._proxies.ca_file:
            return list(basic)
        from kas.auth.authn.chain import Bundle, Verifier  # a server without client certificates never loads it
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
        except ApiError as e:  # without a key no token is known here
            raise AuthenticationError(str(e)) from None
        return ServiceAccountTokens(verifier, self._audiences, self._get, note_use=self._note_use, counts=self._counts, lookup=self._lookup)
