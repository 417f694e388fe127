"""``--etcd-servers-overrides``: resources that are stored in other etcd clusters; and validation of etcd server URLs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from kas.meta.records import NamedTuple

FORMAT = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"


class Override(NamedTuple):
    """An etcd cluster: the URLs of its servers, and the (group, resource) pairs it stores.

    The resource "*" means all of a group except the pairs in ``named``, which are named individually for any cluster.
    """

    servers: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    named: tuple[tuple[str, str], ...]

    def keeps(self, group: str, resource: str) -> bool:
        """Whether the cluster stores a resource."""
        pair = group, resource
        return pair in self.resources or (pair not in self.named and (group, "*") in self.resources)


def server_mistake(server: str) -> str:
    """Return the reason why a text is not an etcd server, "" if it is one. The default scheme is http, the default port 2379."""
    try:
        url = urlsplit(server if "://" in server else f"http://{server}")
        if url.scheme not in ("http", "https") or not url.hostname:
            return f"{server} is not the URL of a server"
    except ValueError:
        return f"{server} is not the URL of a server"
    try:
        port = url.port
    except ValueError:
        port = 0
    return f"{server} names no port between 1 and 65535" if port == 0 else ""


def mistakes(values: Sequence[str]) -> Iterator[str]:
    """Yield one line for each malformed value of the flag."""
    for value in values:
        resource, sep, servers = value.partition("#")
        if not sep or "#" in servers or resource.count("/") != 1 or not servers:
            yield FORMAT


def overrides(values: Sequence[str], main: Sequence[str]) -> tuple[Override, ...]:
    """Return the clusters other than ``main``, in the order of their first mention; the order of a cluster's servers is irrelevant."""
    found: dict[frozenset[str], tuple[tuple[str, ...], list[tuple[str, str]]]] = {}
    of: dict[tuple[str, str], tuple[str, ...]] = {}
    for value in values:
        name, _, urls = value.partition("#")
        group, _, resource = name.partition("/")
        of[group, resource] = tuple(url for url in urls.split(";") if url)  # the last one wins, as in a map
    for pair, servers in of.items():
        if servers and set(servers) != set(main):
            found.setdefault(frozenset(servers), (servers, []))[1].append(pair)
    return tuple(Override(servers, tuple(pairs), tuple(of)) for servers, pairs in found.values())
