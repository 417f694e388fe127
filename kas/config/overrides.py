"""``--etcd-servers-overrides``: resources that are kept in another cluster of etcd than the rest; and what is no server of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from kas.meta.records import NamedTuple

FORMAT = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"


class Override(NamedTuple):
    """A cluster by its servers' URLs, and what it keeps: (group, resource)s, where the resource "*" is all of a group that is not named by
    itself: ``named`` is what is, for any cluster."""

    servers: tuple[str, ...]
    resources: tuple[tuple[str, str], ...]
    named: tuple[tuple[str, str], ...]

    def keeps(self, group: str, resource: str) -> bool:
        """Whether it keeps a resource."""
        pair = group, resource
        return pair in self.resources or (pair not in self.named and (group, "*") in self.resources)


def server_mistake(server: str) -> str:
    """Why a text does not name a server of etcd; "" when it does. Without a scheme it is http's, without a port 2379."""
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
    """What is wrong with the form of the flag's values, one line each."""
    for value in values:
        resource, sep, servers = value.partition("#")
        if not sep or "#" in servers or resource.count("/") != 1 or not servers:
            yield FORMAT


def overrides(values: Sequence[str], main: Sequence[str]) -> tuple[Override, ...]:
    """The clusters that are not ``main``, in the order in which they are named, each once, in whatever order its servers are."""
    found: dict[frozenset[str], tuple[tuple[str, ...], list[tuple[str, str]]]] = {}
    of: dict[tuple[str, str], tuple[str, ...]] = {}
    for value in values:
        name, _, urls = value.partition("#")
        group, _, resource = name.partition("/")
        of[group, resource] = tuple(url for url in urls.split(";") if url)  # the last one counts, as in a map
    for pair, servers in of.items():
        if servers and set(servers) != set(main):
            found.setdefault(frozenset(servers), (servers, []))[1].append(pair)
    return tuple(Override(servers, tuple(pairs), tuple(of)) for servers, pairs in found.values())
