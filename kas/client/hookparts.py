"""What a worker needs to call webhooks, loaded and created with the first call: most servers have no webhooks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kas.client.http import Egress
from kas.client.services import Resolve

if TYPE_CHECKING:
    from kas.client._exchange import Shares
    from kas.client.hooks import HookClients


class HookParts:
    """``room`` is how many calls may be in progress at once, whoever makes them; ``resolve`` finds Services;
    ``egress`` tells how to connect."""

    def __init__(self, room: int, resolve: Resolve, egress: Egress) -> None:
        self._room, self._resolve, self._egress = room, resolve, egress

    def shares(self) -> Shares:
        """The shares of the worker."""
        return self._shares

    def clients(self) -> HookClients:
        """The clients that send no credentials."""
        return self._clients

    @cached_property
    def _shares(self) -> Shares:
        from kas.client._exchange import Shares

        return Shares(self._room)

    @cached_property
    def _clients(self) -> HookClients:
        from kas.client.hooks import HookClients
        from kas.client.kubeconfig import Users

        return HookClients(Users({}), self._resolve, self._shares, self._egress)
