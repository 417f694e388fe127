"""Errors in the files that flags name."""

from __future__ import annotations

import gc
import os

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kas.auth.tokens import Verifier
from kas.config.options import Options
from kas.config.validation import validate
from kas.preflight import preflight, unusable
from tests.pki import issue

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


def test_destinations_of_audit_events(tmp_path):
    policy, missing = tmp_path / "policy.yaml", tmp_path / "none"
    policy.write_text(POLICY)
    webhook = {"audit-webhook-config-file": str(missing), "audit-policy-file": str(policy)}
    assert unusable(Options(webhook)) == [f"initializing audit webhook: stat {missing}: no such file or directory"]
    assert preflight(Options(webhook)) == unusable(Options(webhook))
    log = {"audit-log-path": str(tmp_path), "audit-policy-file": str(policy)}
    assert unusable(Options(log)) == [f"ensureLogFile: open {tmp_path}: is a directory"]
    log["audit-log-path"] = str(policy / "a.log")
    assert unusable(Options(log)) == [f"ensureLogFile: mkdir {policy}: not a directory"]
    log["audit-log-path"] = str(tmp_path / "new" / "a.log")
    assert unusable(Options(log)) == [] and (tmp_path / "new" / "a.log").exists()


def test_a_system_without_a_free_process_is_reported_in_one_line(tmp_path, monkeypatch):
    """The error used to come with a traceback."""
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none)
    gc.collect()  # descriptors that other tests left are closed now
    held = len(os.listdir("/proc/self/fd"))
    (why,) = preflight(Options({"audit-log-path": str(tmp_path)}))
    assert why.startswith("no process can be created: Resource temporarily unavailable: ulimit -u")
    assert len(os.listdir("/proc/self/fd")) <= held


def test_without_a_policy_there_are_no_events(tmp_path):
    assert unusable(Options({"audit-webhook-config-file": str(tmp_path / "none")})) == []
    assert unusable(Options({"audit-log-path": str(tmp_path)})) == [f"ensureLogFile: open {tmp_path}: is a directory"]


def test_a_log_in_an_unread_pipe_is_refused(tmp_path):
    """Opening it would block without a message."""
    os.mkfifo(tmp_path / "pipe")
    log = Options({"audit-log-path": str(tmp_path / "pipe")})
    assert unusable(log) == [f"ensureLogFile: open {tmp_path}/pipe: no such device or address"]
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert unusable(log) == []
    os.close(reader)


def test_files_must_not_be_pipes(tmp_path):
    """Only one worker could read one; other errors are reported when files can be opened."""
    os.mkfifo(pipe := tmp_path / "pipe")
    for flag in ("token-auth-file", "authorization-config", "egress-selector-config-file", "audit-policy-file", "oidc-ca-file"):
        o = Options({flag: str(pipe), "goaway-chance": 1.0})
        assert validate(o) == [f"--{flag}: {pipe} is a pipe, but must be a file, because it is read more than once"]
        assert preflight(o) == []
    for flag in ("service-account-key-file", "tls-sni-cert-key"):
        (why,) = validate(Options({flag: [f"/gone,{pipe}:a,b" if "sni" in flag else str(pipe)]}))
        assert why.startswith(f"--{flag}: {pipe} is a pipe")
    assert validate(Options({"audit-log-path": str(pipe)})) == []


def test_kubelet_client_certificates(tmp_path):
    garbage, shown, key = tmp_path / "garbage", tmp_path / "cert.pem", tmp_path / "key.pem"
    garbage.write_text("nothing")
    issued = issue([("CN", "kas")])
    shown.write_bytes(issued.pem)
    key.write_bytes(issued.key_pem)
    pair = {"kubelet-client-certificate": str(shown), "kubelet-client-key": str(key)}
    assert preflight(Options(pair | {"kubelet-certificate-authority": str(shown)})) == []
    (why,) = preflight(Options(pair | {"kubelet-client-key": str(garbage)}))
    assert why == "--kubelet-client-certificate: tls: failed to find any PEM data in key input"
    (why,) = preflight(Options({"kubelet-certificate-authority": str(garbage)}))
    assert why == "--kubelet-certificate-authority: unable to load root certificates: unable to parse bytes as PEM block"
    garbage.write_text("")
    assert preflight(Options({"kubelet-certificate-authority": str(garbage)})) == [f"--kubelet-certificate-authority: {garbage} is empty"]


def test_keys_that_verify_tokens(tmp_path):
    """Keys other than RSA and ECDSA are skipped, wherever they are; Ed25519 cannot be published as JWKS."""
    kinds = {"ed": ed25519.Ed25519PrivateKey.generate(), "ec": ec.generate_private_key(ec.SECP256R1()),
             "other": ec.generate_private_key(ec.SECP256K1())}
    pem = {
        name: key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for name, key in kinds.items()
    } | {"broken": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}  # fmt: skip
    path, given = tmp_path / "keys.pem", {"service-account-key-file": [str(tmp_path / "keys.pem")]}
    path.write_bytes(pem["ed"] + pem["broken"])
    (why,) = preflight(Options(given))
    assert why == f"error reading public key file {path}: data does not contain any valid RSA or ECDSA public keys"
    path.write_bytes(pem["other"] + pem["ec"])
    (why,) = preflight(Options(given))
    assert why == f"error reading public key file {path}: unknown public key type, must be RSA or ECDSA on P-256, P-384 or P-521"
    path.write_bytes(pem["ed"] + pem["ec"] + pem["broken"])
    assert preflight(Options(given)) == []
    (key,) = Verifier([path.read_bytes()], ("x",)).jwks()["keys"]
    assert key["alg"] == "ES256"


