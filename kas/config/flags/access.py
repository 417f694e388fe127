"""Flags of kube-apiserver's sections "authentication", "authorization" and "admission"."""

from __future__ import annotations

from kas.config.flags.row import Flag

AUTHENTICATION = (
    Flag("anonymous-auth", "bool", True,
         "Requests without credentials are system:anonymous instead of 401; not with --authorization-mode=AlwaysAllow."),
    Flag("api-audiences", "strings", (), "Audiences of the API server.", shown="the service-account issuers"),
    Flag("authentication-config", "path", "", "AuthenticationConfiguration file; its issuers are read again when it changes."),
    Flag("authentication-token-webhook-cache-ttl", "duration", 120.0, "How long the webhook's answers are kept."),
    Flag("authentication-token-webhook-config-file", "path", "", "Kubeconfig of the webhook that is asked about tokens."),
    Flag("authentication-token-webhook-version", "string", "v1beta1", "Version of TokenReview the webhook is sent."),
    Flag("client-ca-file", "path", "", "CA whose client certificates name users: CN the user, O the groups."),
    Flag("enable-bootstrap-token-auth", "bool", False, "Accept the tokens of Secrets in kube-system that let nodes join."),
    Flag("oidc-ca-file", "path", "", "CA of the issuer's certificate."),
    Flag("oidc-client-id", "string", "", "Client id the tokens are for."),
    Flag("oidc-groups-claim", "string", "", "Claim that holds the groups."),
    Flag("oidc-groups-prefix", "string", "", "What is put before each group."),
    Flag("oidc-issuer-url", "string", "", "Issuer whose tokens are accepted."),
    Flag("oidc-required-claim", "mapStringString", {}, "Claims a token has to have."),
    Flag("oidc-signing-algs", "strings", ("RS256",), "Signature algorithms that are accepted."),
    Flag("oidc-username-claim", "string", "sub", "Claim that holds the user's name."),
    Flag("oidc-username-prefix", "string", "", "What is put before the name."),
    Flag("requestheader-allowed-names", "strings", (), "Common names an authenticating proxy may have."),
    Flag("requestheader-client-ca-file", "path", "", "CA of authenticating proxies, whose headers name the user."),
    Flag("requestheader-extra-headers-prefix", "strings", (), "Prefixes of the headers with what else is known of the user."),
    Flag("requestheader-group-headers", "strings", (), "Headers with the user's groups."),
    Flag("requestheader-uid-headers", "strings", (), "Headers with the user's uid."),
    Flag("requestheader-username-headers", "strings", (), "Headers with the user's name."),
    Flag("service-account-extend-token-expiration", "bool", True, "Extend the tokens of pods to a year."),
    Flag("service-account-issuer", "stringArray", ("https://kubernetes.default.svc",),
         "Issuer of service-account tokens. Repeated, the first one issues and all are accepted.", upstream=""),
    Flag("service-account-jwks-uri", "string", "", "URL of the keys in the discovery document.", shown="that of this server"),
    Flag("service-account-key-file", "stringArray", (),
         "Keys (PEM, public or private) that verify service-account tokens, besides the signing key."),
    Flag("service-account-lookup", "bool", True,
         "Whether the Secret of a token without end, and its account, have to exist; those of other tokens always have to."),
    Flag("service-account-max-token-expiration", "duration", 0.0, "Longest life of a service-account token, at least 1h; 0 = no bound."),
    Flag("token-auth-file", "path", "", 'CSV of token,user,uid,"group1,group2".'),
)  # fmt: skip

AUTHORIZATION = (
    Flag("authorization-config", "path", "", "AuthorizationConfiguration file, instead of the modes; read again when it changes."),
    Flag("authorization-mode", "strings", ("Node", "RBAC"), "Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny.",
         upstream=""),
    Flag("authorization-policy-file", "path", "", "ABAC policy, one JSON object a line."),
    Flag("authorization-webhook-cache-authorized-ttl", "duration", 300.0, "How long a webhook's yes is kept."),
    Flag("authorization-webhook-cache-unauthorized-ttl", "duration", 30.0, "How long a webhook's no is kept."),
    Flag("authorization-webhook-config-file", "path", "", "Kubeconfig of the webhook that authorizes."),
    Flag("authorization-webhook-version", "string", "v1beta1", "Version of SubjectAccessReview the webhook is sent."),
)  # fmt: skip

ADMISSION = (
    Flag("admission-control", "strings", (),
         "All admission plug-ins that are on, instead of the defaults; deprecated: use --enable-admission-plugins."),
    Flag("admission-control-config-file", "path", "", "AdmissionConfiguration file (YAML or JSON): what plug-ins are told."),
    Flag("default-not-ready-toleration-seconds", "int", 300, "How long pods stay on a node that is not ready, unless they say otherwise."),
    Flag("default-unreachable-toleration-seconds", "int", 300,
         "How long pods stay on a node that cannot be reached, unless they say otherwise."),
    Flag("disable-admission-plugins", "strings", (), "Admission plug-ins off."),
    Flag("enable-admission-plugins", "strings", (), "Admission plug-ins on, besides the defaults."),
)  # fmt: skip
