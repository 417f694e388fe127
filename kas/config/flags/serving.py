"""Flags of kube-apiserver's sections "generic" and "secure serving"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect, one_value

_ONE_VERSION = one_value("kas behaves as one version of Kubernetes, the one it prints")

GENERIC = (
    Flag("advertise-address", "ip", "", "Address published in the endpoints of the kubernetes Service, which take this host's instead of "
         "a loopback address.",
         shown="the bind address, or that of the default route's interface"),
    Flag("cors-allowed-origins", "strings", (),
         "Regular expressions for origins that CORS allows; each must match both ends of the host."),
    Flag("emulated-version", "strings", (), "Version of Kubernetes to behave like: 1.36.", _ONE_VERSION),
    Flag("emulation-forward-compatible", "bool", False, "Serve newer versions of APIs while emulating an older release.", _ONE_VERSION),
    Flag("external-hostname", "string", "", "Name under which clients reach the server: in discovery and the URL of the token keys.",
         shown="the advertised address"),
    Flag("feature-gates", "colonSeparatedMultimapStringString", {},
         "Feature gates: Name=true|false, also AllAlpha and AllBeta; see docs/flags.md."),
    Flag("goaway-chance", "float", 0.0, "Probability that an HTTP/2 request is answered with a GOAWAY, at most 0.02."),
    Flag("livez-grace-period", "duration", 0.0,
         "How long after a worker's start /livez passes unfinished poststarthook/ checks and autoregister-completion."),
    Flag("max-mutating-requests-inflight", "int", 200,
         "With --max-requests-inflight the seats that priority levels share; without these, most concurrent writes, 0 = no limit."),
    Flag("max-requests-inflight", "int", 400,
         "With --max-mutating-requests-inflight the seats that priority levels share; without these, most concurrent reads, 0 = no limit."),
    Flag("min-compatibility-version", "strings", (), "Oldest version of Kubernetes to stay compatible with; /version shows it.",
         shown="the release before"),
    Flag("min-request-timeout", "int", 1800,
         "Minimum lifetime of a watch without timeoutSeconds, in seconds; the actual one is up to twice that."),
    Flag("request-timeout", "duration", 60.0, "Timeout of requests that are not long-running."),
    Flag("runtime-config-emulation-forward-compatible", "bool", False,
         "Like --emulation-forward-compatible, for what --runtime-config names.", _ONE_VERSION),
    Flag("send-retry-after-while-not-ready-once", "bool", False,
         "Answer requests with 429 and Retry-After until /readyz has passed once in the worker that receives them."),
    Flag("shutdown-delay-duration", "duration", 0.0, "How long to continue serving after SIGTERM, while /readyz fails."),
    Flag("shutdown-send-retry-after", "bool", True,
         "After that delay, if half a second has no moment without requests in which to end: answer new requests with 429 and Retry-After; "
         "else with 503.", upstream=""),
    Flag("shutdown-watch-termination-grace-period", "duration", 0.0,
         "Time over which open watches are ended, one after another, 200 a second at least, once other requests have ended; 0 = at once."),
    Flag("storage-initialization-timeout", "duration", 60.0,
         "How long a starting server waits for etcd before it exits."),
    Flag("strict-transport-security-directives", "strings", (), "Directives of the HSTS header: max-age=…, includeSubDomains, preload."),
)  # fmt: skip

SECURE_SERVING = (
    Flag("bind-address", "ip", "127.0.0.1", "Address of the secure port; 0.0.0.0 or :: means all interfaces.", upstream="0.0.0.0"),
    Flag("cert-dir", "string", "", "Directory of the serving certificate if --tls-cert-file is not set: apiserver.crt and"
         " apiserver.key, created if missing.", upstream="/var/run/kubernetes", shown="pki below --data-dir"),
    Flag("disable-http2-serving", "bool", False, "Serve HTTP/1.1 only."),
    Flag("http2-max-streams-per-connection", "int", 0, "Most concurrent requests on an HTTP/2 connection; 0 = 100."),
    Flag("permit-address-sharing", "bool", False, "Bind with SO_REUSEADDR.",
         no_effect("the ports are always bound with SO_REUSEADDR, as in every Go program", True)),
    Flag("permit-port-sharing", "bool", False, "Share the secure port with other servers of this user that also bind with SO_REUSEPORT."),
    Flag("secure-port", "port", 6443, "TLS port; 'auto' = a free one, 0 = off (needs another port)."),
    Flag("tls-cert-file", "path", "", "Serving certificate, with its intermediates (PEM).", shown="self-made, in --data-dir"),
    Flag("tls-cipher-suites", "strings", (), "Cipher suites of TLS 1.2; those of 1.3 are always offered.",
         shown="ECDHE with AES-GCM or ChaCha20"),
    Flag("tls-curve-preferences", "int32Slice", (),
         "Offered key exchanges, by their numbers in Go: 23, 24, 25 (P-256, P-384, P-521), 29 (X25519), 4587, 4588, 4589 (hybrids"
         " with ML-KEM). Their order has no effect.", shown="those of the TLS library"),
    Flag("tls-min-version", "string", "VersionTLS12",
         "Oldest TLS version accepted: VersionTLS12 or VersionTLS13 (older names mean VersionTLS12).",
         upstream=""),
    Flag("tls-private-key-file", "path", "", "Key of --tls-cert-file (PEM).", shown="self-made, in --data-dir"),
    Flag("tls-sni-cert-key", "namedCertKey", (),
         "Further certificates, selected by the name that the client requests: cert,key or cert,key:name,…. An IP address as name selects"
         " the certificate for clients that connect to that address."),
)  # fmt: skip
