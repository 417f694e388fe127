"""The credentials of one server: who its tokens are of, and the keys of the tokens it gives itself.

Files are read late: the supervisor makes keys and the admin token while workers start, and tokens of service accounts are wanted by the
first pod, not by the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from kas.auth.authn import TokenAuthenticator
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.serviceaccount import Getter, JWTTokens, NoteUse, ServiceAccountTokens
from kas.auth.authn.tokenfile import admin_token, load_token_file
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.tokens import LEGACY_ISSUER, Signer, Verifier


class ServiceAccountKeys:
    """What signs service-account tokens and what tells them from others'. The first of ``issuers`` is the one that new tokens name, all
    are accepted. ``signing_key`` and the further public keys in ``more`` are PEM files, read at the first use; raises ``OSError`` and
    ``ValueError`` then."""

    def __init__(self, issuers: Sequence[str], signing_key: Path, more: Sequence[Path] = ()) -> None:
        self.issuers, self._path, self._more = issuers, signing_key, more

    @cached_property
    def signer(self) -> Signer:
        """A signer with the key as it is on disk now, for the first issuer."""
        return Signer(self._path.read_bytes(), self.issuers[0])

    @cached_property
    def verifier(self) -> Verifier:
        """A verifier with all keys as they are on disk now, for all issuers and the legacy one."""
        return Verifier([path.read_bytes() for path in (self._path, *self._more)], [*self.issuers, LEGACY_ISSUER])


class Credentials:
    """The authenticators of a server, once ``load`` was called.

    ``admin_token`` and ``token_file`` ("" for none) are files; ``audiences`` are the API server's own; ``get`` reads what
    service-account tokens speak for, ``note_use`` is told of Secrets whose token was used. Raises ``TokenFileError`` and ``OSError``
    from ``load``.
    """

    def __init__(
        self, admin_token: Path, token_file: str, keys: ServiceAccountKeys, audiences: Sequence[str], get: Getter, anonymous: bool,
        note_use: NoteUse | None = None,
    ) -> None:  # fmt: skip
        self._admin_token, self._token_file = admin_token, token_file
        self._keys, self._audiences, self._get, self._anonymous = keys, audiences, get, anonymous
        self._note_use = note_use
        self.tokens: TokenUnion
        self.bearer: BearerToken
        self.authenticators: Authenticators

    def load(self) -> None:
        """Reads the token files; after the supervisor has made them."""
        members: list[TokenAuthenticator] = [admin_token(self._admin_token.read_text().strip())]
        if self._token_file:
            members.append(load_token_file(self._token_file))
        members.append(JWTTokens(self._service_accounts))
        self.tokens = TokenUnion(members, self._audiences)
        self.bearer = BearerToken(self.tokens)
        self.authenticators = Authenticators([self.bearer], anonymous=self._anonymous)

    def _service_accounts(self) -> ServiceAccountTokens:
        return ServiceAccountTokens(self._keys.verifier, self._audiences, self._get, note_use=self._note_use)
