"""What a worker asks webhooks with, loaded and made with the first of them: most servers have none."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kas.client.http import Egress
from kas.client.services import Resolve

if TYPE_CHECKING:
    from kas.client._exchange import Shares
    from kas.client.hooks import HookClients


class HookParts:
    """``room`` is how many calls may be under way at once, whoever makes them; ``resolve`` finds Services, ``egress`` are the ways."""

    def __init__(self, room: int, resolve: Resolve, egress: Egress) -> None:
        self._room, self._resolve, self._egress = room, resolve, egress

    def shares(self) -> Shares:
        """Those of the worker."""
        return self._shares

    def clients(self) -> HookClients:
        """Those that nobody's credentials are shown to."""
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
