"""The configuration for connections to kubelets. Separate from the code that uses it, which is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kas.meta.records import NamedTuple

if TYPE_CHECKING:
    from kas.client.http import Via


class KubeletAccess(NamedTuple):
    """The configuration for connections to kubelets.

    It has the API server's client certificate, the CA for the kubelets' certificates ("" accepts any), and the order of a node's address
    types. ``via`` is the tunnel to kubelets and pods, None for direct connections. ``bytes_per_second`` limits a stream in each
    direction; 0 means no limit.
    """

    address_types: Sequence[str]
    certificate: str = ""
    key: str = ""
    ca: str = ""
    via: Via | None = None
    bytes_per_second: int = 0