def test_a_file_that_is_not_text_is_reported_as_other_errors(tmp_path):
    path = tmp_path / "policy"
    path.write_bytes(b"\xff\x00")
    (why,) = preflight(Options({"authorization-mode": ["ABAC"], "authorization-policy-file": str(path)}))
    assert why.startswith(f"invalid authorization config: error reading policy file {path}, line 1: ")
    path.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (why,) = preflight(Options({"kubelet-certificate-authority": str(path)}))
    assert why.endswith("unable to load root certificates: failed to parse certificate: x509: malformed certificate")


def test_etcd_client_certificates(tmp_path):
    garbage, pem = tmp_path / "garbage", tmp_path / "both.pem"
    garbage.write_text("nothing")
    issued = issue([("CN", "kas")])
    pem.write_bytes(issued.pem + issued.key_pem)
    etcd = {"storage-backend": "etcd3", "etcd-servers": "https://127.0.0.1:1"}
    assert preflight(Options(etcd | {"etcd-cafile": str(pem), "etcd-certfile": str(pem)})) == []
    assert preflight(Options({"etcd-cafile": str(tmp_path / "none")})) == []  # not read on LMDB
    for files, why in (
        ({"cafile": tmp_path / "none"}, f"--etcd-cafile: open {tmp_path / 'none'}: no such file or directory"),
        ({"cafile": garbage}, f"--etcd-cafile: {garbage}: data does not contain any valid RSA or ECDSA certificates"),
        ({"keyfile": pem}, "--etcd-keyfile is set, and --etcd-certfile is not"),
        ({"certfile": pem, "keyfile": garbage}, f"--etcd-certfile {pem}, --etcd-keyfile {garbage}: "
            "tls: failed to find any PEM data in key input"),
    ):  # fmt: skip
        assert unusable(Options(etcd | {f"etcd-{name}": str(path) for name, path in files.items()})) == [why]


def test_all_errors_are_reported_at_once(tmp_path):
    """Also those in the files of one function, and those that only workers found once there was a data directory."""
    garbage, open_ = tmp_path / "garbage", tmp_path / "open"
    garbage.write_text("nothing")
    open_.write_text("a: [")
    says = {
        "client-ca-file": f'error loading CA bundle for "client-ca-bundle::{garbage}"',
        "requestheader-client-ca-file": f'error loading CA bundle for "request-header::{garbage}"',
        "kubelet-certificate-authority": "--kubelet-certificate-authority: unable to load root certificates",
        "token-auth-file": f"token file '{garbage}' must have at least 3 columns",
        "basic-auth-file": f"password file '{garbage}' must have at least 3 columns",
        "service-account-key-file": f"error reading public key file {garbage}",
        "service-account-signing-key-file": "failed to parse service-account-issuer-key-file",
        "authentication-config": "failed to load authentication configuration",
        "authentication-token-webhook-config-file": "error loading config file",
        "admission-control-config-file": "failed to apply admission: failed to read plugin config: yaml: line 1",
        "audit-policy-file": "loading audit policy file",
        "audit-log-path": "ensureLogFile",
        "audit-webhook-config-file": "initializing audit webhook",
    }
    lists, paths = ("service-account-key-file",), {"audit-log-path": tmp_path}
    read_as_yaml = ("authentication-config", "authentication-token-webhook-config-file", "admission-control-config-file")
    given = {name: str(paths.get(name, open_ if name in read_as_yaml else garbage)) for name in says}
    found = preflight(Options({name: [path] if name in lists else path for name, path in given.items()}))
    assert [(name, any(text.startswith(begin) for text in found)) for name, begin in says.items()] == [(name, True) for name in says]
    assert len(found) == len(says)
    assert preflight(Options({"admission-control-config-file": str(open_)})) == [f for f in found if "failed to apply admission" in f]


def test_errors_of_plugin_configurations_are_reported_at_once(tmp_path):
    """Before there is a data directory, and with the gates of the flags; disabled plug-ins are not checked."""
    path = tmp_path / "admission.yaml"
    path.write_text("""apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: PodSecurity, path: gone.yaml}
- name: PodNodeSelector
  path: gone.yaml
- name: PodTolerationRestriction
  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{operator: Sometimes}]}
- {name: ResourceQuota, configuration: {kind: Configuration, apiVersion: v1}}
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: here}
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: /no/such}
""")
    flags = {
        "admission-control-config-file": str(path), "feature-gates": {"": ["ManifestBasedAdmissionControlConfig=true"]},
        "enable-admission-plugins": ["EventRateLimit", "ImagePolicyWebhook", "PodTolerationRestriction"],
    }  # fmt: skip
    begin, found = "failed to apply admission: couldn't init admission plugin ", preflight(Options(flags))
    assert [text.removeprefix(begin) for text in found if not text.startswith(begin + '"PodTolerationRestriction": invalid config: [')] == [
        '"ImagePolicyWebhook": no config specified',
        f'"PodSecurity": open {tmp_path}/gone.yaml: no such file or directory',
        '"EventRateLimit": limits: Invalid value: null: must not be empty',
        '"MutatingAdmissionWebhook": staticManifestsDir: Invalid value: "/no/such": unable to read: '
        "stat /no/such: no such file or directory",
        '"ValidatingAdmissionPolicy": staticManifestsDir: Invalid value: "here": must be an absolute file path',
        '"ResourceQuota": no kind "Configuration" is registered for version "v1"',
    ]
    assert len(found) == 7
