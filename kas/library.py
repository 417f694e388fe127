"""kas in a Python program: a server with chosen kinds, and with plug-ins, users, rules, resources and hooks of the program's own.

    import kas

    with kas.Server(kas.Options(data_dir="data", secure_port="auto"), kinds="none") as server:
        ...  # server.url, server.kubeconfig, server.token, server.ca

The server runs in processes of its own. They are forked from the program, so they have the plug-ins and other objects that the program
passed to ``Server``; nothing of the server runs in the program's threads, and nothing that the program does later affects it.
``docs/library.md`` describes the rest, with two example programs.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from asyncio import events
from collections.abc import Mapping, Sequence
from pathlib import Path

from kas import preflight, supervisor
from kas.admission import Plugin
from kas.auth.attributes import Authorizer
from kas.auth.authn import RequestAuthenticator, TokenAuthenticator
from kas.config.options import Completed, OptionError, Options, complete, problems
from kas.extensions import Extensions, Hook, HookContext, Loopback, check_shapes
from kas.meta.fdwait import readable, terminate_with
from kas.meta.stdio import flush_standard_streams, say
from kas.observe.process import NoProcess, fork
from kas.registry.rest import VirtualResource

__all__ = ["HookContext", "Loopback", "OptionError", "Options", "Server", "StartError", "VirtualResource"]

START_TIMEOUT_S, STOP_TIMEOUT_S = 120.0, 60.0
_FAILED = 1


class StartError(Exception):
    """The server did not become ready; the reason is on its standard error."""


class Server:
    """A kas server embedded in this program. Raises OptionError for invalid options, TypeError for an extension
    without the methods it needs.

    - ``kinds``: "all", "none" (namespaces, config maps, secrets, service accounts, quotas, events, definitions,
      RBAC, admission, reviews and what else belongs to every API server), or a list of what is served in addition:
      groups ("apps"), resources ("pods", "deployments.batch").
    - ``admission``: plug-ins (``kas.admission.Plugin``) or their classes, called before policies and webhooks.
    - ``authenticators`` (``kas.auth.authn``): called after those of the flags.
    - ``authorizers`` (``kas.auth.attributes.Authorizer``): called before the modes of the flags.
    - ``resources``: virtual resources, each with a storage.
    - ``post_start`` and ``pre_shutdown``: hooks by name, run in order.
    """

    def __init__(
        self, options: Options, *, kinds: str | Sequence[str] = "all", admission: Sequence[Plugin | type[Plugin]] = (),
        authenticators: Sequence[RequestAuthenticator | TokenAuthenticator] = (), authorizers: Sequence[Authorizer] = (),
        resources: Sequence[VirtualResource] = (), post_start: Mapping[str, Hook] | None = None,
        pre_shutdown: Mapping[str, Hook] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(options, Options):
            raise TypeError(f"options are kas.Options, not {options!r}")
        found = problems(options) + preflight.preflight(options)
        if found:
            raise OptionError(found)
        for name, hooks in (("post_start", post_start), ("pre_shutdown", pre_shutdown)):
            if hooks is not None and not isinstance(hooks, Mapping):
                raise TypeError(f"{name}: hooks are a mapping by name, not {hooks!r}")
        self.options = complete(options)
        self._extensions = Extensions(
            kinds, tuple(admission), tuple(authenticators), tuple(authorizers), tuple(resources), dict(post_start or {}),
            dict(pre_shutdown or {}),
        )  # fmt: skip
        check_shapes(self._extensions)
        self._pid, self._alive = 0, -1
        self.url = ""

    def run(self) -> int:
        """Serves in this process and its children until SIGTERM or SIGINT, as ``kas serve`` does. Returns the exit code."""
        return supervisor.run(self.options, self._extensions)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Server:
        """Serves in the background. Returns when the server is ready and every ``post_start`` hook has run. Raises StartError.

        It forks, so call it before the program has threads that hold locks. The server ends when this process does.
        """
        if self._pid:
            raise RuntimeError("the server is running")
        told, tell = os.pipe()
        alive, self._alive = os.pipe()
        flush_standard_streams()
        try:
            pid = fork()
        except NoProcess as e:
            for fd in (told, tell, alive, self._alive):
                os.close(fd)
            self._alive = -1
            raise StartError(str(e)) from None
        if not pid:
            os.close(told)
            os.close(self._alive)
            self._serve(tell, alive)
        self._pid = pid
        os.close(tell)
        os.close(alive)
        with os.fdopen(told) as pipe:
            line = pipe.readline() if readable([pipe.fileno()], timeout_s) else ""
        if not line:
            self.stop()
            raise StartError("the server did not start; what is wrong stands on its standard error")
        self.url = json.loads(line)["url"]
        return self

    def _serve(self, tell: int, alive: int) -> None:
        """Runs the server in the child process."""
        code = _FAILED
        try:
            events._set_running_loop(None)  # the caller's event loop is not this process's
            threading.Thread(target=terminate_with, args=(alive,), name="kas-parent", daemon=True).start()

            def ready(options: Completed) -> None:
                os.write(tell, json.dumps({"url": _url(options)}).encode() + b"\n")
                os.close(tell)

            code = supervisor.run(self.options, self._extensions, ready)
        except BaseException:  # nothing else would report it
            import traceback

            say(traceback.format_exc())
        finally:
            flush_standard_streams()
            os._exit(code)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stops the server as an operator would, after its ``pre_shutdown`` hooks. Returns its exit code, -9 if it
        did not end in time, and 0 if it was not running."""
        if not self._pid:
            return 0
        pid, self._pid = self._pid, 0
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + timeout_s
        while not (found := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGKILL)
                found = os.waitpid(pid, 0)
                break
            time.sleep(0.01)
        os.close(self._alive)
        self.url = ""
        return os.waitstatus_to_exitcode(found[1])

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.options.data_dir / "admin.kubeconfig"

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return (self.options.data_dir / "admin.token").read_text().strip()

    @property
    def ca(self) -> Path:
        """The certificate of the CA that signed the server's own."""
        return self.options.data_dir / "pki" / "ca.crt"


def _url(o: Completed) -> str:
    if not o.secure_port:
        return f"http://127.0.0.1:{o.insecure_port or o.read_only_port}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(o.raw.bind_address, o.raw.bind_address)
    return f"https://{f'[{host}]' if ':' in host else host}:{o.secure_port}"
