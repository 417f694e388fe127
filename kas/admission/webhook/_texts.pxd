# What one webhook is sent, and what of its answers is known already. kas.admission.webhook.review.Reviews adds what is said of kinds and
# resources, and how an answer is read.
#
# Ownership: of what was asked it holds the last question's kinds and options and the last user's description, of what was answered one answer, both
# bounded by who adds them. Used on the loop's thread; ``response`` of a large answer in another one, while nobody else asks for that answer.
# Trusted: the parts of a question are JSON already or become it here; of an answer only what equals one that has been read is taken.


cdef class Texts:
    cdef bytes _begin                   # of a review, up to the uid
    cdef object _user                   # who was told of last, and what
    cdef bytes _user_info
    cdef object _options                # of the last question, and what was said of them
    cdef bytes _opted
    cdef object _shown, _own            # the last question: what it was about, and what was said of that
    cdef str _group, _version, _resource, _subresource
    cdef bytes _said
    cdef tuple _last                    # (what stands before the uid, what behind it, what that says)
    cdef Py_ssize_t _most               # bytes of what is kept of a user, and of options

    cdef bytes _about(self, a, shown, own)


cdef class Allowed:
    cdef object _requests               # the counter
    cdef dict _known                    # by webhook and operation: its labels there, and the Timer of how long such calls take

    cdef int _allowed(self, str name, str operation, double seconds) except -1
