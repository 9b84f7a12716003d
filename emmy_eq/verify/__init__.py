"""Whether rules are true, layer by layer.

    typing    L0  one dtype, no new axes                    `emmy_eq.verify.check`
    field     L1  equal modulo a chain of primes            `emmy_eq.verify.field`
    floats    L4  equal bits, or equal up to rounding       `emmy_eq.verify.floats`
    audit     L6  all members of a saturated class agree    `emmy_eq.verify.audit`

A layer that works on one random draw of a rule's arguments is a function from rule and draw to the reason for refusal, or None.
"""
