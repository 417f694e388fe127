"""Checks names in flags, and files that flags name, against modules that the supervisor does not load."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kas.config.options import Options
from kas.config.validation import pipes
from kas.meta.goerrors import unreadable
from kas.observe.process import NoProcess, fork

Check = Callable[[], object]  # raises ValueError


def preflight(o: Options) -> list[str]:
    """Returns what is wrong with names in flags and with files that flags name. The modules that know are loaded in a child process."""
    chosen = o.controllers not in (["*"], ["none"])
    files = (
        o.tls_cert_file or o.cert_dir or o.proxy_client_cert_file or o.tls_sni_cert_key or o.service_account_key_file or o.token_auth_file
        or o.basic_auth_file or o.service_account_signing_key_file or o.authorization_policy_file or o.audit_policy_file
        or o.authentication_config or o.oidc_issuer_url or o.authentication_token_webhook_config_file or o.authorization_config
        or o.authorization_webhook_config_file or o.encryption_provider_config or o.tracing_config_file
        or o.egress_selector_config_file or o.admission_control_config_file or o.audit_log_path or o.audit_webhook_config_file
        or o.client_ca_file or o.requestheader_client_ca_file or o.kubelet_client_certificate or o.kubelet_certificate_authority
        or (o.storage_backend == "etcd3" and (o.etcd_cafile or o.etcd_certfile or o.etcd_keyfile))
    )  # fmt: skip
    plugins = o.admission_control or o.enable_admission_plugins or o.disable_admission_plugins
    if not (chosen or o.runtime_config or plugins or files):
        return []
    if pipes(o):  # already reported; waiting for their content could take for ever
        return []
    r, w = os.pipe()
    try:
        pid = fork()
    except NoProcess as e:
        os.close(r)
        os.close(w)
        return [str(e)]
    if not pid:
        code = 1
        try:
            _write(w, "\0".join(e.replace("\0", r"\x00") for e in unusable(o)).encode())  # an error may have several lines
            code = 0
        finally:
            os._exit(code)
    os.close(w)
    with os.fdopen(r) as pipe:
        errors = [text for text in pipe.read().split("\0") if text]
    _, status = os.waitpid(pid, 0)
    if status:
        errors.append("the flags could not be checked")
    return errors


def unusable(o: Options) -> list[str]:
    """The errors of ``preflight``, found in this process. Files that cannot be opened are reported by ``validation``."""
    from kas import controllers
    from kas.admission import order
    from kas.config import runtime
    from kas.types.scheme import Scheme

    out = [*runtime.problems(Scheme(), o.runtime_config), *order.problems(o)]
    for check in (
        lambda: controllers.chosen(o.controllers),
        *_authorities(o),
        *_serving(o),
        *_kubelets(o),
        lambda: _etcd(o),
        *_credentials(o),
        lambda: _authentication(o),
        lambda: _token_webhook(o),
        lambda: _authorization(o),
        lambda: _encryption(o),
        lambda: _tracing(o),
        lambda: _egress(o),
        lambda: _audit_policy(o),
        lambda: _audit_log(o),
        lambda: _audit_webhook(o),
    ):
        try:
            check()
        except ValueError as e:
            out.append(str(e))
    return out + _admission(o)


def _audit_policy(o: Options) -> None:
    from kas.audit.policy import PolicyError, load_file

    if o.audit_policy_file:
        try:
            load_file(o.audit_policy_file)
        except PolicyError as e:
            raise ValueError(f"loading audit policy file: {e}") from None


def _audit_log(o: Options) -> None:
    """The log file must be creatable even without a policy, as in kube-apiserver."""
    from kas.audit.logfile import unusable

    why = unusable(o.audit_log_path) if o.audit_log_path else ""
    if why:
        raise ValueError(f"ensureLogFile: {why}")


def _audit_webhook(o: Options) -> None:
    """Checked only together with a policy."""
    from kas.client.kubeconfig import load

    if o.audit_webhook_config_file and o.audit_policy_file:
        try:
            load(o.audit_webhook_config_file)
        except ValueError as e:
            raise ValueError(f"initializing audit webhook: {e}") from None


def _admission(o: Options) -> list[str]:
    """What the plug-ins report about their parts of the configuration file, and about having none."""
    from kas.admission import order

    with _gates(o):
        return order.misconfigured(o, o.admission_control_config_file)


def _authorities(o: Options) -> Iterator[Check]:
    for name, path in (("client-ca-bundle", o.client_ca_file), ("request-header", o.requestheader_client_ca_file)):
        yield partial(_authority, name, path)


def _authority(name: str, path: str) -> None:
    from kas.config.flagtypes import quote
    from kas.meta.pem import bundle_problem

    try:
        data = Path(path).read_bytes() if path else b""
    except OSError:
        return
    why = bundle_problem(data) if data else ""
    if why:
        raise ValueError(f"error loading CA bundle for {quote(f'{name}::{path}')}: {why}")


def _serving(o: Options) -> Iterator[Check]:
    serving = (o.tls_cert_file, o.tls_private_key_file)
    if o.cert_dir and not any(serving):
        serving = (os.path.join(o.cert_dir, "apiserver.crt"), os.path.join(o.cert_dir, "apiserver.key"))
    for cert, key, name in (
        (*serving, "serving-cert"),
        (o.proxy_client_cert_file, o.proxy_client_key_file, "aggregator-proxy-cert"),
    ):
        if cert and key:
            yield partial(_pair, cert, key, name)
    for text in o.tls_sni_cert_key:
        cert, _, key = text.partition(":")[0].partition(",")
        yield partial(_pair, cert, key, "sni-serving-cert", "failed to load SNI cert and key: ")


def _pair(cert: str, key: str, name: str, begin: str = "") -> None:
    from kas.config import keypairs

    found = keypairs.problem(cert, key, name)
    if found:
        raise ValueError(begin + found)


def _kubelets(o: Options) -> Iterator[Check]:
    """Checks the client certificate for kubelets and the CA that kubelets are verified with; otherwise the first log
    or exec request would find an error in them."""
    if o.kubelet_client_certificate and o.kubelet_client_key:
        yield partial(_pair, o.kubelet_client_certificate, o.kubelet_client_key, "kubelet-client", "--kubelet-client-certificate: ")
    yield lambda: _kubelets_authority(o)


def _kubelets_authority(o: Options) -> None:
    from kas.meta.pem import authorities_problem

    try:
        data = Path(o.kubelet_certificate_authority).read_bytes() if o.kubelet_certificate_authority else b""
    except OSError:
        return  # reported by ``validation``
    if o.kubelet_certificate_authority and not data:  # kube-apiserver then trusts no kubelet
        raise ValueError(f"--kubelet-certificate-authority: {o.kubelet_certificate_authority} is empty")
    if why := authorities_problem(data):
        raise ValueError(f"--kubelet-certificate-authority: {why}")


def _etcd(o: Options) -> None:
    """Checks the client certificate for etcd and the CA that etcd is verified with. In kube-apiserver the etcd
    client reports these errors, without naming a flag."""
    from kas.config import keypairs
    from kas.meta.pem import bundle_problem

    if o.storage_backend != "etcd3":
        return
    held = {}
    for name, path in (("cafile", o.etcd_cafile), ("certfile", o.etcd_certfile), ("keyfile", o.etcd_keyfile)):
        try:
            held[name] = Path(path).read_bytes() if path else b""
        except OSError as e:
            raise ValueError(f"--etcd-{name}: {unreadable(path, e)}") from None
    why = bundle_problem(held["cafile"]) if o.etcd_cafile else ""
    if why:
        raise ValueError(f"--etcd-cafile: {o.etcd_cafile}: {why}")
    if o.etcd_keyfile and not o.etcd_certfile:
        raise ValueError("--etcd-keyfile is set, and --etcd-certfile is not")
    key = o.etcd_keyfile or o.etcd_certfile  # both may be in one file
    why = keypairs.problem(o.etcd_certfile, key, "etcd") if o.etcd_certfile else ""
    if why:
        raise ValueError(f"--etcd-certfile {o.etcd_certfile}, --etcd-keyfile {key}: {why}")


def _credentials(o: Options) -> Iterator[Check]:
    from kas.auth.authn.basicfile import load_basic_file
    from kas.auth.authn.tokenfile import load_token_file

    for path, load_file in ((o.token_auth_file, load_token_file), (o.basic_auth_file, load_basic_file)):
        if path:
            yield partial(_readable, load_file, path)
    for path in o.service_account_key_file:
        yield partial(_readable, _verifying, path)
    if o.service_account_signing_key_file:
        yield partial(_readable, _signing, o.service_account_signing_key_file)


def _readable(load: Callable[[str], object], path: str) -> None:
    with contextlib.suppress(OSError):  # reported by ``validation``
        load(path)


def _verifying(path: str) -> None:
    from kas.auth import jws
    from kas.auth.tokens import load_public_keys

    try:
        for key in load_public_keys(Path(path).read_bytes()):
            jws.key(key, "")
    except ValueError as e:
        raise ValueError(f"error reading public key file {path}: {e}") from None


def _signing(path: str) -> None:
    from kas.auth.tokens import Signer

    try:
        Signer(Path(path).read_bytes(), "").public_key()
    except (ValueError, TypeError):
        why = "data does not contain a valid RSA or ECDSA private key"
        raise ValueError(f"failed to parse service-account-issuer-key-file: error reading private key file {path}: {why}") from None


def _authentication(o: Options) -> None:
    from kas.auth.authn.oidc.configuration import load
    from kas.config import features

    if not features.problems(o.feature_gates):
        with _gates(o):
            load(o)


@contextlib.contextmanager
def _gates(o: Options) -> Iterator[None]:
    """Sets the feature gates to those of the flags while the context is open; to the defaults if the flags are invalid."""
    from kas.config import features

    given = {} if features.problems(o.feature_gates) else o.feature_gates
    on = features.enabled(given)
    with features.DEFAULT.overridden(**{name: name in on for name in features.GOVERNED}):
        yield


def _token_webhook(o: Options) -> None:
    from kas.client.kubeconfig import load

    if o.authentication_token_webhook_config_file:
        load(o.authentication_token_webhook_config_file)


def _encryption(o: Options) -> None:
    """Created as a worker creates it, except that no plug-in is called."""
    from kas.config import features
    from kas.encryption.atrest import EncryptionAtRest
    from kas.types.scheme import Scheme

    path, gates = o.encryption_provider_config, o.feature_gates
    if path:
        v1 = not features.problems(gates) and "KMSv1" in features.enabled(gates)
        EncryptionAtRest(path, o.encryption_provider_config_automatic_reload, v1, Scheme().resources).close()


def _tracing(o: Options) -> None:
    from kas.filters.tracingconfig import load

    if os.path.exists(o.tracing_config_file):
        load(o.tracing_config_file)


def _egress(o: Options) -> None:
    from kas.client.egress import load
    from kas.observe.metrics import Registry

    if os.path.exists(o.egress_selector_config_file):
        load(o, Registry())


def _write(fd: int, data: bytes) -> None:
    """Writes all of the data, however much a pipe takes at once."""
    with os.fdopen(fd, "wb", closefd=False) as f:
        f.write(data)


def _authorization(o: Options) -> None:
    from kas.auth.authz.abac import PolicyError, load_policy_file
    from kas.auth.authz.configuration import VERSIONS, from_flags, load_file
    from kas.client.kubeconfig import load as load_kubeconfig
    from kas.config.flagtypes import quote

    authorizers = load_file(o.authorization_config) if o.authorization_config else from_flags(o)
    path = o.authorization_policy_file
    try:
        if any(a.type == "ABAC" for a in authorizers) and (path or o.authorization_config):
            load_policy_file(path)
        for hook in filter(None, (a.webhook for a in authorizers)):
            if hook.kubeconfig:
                load_kubeconfig(hook.kubeconfig)
            if hook.version not in VERSIONS:
                known = ", ".join(map(quote, VERSIONS))
                raise ValueError(f"unsupported webhook authorizer version {quote(hook.version)}, supported versions are {known}")
    except OSError as e:
        raise ValueError(f"invalid authorization config: {unreadable(path, e)}") from None
    except (PolicyError, ValueError) as e:
        raise ValueError(f"invalid authorization config: {e}") from None
