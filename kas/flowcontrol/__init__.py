"""API Priority and Fairness: which requests are executed now, queued, or rejected (apiserver's ``util/flowcontrol``).

- ``classification`` finds the FlowSchema and priority level of a request.
- ``work`` estimates how many seats a request takes.
- ``limits`` computes how many seats each level has.
- ``_engine`` gives out the seats: levels, fair queues, and the counters that all workers share. Its ``.pxd``
  describes the design.
- ``controller`` follows the API objects and connects the parts.

The filter is ``kas.filters.priority_and_fairness``.
"""
