"""API Priority and Fairness: which requests run now, which wait, which are sent away (apiserver's ``util/flowcontrol``).

``classification`` says to which FlowSchema and priority level a request belongs, ``work`` how many seats it takes, ``limits`` how many
seats each level has, ``_engine`` who may sit down (levels, fair queues, the counters all workers share: its ``.pxd`` is the design),
``controller`` follows the objects and holds it all together. The filter is ``kas.filters.priority_and_fairness``.
"""
