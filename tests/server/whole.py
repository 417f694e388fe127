"""A worker's whole server in this process: store, informers, credentials, every filter and endpoint; without child processes and ports."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kas.config import features
from kas.config.options import Options, complete
from kas.endpoints.healthchecks import STORAGE
from kas.preparation import prepare
from kas.request.http import Request, Response
from kas.request.requestinfo import Query, parse
from kas.server import Server
from kas.store import open_store
from kas.store.shared import Shared

# With these flags, clients without a credential may do everything.
EVERYBODY = {"authorization_mode": ["ABAC"], "authorization_policy_file": str(Path(__file__).with_name("everybody.jsonl"))}


class World:
    """The server, brought up step by step in ``directory``; ``without`` leaves a step out. ``flags`` are those of the command line, by
    name. Without ``loop`` it has a loop of its own, which does not run."""

    def __init__(self, directory: Path, without: str = "", loop: asyncio.AbstractEventLoop | None = None, **flags: object) -> None:
        raw = Options({name.replace("_", "-"): value for name, value in flags.items()})
        raw.data_dir, raw.secure_port, raw.workers = str(directory), 6443, 1
        options = complete(raw)._replace(run_dir=directory)
        prepare(options)
        self._own = None if loop else asyncio.new_event_loop()
        self.loop = loop or self._own
        self.shared = Shared.private()
        self.store = open_store(str(directory / "store"), shared=self.shared, sync=False)
        self.server = s = Server(options, self.store, self.shared, 0)
        if without != "heartbeat":
            s.heartbeat.start(self.loop)
        if without != "storage":
            self.store.start(self.loop)
            s.hooks.done(STORAGE)
        if without != "bootstrap":
            s.bootstrap()
        self.store.hub.catch_up()
        if without != "derived":
            s.load_derived()
        if s.keys.external is not None:
            s.keys.external.begin(int(s.options.raw.service_account_max_token_expiration))
        s.load_credentials()
        s.started = True
        self.runner = s.runner()
        self.handlers: list[logging.Handler] = []
        if without != "runner":
            s.hooks.begin()

    def close(self) -> None:
        for handler in self.handlers:
            logging.getLogger().removeHandler(handler)
        self.store.close()
        features.DEFAULT.set({})
        if self._own is not None:
            self._own.close()

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return (self.server.options.data_dir / "admin.token").read_text().strip()

    def ask(self, path: str, query: str = "") -> tuple[int, str]:
        """Returns what the endpoint of a path answers, without the filters."""
        req = Request("GET", path, query, [])
        req.params = Query(query)
        req.info = parse("GET", path)
        resp = self.server.director(req)
        if not isinstance(resp, Response):  # with a loop of its own, because the caller's may be running
            with ThreadPoolExecutor(1) as thread:
                resp = thread.submit(asyncio.run, resp).result()
        return resp.status, resp.body.decode()

    def failing(self, group: str) -> set[str]:
        lines = self.ask(f"/{group}", "verbose")[1].splitlines()
        return {line[3:].partition(" failed")[0] for line in lines if line.startswith("[-]")}
