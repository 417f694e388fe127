"""Subresources that connect a client to a backend: pods' exec, attach, portforward and proxy, nodes/proxy, services/proxy.

Upstream's ``handlers/rest.go: ConnectResource`` and ``pkg/registry/core/{pod/rest,node/rest,service}``. Each passes CONNECT admission
first. exec, attach and portforward require a WebSocket. SPDY, which takes over a raw connection, works only behind the TLS front.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus, urlencode

from kas.admission import CONNECT
from kas.auth.attributes import ALLOW, Attributes, Authorizer
from kas.auth.user import tenant
from kas.client.http import BackendError, Connection, Target
from kas.client.outgoing import connect_for
from kas.config import features
from kas.endpoints import proxy
from kas.endpoints.options import number
from kas.endpoints.proxy_locations import Locations
from kas.endpoints.proxy_spdy import channels, translated
from kas.endpoints.proxy_websocket import open_websocket, tunnel
from kas.endpoints.subresources.containers import chosen
from kas.endpoints.throttle import throttled
from kas.endpoints.write import Writer
from kas.meta import errors
from kas.meta.errors import ApiError, bad_request
from kas.meta.waiting import awaited
from kas.registry.strategy import Obj
from kas.request.http import Headers, Request, Response
from kas.request.websocket import SPDY, Socket, StreamRequest, Upgrade, WebSocketRequest

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
SPDY_TUNNEL = "SPDY/3.1+"
PORT_FORWARD = "portforward.k8s.io"
STREAM_PROTOCOL = b"x-stream-protocol-version"
EXTENDED = "ExtendWebSocketsToKubelet"  # declared by kubelets that support WebSockets for every kind of stream
STREAMS = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
NO_SPDY = "SPDY streams are not supported here: use a client that upgrades to a WebSocket (kubectl v1.31 or newer), or --client-ca-file"


class Connects:
    """Serves exec, attach, port-forward and the proxies of pods, services and nodes.

    ``bytes_per_second`` limits an upgraded connection in each direction; 0 means no limit.
    """

    def __init__(self, writer: Writer, locations: Locations, authorizer: Authorizer, pods: Any, bytes_per_second: int = 0) -> None:
        self._writer, self._locations, self._authorizer, self._pods = writer, locations, authorizer, pods
        self._bytes_per_second = bytes_per_second

    # --- streams to a container

    async def exec(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve /exec: stream to a command in the pod's container."""
        options = _stream_options(req)
        options["command"] = req.params.values("command")
        return await self._stream(req, served, namespace, name, "exec", "PodExecOptions", options)

    async def attach(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve /attach: stream to the running process of the pod's container."""
        return await self._stream(req, served, namespace, name, "attach", "PodAttachOptions", _stream_options(req))

    async def portforward(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve /portforward: stream to the pod's ports."""
        ports = [number(p) for p in req.params.values("ports")]
        return await self._stream(req, served, namespace, name, "portForward", "PodPortForwardOptions", {"ports": ports})

    async def _stream(self, req: Request, served: Any, namespace: str, name: str, path: str, kind: str, options: Obj) -> Response:
        await self._admit(req, served, namespace, name, kind, options)
        await self._authorize_create(req)
        pod = self._pods.object(self._pods.get(namespace, name))
        at = f"/{path}/{namespace}/{name}"
        if path != "portForward":
            at += "/" + chosen(pod, options.get("container") or "")
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if not node:
            raise bad_request(f"pod {name} does not have a host assigned")
        kubelet = self._locations.kubelet(node, ("", "pods"))
        target = kubelet._replace(path=at, query=urlencode(_kubelet_query(options), quote_via=quote_plus))
        if isinstance(req, StreamRequest) or req.header(b"upgrade").upper() == SPDY.decode():
            # kubectl also sends this after its WebSocket failed, and shows the answer to the user. So the kubelet's error is returned, if
            # it has one.
            versions = [(k, v) for k, v in req.headers if k == STREAM_PROTOCOL]
            resp = await _raw(req, "", target, versions)
            if isinstance(resp, Upgrade) and not isinstance(req, StreamRequest):
                resp.abandon()
                raise ApiError(501, "NotImplemented", NO_SPDY, {})
            return self._bounded(resp)
        if not isinstance(req, WebSocketRequest):
            raise bad_request("Upgrade request required")
        if not (features.DEFAULT.enabled("ExtendWebSocketsToKubelet") and self._locations.declares(node, EXTENDED)):
            if path == "portForward" and (tunnelled := _tunnel_of(req.subprotocols)):
                return self._bounded(await _tunnelled(req, target, tunnelled))
            if path != "portForward" and _is_translated(req.subprotocols):
                return self._bounded(await _translated(req, target, options))
        return self._bounded(await _relayed(req, target))

    def _bounded(self, resp: Response) -> Response:
        """Return the response, with a limit on the throughput of its connection if it is upgraded."""
        if self._bytes_per_second and isinstance(resp, Upgrade):
            resp.talk = throttled(resp.talk, self._bytes_per_second)
        return resp

    async def _authorize_create(self, req: Request) -> None:
        """Require permission to create: a WebSocket arrives as GET but does what SPDY's POST does (kubernetes#133515)."""
        info = req.info
        if info.verb == "create" or req.read_only_port or not features.DEFAULT.enabled("AuthorizePodWebsocketUpgradeCreatePermission"):
            return
        a = Attributes(
            req.user, "create", info.namespace, info.api_group, info.api_version, info.resource, info.subresource, info.name, True,
            info.path,
        )  # fmt: skip
        decision, reason, _ = await awaited(self._authorizer.authorize(a))
        if decision != ALLOW:
            raise errors.forbidden(info.api_group, info.resource, info.name, reason)

    # --- proxies

    async def node_proxy(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve a node's /proxy: forward the request to its kubelet."""
        path = _sub_path(req)
        await self._admit(req, served, namespace, name, "NodeProxyOptions", {"path": path})
        return self._bounded(await proxy.forward(req, await self._locations.node(name), path))

    async def pod_proxy(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve a pod's /proxy: forward the request to one of its ports."""
        path = _sub_path(req)
        await self._admit(req, served, namespace, name, "PodProxyOptions", {"path": path})
        return self._bounded(await proxy.forward(req, self._locations.pod(namespace, name), path))

    async def service_proxy(self, req: Request, served: Any, namespace: str, name: str) -> Response:
        """Serve a service's /proxy: forward the request to one of its endpoints."""
        path = _sub_path(req)
        await self._admit(req, served, namespace, name, "ServiceProxyOptions", {"path": path})
        return self._bounded(await proxy.forward(req, await self._locations.service(namespace, name), path))

    async def _admit(self, req: Request, served: Any, namespace: str, name: str, kind: str, options: Obj) -> None:
        if req.read_only_port:
            # That port does no authorization, and a connection can do more than read.
            raise errors.forbidden(served.group, served.resource, name, "the read-only port connects to nothing")
        ctx = self._writer.context(req, namespace, False, req.info.subresource)
        obj = {"kind": kind, "apiVersion": "v1", **options}
        admission = self._writer.admission_of(req, served, CONNECT, ctx, name, {}, kind)
        for step in (admission.admit, admission.validate):
            pending = step(CONNECT, obj, None)
            if pending is not None:
                await pending


def _stream_options(req: Request) -> Obj:
    out: Obj = {ours: True for ours, _ in STREAMS if req.params.flag(ours)}
    if req.params.get("container"):
        out["container"] = req.params.get("container")
    return out


def _kubelet_query(options: Obj) -> list[tuple[str, str]]:
    """Return the options under the kubelet's parameter names, sorted as Go encodes them."""
    out = [("command", c) for c in options.get("command") or ()]
    out += [(theirs, "1") for ours, theirs in STREAMS if options.get(ours)]
    if options.get("ports"):
        out.append(("port", ",".join(map(str, options["ports"]))))
    return sorted(out, key=lambda p: p[0])


def _sub_path(req: Request) -> str:
    """Return the path after the subresource in the URL, with its slashes."""
    path = "/".join((req.info.parts or ())[3:])
    if path and not path.startswith("/"):
        path = "/" + path
    if req.path.endswith("/") and not path.endswith("/"):
        path += "/"
    return path


def _tunnel_of(offered: list[str]) -> str:
    """Return the subprotocol that tunnels SPDY, or "". While the feature gate is off, it is left to the kubelet."""
    return next((p for p in offered if p.startswith(SPDY_TUNNEL) and features.DEFAULT.enabled("PortForwardWebsockets")), "")


def _is_translated(offered: list[str]) -> bool:
    """Return whether the streams are translated to SPDY. While the feature gate is off, v5 is left to the kubelet."""
    return V5 in offered and features.DEFAULT.enabled("TranslateStreamCloseWebsocketRequests")


async def _relayed(req: WebSocketRequest, target: Target) -> Response:
    """Relay the WebSocket's messages unchanged."""
    headers: Headers = [(b"user-agent", req.raw_header(b"user-agent"))] if req.has_header(b"user-agent") else []
    try:
        connection, backend = await open_websocket(target, headers, req.subprotocols, client=tenant(req.user.name))
    except BackendError as e:
        raise proxy.dialling(e) from None
    if backend is None:
        return await proxy.refused(req, connection)
    return proxy.upgraded(connection.header(b"sec-websocket-protocol").decode("latin-1"), connection, backend)


async def _translated(req: Request, target: Target, options: Obj) -> Response:
    """Serve a v5 client through any kubelet, including the end of its stdin, for which v4 has no message."""
    connection = await _spdy(req, target, [(STREAM_PROTOCOL, V4.encode())])
    if isinstance(connection, Response):
        return connection
    opened = channels(*(bool(options.get(ours)) for ours, _ in STREAMS))

    async def talk(client: Socket) -> int:
        return await translated(client, connection, opened)

    return Upgrade(V5, talk, connection.close)


async def _tunnelled(req: Request, target: Target, protocol: str) -> Response:
    """Serve kubectl's port forwarding: SPDY tunnelled in the messages of a WebSocket, decoded only by the kubelet."""
    inner = protocol.removeprefix(SPDY_TUNNEL)
    if inner != PORT_FORWARD:
        raise bad_request(f"unable to negotiate protocol: client supports [{protocol}], server accepts [{SPDY_TUNNEL}{PORT_FORWARD}]")
    return await _raw(req, protocol, target, [(STREAM_PROTOCOL, inner.encode())])


async def _raw(req: Request, protocol: str, target: Target, versions: Headers) -> Response:
    """Relay bytes in both directions, in which client and kubelet speak SPDY.

    ``versions`` are the stream protocols offered to the kubelet.
    """
    connection = await _spdy(req, target, versions)
    if isinstance(connection, Response):
        return connection

    async def talk(client: Socket) -> int:
        return await tunnel(client, connection)

    resp = Upgrade(protocol, talk, connection.close)
    resp.headers = [(k, v) for k, v in connection.headers if k == STREAM_PROTOCOL]
    return resp


async def _spdy(req: Request, target: Target, versions: Headers) -> Connection | Response:
    """Return an upgraded connection to the kubelet, or the kubelet's other response."""
    headers: Headers = [(b"connection", b"Upgrade"), (b"upgrade", SPDY), *versions]
    try:
        connection = await connect_for(tenant(req.user.name), target, upgrade=True)
        try:
            await connection.send("POST", target, headers)
            await connection.head()
        except BaseException:
            connection.close()
            raise
    except BackendError as e:
        raise proxy.dialling(e) from None
    if connection.status != 101 or connection.header(b"upgrade").lower() != b"spdy/3.1":
        return await proxy.refused(req, connection)
    return connection
