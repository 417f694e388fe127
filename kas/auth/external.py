"""Token authenticators that call other services: JWT issuers and a webhook (``pkg/kubeapiserver/authenticator/config.go``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kas.auth.authn import TokenAuthenticator
from kas.client.http import DIRECT, Egress
from kas.config.options import Options
from kas.observe.metrics import Registry
from kas.observe.reloads import Reloads

if TYPE_CHECKING:
    from kas.auth.authn.oidc.configuration import Anonymous

BACKOFF_S = 0.5  # before the webhook's second attempt (``DefaultAuthWebhookRetryBackoff``)


def wanted(o: Options) -> bool:
    """Return whether the flags configure such an authenticator, or conditions for anonymous requests."""
    return bool(o.authentication_config or o.oidc_issuer_url or o.authentication_token_webhook_config_file)


class External:
    """The external authenticators that the flags configure.

    - ``members`` are tried in this order, after the server's own.
    - ``anonymous`` is the configuration file's setting for requests without a credential; None if the flag decides.
    - ``periodic`` lists periodic work as (name, interval in seconds, function).

    ``audiences`` are the API server's own. ``changed`` is called when credentials accepted so far may no longer be valid. ``name`` is the
    server's name in metrics; ``identity`` is the same in the worker that reports metrics and "" in the others. ``egress`` selects the
    routes to other services. Requires a running event loop. Raises ValueError for files that cannot be used.
    """

    def __init__(
        self, o: Options, audiences: Sequence[str], metrics: Registry, changed: Callable[[], None], identity: str = "",
        egress: Egress = DIRECT, name: str = "",
    ) -> None:  # fmt: skip
        self.members: list[TokenAuthenticator] = []
        self.periodic: list[tuple[str, float, Callable[[], Awaitable[object] | None]]] = []
        self.anonymous: Anonymous | None = None
        if o.authentication_config or o.oidc_issuer_url:
            self._issuers(o, metrics, changed, (identity, name), egress)
        if o.authentication_token_webhook_config_file:
            self._webhook(o, audiences, egress)

    def _issuers(self, o: Options, metrics: Registry, changed: Callable[[], None], names: tuple[str, str], egress: Egress) -> None:
        from kas.auth.authn.oidc.authenticator import JWTAuthenticators  # loads CEL; only needed with issuers
        from kas.auth.authn.oidc.configuration import load

        configuration = load(o)
        self.anonymous = configuration.anonymous
        authenticators = JWTAuthenticators(metrics, egress, names[1])
        made = authenticators.made(configuration.issuers)
        for authenticator in made.values():
            authenticator.provider.start()
        authenticators.use(made)
        self.members.append(authenticators)
        if o.authentication_config:
            from kas.auth.authn.oidc.reload import LOOK_EVERY_S, Reload

            reload = Reload(o, configuration, authenticators, changed, Reloads(metrics, "authentication", names[0]))
            self.periodic.append(("authentication configuration", LOOK_EVERY_S, reload.look))

    def _webhook(self, o: Options, audiences: Sequence[str], egress: Egress) -> None:
        from kas.auth.authn.tokenwebhook import TokenWebhook
        from kas.client.kubeconfig import load as load_kubeconfig
        from kas.client.webhook import Webhook

        webhook = Webhook(load_kubeconfig(o.authentication_token_webhook_config_file), BACKOFF_S, via=egress.controlplane)
        ttl_s = o.authentication_token_webhook_cache_ttl
        self.members.append(TokenWebhook(webhook, o.authentication_token_webhook_version, audiences, ttl_s))
