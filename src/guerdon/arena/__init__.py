"""The arena: every way to pay for federated learning, on the same game. It needs the extra `sim` (JAX).

Rules that need more than evidence (announcements, a validation set, whole reports) say so in their `needs`, and are
told by `Mechanism.informed`. They are known here and not to `guerdon pay`: no ledger could recompute them.
"""
