"""Flags of kube-apiserver's sections "api enablement", "egress selector", "misc" and "global"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

API_ENABLEMENT = (
    Flag("runtime-config", "configurationMap", {},
         "API versions to enable or disable: api/all=true, api/beta=true, apps/v1=false, /v1/pods=false, …"),
)
EGRESS_SELECTOR = (
    Flag("egress-selector-config-file", "string", "", "EgressSelectorConfiguration file: direct connections, or HTTPConnect and "
         "GRPC (konnectivity) proxies, for controlplane and cluster. A proxy that etcd's or traces' connections would need is refused."),
)  # fmt: skip

MISC = (
    Flag("aggregator-reject-forwarding-redirect", "bool", True, "Answer with an error if an aggregated server redirects."),
    Flag("allow-privileged", "bool", True, "Whether containers may be privileged.", upstream=""),
    Flag("coordinated-leadership-lease-duration", "duration", 15.0,
         "Duration of the Lease of the server that elects leaders among LeaseCandidates (gate CoordinatedLeaderElection)."),
    Flag("coordinated-leadership-renew-deadline", "duration", 10.0,
         "How long that server retries to renew the Lease before it gives up leading."),
    Flag("coordinated-leadership-retry-period", "duration", 2.0, "Pause between these tries."),
    Flag("enable-aggregator-routing", "bool", False,
         "Connect to an endpoint of the Service of aggregated servers and webhooks instead of its cluster IP."),
    Flag("enable-logs-handler", "bool", False, "Serve the files of --log-dir under /logs/."),
    Flag("endpoint-reconciler-type", "string", "lease",
         "Which servers are kept in the endpoints of the kubernetes Service: lease (on etcd all), master-count (this one), none."),
    Flag("event-ttl", "duration", 3600.0, "How long Events are kept."),
    Flag("kubelet-certificate-authority", "path", "", "CA (PEM) that verifies kubelets' certificates.", shown="not verified"),
    Flag("kubelet-client-certificate", "path", "", "Client certificate (PEM) for kubelets."),
    Flag("kubelet-client-key", "path", "", "Key of --kubelet-client-certificate (PEM)."),
    Flag("kubelet-preferred-address-types", "strings", ("InternalIP", "ExternalIP", "Hostname"),
         "Types of node addresses to use for kubelets, in order of preference.",
         upstream="[Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP]"),
    Flag("kubelet-timeout", "duration", 5.0, "How long a kubelet may take to answer.",
         no_effect("calls to kubelets end with their request, as in kube-apiserver, which does not read the flag either")),
    Flag("kubernetes-service-node-port", "int", 0, "Node port of the kubernetes Service; 0 = none (type ClusterIP)."),
    Flag("max-connection-bytes-per-sec", "int", 0,
         "Bytes per second of exec, attach, port-forward and upgraded proxy connections, in each direction; 0 = no limit."),
    Flag("peer-advertise-ip", "string", "", "Address at which other API servers reach this one.", shown="--advertise-address"),
    Flag("peer-advertise-port", "string", "", "Port at which other API servers reach this one.", shown="--secure-port"),
    Flag("peer-ca-file", "string", "", "CA (PEM) that verifies the cluster's other API servers, to which requests that only they can "
         "serve are forwarded; with --proxy-client-cert-file and --storage-backend=etcd3."),
    Flag("proxy-client-cert-file", "path", "", "Client certificate (PEM) for aggregated servers."),
    Flag("proxy-client-key-file", "path", "", "Key of --proxy-client-cert-file (PEM)."),
    Flag("service-account-signing-endpoint", "string", "", "Unix socket of an external signer of service-account tokens "
         "(ExternalJWTSigner of k8s.io/externaljwt). Needs the extra kas[signer]."),
    Flag("service-account-signing-key-file", "path", "", "Key that signs service-account tokens (PEM).", shown="self-made, in --data-dir"),
    Flag("service-cluster-ip-range", "string", "10.0.0.0/24", "One range of service IPs, or one of each family, comma separated.",
         upstream=""),
    Flag("service-node-port-range", "portRange", (30000, 32767), "Node ports: low-high or low+count."),
)  # fmt: skip

GLOBAL = (
    Flag("help", "bool", False, "Print this and exit.", short="h"),
    Flag("version", "version[=true]", "", "Print the versions and exit; =raw prints all details; =v1.36.2-SUFFIX sets the "
         "version that the server reports."),
)
