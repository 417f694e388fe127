"""How kubelets are spoken to; apart from what speaks to them, which is loaded when somebody asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kas.meta.records import NamedTuple

if TYPE_CHECKING:
    from kas.client.http import Via


class KubeletAccess(NamedTuple):
    """How kubelets are spoken to: the API server's own certificate, the CA theirs must be of ("" believes any), and which of
    a node's addresses is tried. ``via`` is the way to them, and to pods; None is the direct one. ``bytes_per_second`` bounds what a stream
    to them passes in each direction; 0 is no bound."""

    address_types: Sequence[str]
    certificate: str = ""
    key: str = ""
    ca: str = ""
    via: Via | None = None
    bytes_per_second: int = 0
