"""Stability levels of metric families, as shown in their HELP: upstream guarantees STABLE metrics, and announces changes of BETA ones."""

from __future__ import annotations

STABLE, BETA, ALPHA = "STABLE", "BETA", "ALPHA"
_OWN = ("kas_", "process_")  # this server's own, and those of every Prometheus client library: upstream sets no level for either
_OTHERS = frozenset({"process_start_time_seconds"})  # upstream's in spite of its prefix
_NOT_THEIRS = frozenset({"apiserver_event_loop_delay_seconds", "apiserver_event_loop_held_seconds", "apiserver_request_panics_total"})
_STABLE = frozenset({
    "apiserver_admission_controller_admission_duration_seconds", "apiserver_admission_step_admission_duration_seconds",
    "apiserver_admission_webhook_admission_duration_seconds", "apiserver_current_inflight_requests", "apiserver_longrunning_requests",
    "apiserver_request_duration_seconds", "apiserver_request_total", "apiserver_requested_deprecated_apis", "apiserver_response_sizes",
    "apiserver_storage_objects", "apiserver_storage_size_bytes", "kubernetes_healthcheck", "kubernetes_healthchecks_total",
})  # fmt: skip
_BETA = frozenset({
    "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authentication_config_controller_automatic_reloads_total",
    "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
    "apiserver_authorization_config_controller_automatic_reloads_total",
    "apiserver_cel_compilation_duration_seconds", "apiserver_cel_evaluation_duration_seconds",
    "apiserver_flowcontrol_current_executing_requests", "apiserver_flowcontrol_current_executing_seats",
    "apiserver_flowcontrol_current_inqueue_requests", "apiserver_flowcontrol_dispatched_requests_total",
    "apiserver_flowcontrol_nominal_limit_seats", "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_flowcontrol_request_wait_duration_seconds", "apiserver_storage_events_received_total",
    "apiserver_validating_admission_policy_check_duration_seconds", "apiserver_validating_admission_policy_check_total",
    "apiserver_watch_list_duration_seconds", "disabled_metrics_total", "hidden_metrics_total", "kubernetes_build_info",
    "kubernetes_feature_enabled", "registered_metrics_total", "workqueue_adds_total", "workqueue_depth",
    "workqueue_longest_running_processor_seconds",
    "workqueue_queue_duration_seconds", "workqueue_retries_total", "workqueue_unfinished_work_seconds", "workqueue_work_duration_seconds",
})  # fmt: skip

# Families that are hidden because they are deprecated -> (the family with the same values, deprecated since, HELP).
HIDDEN = {
    "apiserver_flowcontrol_request_concurrency_in_use": (
        "apiserver_flowcontrol_current_executing_seats", "1.31.0",
        "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in "
        "the API Priority and Fairness subsystem",
    ),
    "apiserver_flowcontrol_request_concurrency_limit": (
        "apiserver_flowcontrol_nominal_limit_seats", "1.30.0", "Nominal number of execution seats configured for each priority level",
    ),
    "apiserver_request_slo_duration_seconds": (
        "apiserver_request_sli_duration_seconds", "1.27.0",
        "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds for each verb, "
        "group, version, resource, subresource, scope and component.",
    ),
    "kube_apiserver_pod_logs_pods_logs_backend_tls_failure_total": (
        "kube_apiserver_pod_logs_backend_tls_failure_total", "1.27.0",
        "Total number of requests for pods/logs that failed due to kubelet server TLS verification",
    ),
    "kube_apiserver_pod_logs_pods_logs_insecure_backend_total": (
        "kube_apiserver_pod_logs_insecure_backend_total", "1.27.0",
        "Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied",
    ),
}  # fmt: skip


def level_of(name: str) -> str:
    """The stability level of a family, "" if it is not one of upstream's."""
    if name in _STABLE:
        return STABLE
    if name in _BETA:
        return BETA
    return "" if name in _NOT_THEIRS or (name.startswith(_OWN) and name not in _OTHERS) else ALPHA


def deprecated_since(help: str) -> str:
    """The version since which a family is deprecated according to its HELP text, "" if it is not."""
    begin = "(Deprecated since "
    return help[len(begin) : help.index(")")] if help.startswith(begin) else ""
