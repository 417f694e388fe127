"""Flags of kube-apiserver's sections "api enablement", "egress selector", "misc" and "global"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

API_ENABLEMENT = (
    Flag("runtime-config", "configurationMap", {}, "API versions on or off: api/all=true, api/beta=true, apps/v1=false, /v1/pods=false, …"),
)
EGRESS_SELECTOR = (
    Flag("egress-selector-config-file", "string", "", "EgressSelectorConfiguration: direct connections, and HTTPConnect and GRPC "
         "(konnectivity) proxies, for controlplane and cluster. Proxies for etcd and traces are refused."),
)  # fmt: skip

MISC = (
    Flag("aggregator-reject-forwarding-redirect", "bool", True, "Answer an error when an aggregated server redirects."),
    Flag("allow-privileged", "bool", True, "Whether containers may be privileged.", upstream=""),
    Flag("coordinated-leadership-lease-duration", "duration", 15.0,
         "Life of the Lease of the server that elects leaders among LeaseCandidates, with the gate CoordinatedLeaderElection."),
    Flag("coordinated-leadership-renew-deadline", "duration", 10.0, "How long that server tries to renew it."),
    Flag("coordinated-leadership-retry-period", "duration", 2.0, "Pause between its tries."),
    Flag("enable-aggregator-routing", "bool", False,
         "Reach aggregated servers and webhooks at one of their Service's endpoints, not at its address."),
    Flag("enable-logs-handler", "bool", False, "Serve the files of --log-dir under /logs/."),
    Flag("endpoint-reconciler-type", "string", "lease",
         "Who keeps the endpoints of the kubernetes Service: lease (on etcd all servers) or master-count (this server), or none (nobody)."),
    Flag("event-ttl", "duration", 3600.0, "How long Events are kept."),
    Flag("kubelet-certificate-authority", "path", "", "CA (PEM) that kubelets' certificates must be of.", shown="any is believed"),
    Flag("kubelet-client-certificate", "path", "", "Certificate (PEM) shown to kubelets."),
    Flag("kubelet-client-key", "path", "", "Key of --kubelet-client-certificate (PEM)."),
    Flag("kubelet-preferred-address-types", "strings", ("InternalIP", "ExternalIP", "Hostname"),
         "Which of a node's addresses its kubelet is reached at, in order.",
         upstream="[Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP]"),
    Flag("kubelet-timeout", "duration", 5.0, "How long a kubelet may take to answer.",
         no_effect("calls to kubelets end with the request they serve, as those of kube-apiserver, which reads it nowhere")),
    Flag("kubernetes-service-node-port", "int", 0, "Node port of the kubernetes Service; 0 = none, it is of type ClusterIP then."),
    Flag("max-connection-bytes-per-sec", "int", 0,
         "Bytes a second that exec, attach, port forwarding and upgraded proxied connections pass, in each direction; 0 = no bound."),
    Flag("peer-advertise-ip", "string", "", "Address at which other API servers reach this one.", shown="--advertise-address"),
    Flag("peer-advertise-port", "string", "", "Port at which other API servers reach this one.", shown="--secure-port"),
    Flag("peer-ca-file", "string", "", "CA (PEM) of the other API servers of the cluster, to whom is passed on what only they serve; with "
         "--proxy-client-cert-file and --storage-backend=etcd3."),
    Flag("proxy-client-cert-file", "path", "", "Certificate (PEM) shown to aggregated servers."),
    Flag("proxy-client-key-file", "path", "", "Key of --proxy-client-cert-file (PEM)."),
    Flag("service-account-signing-endpoint", "string", "", "Socket of a signer of service-account tokens outside of the server "
         "(ExternalJWTSigner of k8s.io/externaljwt). Needs the extra kas[signer]."),
    Flag("service-account-signing-key-file", "path", "", "Key that signs service-account tokens (PEM).", shown="self-made, in --data-dir"),
    Flag("service-cluster-ip-range", "string", "10.0.0.0/24", "One range of service IPs, or one of each family, comma separated.",
         upstream=""),
    Flag("service-node-port-range", "portRange", (30000, 32767), "Node ports: low-high or low+count."),
)  # fmt: skip

GLOBAL = (
    Flag("help", "bool", False, "Print this and exit.", short="h"),
    Flag("version", "version[=true]", "", "Print the versions and exit; =raw prints all that is known of them; =v1.36.2-… is "
         "the version to report, with what follows the last number."),
)
