"""Flags of kube-apiserver's sections "authentication", "authorization" and "admission"."""

from __future__ import annotations

from kas.config.flags.row import Flag

AUTHENTICATION = (
    Flag("anonymous-auth", "bool", True,
         "Treat requests without credentials as system:anonymous instead of answering 401; off with --authorization-mode=AlwaysAllow."),
    Flag("api-audiences", "strings", (), "Audiences of the API server.", shown="the service-account issuers"),
    Flag("authentication-config", "path", "", "AuthenticationConfiguration file; its issuers are reloaded when it changes."),
    Flag("authentication-token-webhook-cache-ttl", "duration", 120.0, "How long answers of the webhook are cached."),
    Flag("authentication-token-webhook-config-file", "path", "", "Kubeconfig of the webhook that authenticates tokens."),
    Flag("authentication-token-webhook-version", "string", "v1beta1", "Version of TokenReview sent to the webhook."),
    Flag("client-ca-file", "path", "", "CA that verifies client certificates; CN is the user, O the groups."),
    Flag("enable-bootstrap-token-auth", "bool", False, "Accept bootstrap tokens (Secrets in kube-system), with which nodes join."),
    Flag("oidc-ca-file", "path", "", "CA that verifies the issuer's certificate."),
    Flag("oidc-client-id", "string", "", "Client id for which tokens must be issued."),
    Flag("oidc-groups-claim", "string", "", "Claim that holds the groups."),
    Flag("oidc-groups-prefix", "string", "", "Prefix added to each group."),
    Flag("oidc-issuer-url", "string", "", "Issuer whose tokens are accepted."),
    Flag("oidc-required-claim", "mapStringString", {}, "Claims that a token must have."),
    Flag("oidc-signing-algs", "strings", ("RS256",), "Accepted signature algorithms."),
    Flag("oidc-username-claim", "string", "sub", "Claim that holds the user's name."),
    Flag("oidc-username-prefix", "string", "", "Prefix added to the user's name."),
    Flag("requestheader-allowed-names", "strings", (), "Common names that the certificate of an authenticating proxy may have."),
    Flag("requestheader-client-ca-file", "path", "", "CA of authenticating proxies, whose headers name the user."),
    Flag("requestheader-extra-headers-prefix", "strings", (), "Prefixes of the headers with extra attributes of the user."),
    Flag("requestheader-group-headers", "strings", (), "Headers with the user's groups."),
    Flag("requestheader-uid-headers", "strings", (), "Headers with the user's uid."),
    Flag("requestheader-username-headers", "strings", (), "Headers with the user's name."),
    Flag("service-account-extend-token-expiration", "bool", True, "Extend the tokens of pods to a year."),
    Flag("service-account-issuer", "stringArray", ("https://kubernetes.default.svc",),
         "Issuer of service-account tokens. If repeated, the first one issues tokens and all are accepted.", upstream=""),
    Flag("service-account-jwks-uri", "string", "", "URL of the keys in the discovery document.", shown="that of this server"),
    Flag("service-account-key-file", "stringArray", (),
         "Keys (PEM, public or private) that verify service-account tokens, besides the signing key."),
    Flag("service-account-lookup", "bool", True,
         "Require that the Secret and the account of a token without expiry still exist; other tokens always require theirs."),
    Flag("service-account-max-token-expiration", "duration", 0.0,
         "Longest lifetime of a service-account token, at least 1h; 0 = no limit."),
    Flag("token-auth-file", "path", "", 'CSV of token,user,uid,"group1,group2".'),
)  # fmt: skip

AUTHORIZATION = (
    Flag("authorization-config", "path", "", "AuthorizationConfiguration file, replaces --authorization-mode; reloaded when it changes."),
    Flag("authorization-mode", "strings", ("Node", "RBAC"), "Authorizers in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny.",
         upstream=""),
    Flag("authorization-policy-file", "path", "", "ABAC policy file, one JSON object per line."),
    Flag("authorization-webhook-cache-authorized-ttl", "duration", 300.0, "How long the webhook's positive answers are cached."),
    Flag("authorization-webhook-cache-unauthorized-ttl", "duration", 30.0, "How long the webhook's negative answers are cached."),
    Flag("authorization-webhook-config-file", "path", "", "Kubeconfig of the webhook that authorizes."),
    Flag("authorization-webhook-version", "string", "v1beta1", "Version of SubjectAccessReview sent to the webhook."),
)  # fmt: skip

ADMISSION = (
    Flag("admission-control", "strings", (),
         "Complete list of enabled admission plug-ins, replaces the defaults; deprecated: use --enable-admission-plugins."),
    Flag("admission-control-config-file", "path", "", "AdmissionConfiguration file (YAML or JSON) with the configurations of plug-ins."),
    Flag("default-not-ready-toleration-seconds", "int", 300,
         "Default for pods: seconds until they are evicted from a node that is not ready."),
    Flag("default-unreachable-toleration-seconds", "int", 300,
         "Default for pods: seconds until they are evicted from an unreachable node."),
    Flag("disable-admission-plugins", "strings", (), "Admission plug-ins to disable."),
    Flag("enable-admission-plugins", "strings", (), "Admission plug-ins to enable besides the defaults."),
)  # fmt: skip
