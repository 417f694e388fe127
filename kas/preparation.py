"""Creates what must be in the data directory before workers serve: certificates, keys, the administrator's token and kubeconfig.

It runs in a child of the supervisor, so that the supervisor neither keeps the modules that this needs nor waits for
what can come later.
"""

from __future__ import annotations

import base64
import errno
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from time import time

from kas.config import address
from kas.config.options import Completed
from kas.edge import certpaths
from kas.meta.der import member
from kas.meta.files import write_whole
from kas.meta.pem import pem_blocks

_SEQUENCE = 0x30


def prepare(o: Completed) -> None:
    """Creates certificates, keys, the administrator's token and its kubeconfig. Runs in a child process."""
    gc.disable()  # the process ends soon
    names = certpaths.service_names()
    ips = ["127.0.0.1", "::1", str(o.service_ranges[0].network_address + 1)]
    extra = [o.raw.bind_address, o.advertise_address, o.endpoint_address, o.external_host, *o.raw.tls_san]
    for x in extra:
        if x in ("0.0.0.0", "::"):
            continue
        target = ips if address.is_address(x) else names if address.is_host_name(x) else None  # --external-hostname may be anything
        if target is not None and x not in target:
            target.append(x)
    if o.raw.bind_address in ("0.0.0.0", "::"):
        names.append(socket.gethostname().lower())
    pki, serving = o.data_dir / "pki", o.serving_pair if o.raw.cert_dir and not o.raw.tls_cert_file else None
    paths = certpaths.paths_in(pki, serving)
    if not certpaths.as_noted(paths, names, ips, time()):
        from kas.meta.patterns import compiled_later

        # one of its patterns, for names as text, takes half as long to compile as everything else that is loaded here
        with compiled_later("cryptography"):
            from kas.edge import certs

        certs.ensure(pki, names, ips, serving)
    if (key := _own_signing_key(o)) is not None and key.exists():
        _check_signing_key(key)
    token_file = o.data_dir / "admin.token"
    if not token_file.exists() or not token_file.read_text().strip():  # a full disk may have left it empty
        write_whole(token_file, base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"="))
    shown = None
    if o.raw.client_ca_file:
        from kas.edge import certs

        shown = certs.ensure_client(pki, "admin", "system:masters")
    write_whole(o.data_dir / "admin.kubeconfig", kubeconfig(o, token_file.read_text(), paths.ca_cert.read_bytes(), shown).encode())


def _own_signing_key(o: Completed) -> Path | None:
    """The file of the key that signs service account tokens; None if a flag names another signer."""
    other = o.raw.service_account_signing_key_file or o.raw.service_account_signing_endpoint
    return None if other else o.data_dir / "pki" / "sa.key"


def _check_signing_key(path: Path) -> None:
    """Raises OSError for a file without a complete private key: as a backup may have it, it is not replaced unasked. Looks at the form
    alone, because every start waits for this."""
    try:
        der = next(block.der for block in pem_blocks(path.read_bytes()) if block.kind.endswith("PRIVATE KEY"))
        member(der, _SEQUENCE)
    except (StopIteration, ValueError):
        why = "it is damaged: restore it, or remove it to have another key created, with which no earlier token is valid"
        raise OSError(errno.EINVAL, why, str(path)) from None


def unwritable(o: Completed, error: OSError) -> str:
    """Why ``prepare`` could not create a file, in one line; for a file of ``--cert-dir`` in kube-apiserver's words."""
    path, why = str(error.filename), error.strerror or str(error)
    if path != str(o.data_dir) and not path.startswith(f"{o.data_dir}/"):
        verb = "mkdir" if path not in map(str, o.serving_pair) else "open"
        return f"error creating self-signed certificates: {verb} {path}: {why.lower()}"
    return f"--data-dir: {path}: {why}"


def prepare_later(o: Completed, told: Callable[[str], object]) -> None:
    """Creates the service account key, which takes a while and which nothing waits for. A worker that needs it
    earlier, or after this failed, creates it. ``told(why)`` is called if it cannot be created."""
    path = _own_signing_key(o)
    if path is None or path.exists():
        return
    from kas.auth.signingkey import ensure_signing_key

    try:
        ensure_signing_key(path)
    except OSError as e:
        told(f"the key of service account tokens will be created with the first token: {path}: {e.strerror}")


def kubeconfig(o: Completed, token: str, ca: bytes, shown: tuple[bytes, bytes] | None = None) -> str:
    """A kubeconfig for the administrator, with the client certificate and key (PEM) in ``shown``, or with the token.
    It is YAML and not JSON, because people read this file."""
    user = f"token: {token}"
    if shown is not None:
        cert, key = (base64.b64encode(pem).decode() for pem in shown)
        user = f"client-certificate-data: {cert}\n    client-key-data: {key}"

    if o.secure_port:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(o.raw.bind_address, o.raw.bind_address)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        server = f"https://{host}:{o.secure_port}"
        own = f"    certificate-authority-data: {base64.b64encode(ca).decode()}\n"
        if o.raw.tls_cert_file or o.raw.cert_dir:
            own = f"    certificate-authority: {o.serving_pair[0].absolute()}\n"
    else:
        server, own = f"http://127.0.0.1:{o.insecure_port or o.read_only_port}", ""
    return (
        "apiVersion: v1\nkind: Config\ncurrent-context: kas\n"
        f"clusters:\n- name: kas\n  cluster:\n    server: {server}\n{own}"
        f"users:\n- name: kas-admin\n  user:\n    {user}\n"
        "contexts:\n- name: kas\n  context:\n    cluster: kas\n    user: kas-admin\n"
    )
