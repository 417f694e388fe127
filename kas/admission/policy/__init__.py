"""Admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy (upstream ``pkg/admission/plugin/policy``).

``compiled`` holds the compiled objects, ``policies`` follows them and finds those that match a request, with their parameters
(``params``); ``validating`` and ``mutating`` evaluate one. The plug-ins are in ``kas/admission/plugins``.
"""
