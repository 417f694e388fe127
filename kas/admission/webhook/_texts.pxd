# The AdmissionReview sent to one webhook, and its last answer. kas.admission.webhook.review.Reviews adds the description of kinds and
# resources, and reads answers.
#
# Ownership: keeps the description and options of the last request, the identity of the last user, and one answer, all bounded in size.
# Used on the event loop's thread; ``response`` of a large answer runs in another thread, while nothing else reads that answer. Trusted:
# the parts of a review are JSON already or are encoded here; an answer is only taken from the cache if it is equal to the cached one.


cdef class Texts:
    cdef bytes _begin                   # of a review, up to the uid
    cdef object _user                   # the last user, and its JSON
    cdef bytes _user_info
    cdef object _options                # the last options, and their JSON
    cdef bytes _opted
    cdef object _shown, _own            # the last description: its inputs and the result
    cdef str _group, _version, _resource, _subresource
    cdef bytes _said
    cdef tuple _last                    # (text before the uid, text after it, decision) of the last answer
    cdef Py_ssize_t _most               # maximum bytes of a cached identity, and of cached options

    cdef bytes _about(self, a, shown, own)


cdef class Allowed:
    cdef object _requests               # the counter
    cdef dict _known                    # by webhook and operation: labels of the counter, and the Timer of such calls

    cdef int _allowed(self, str name, str operation, double seconds) except -1
