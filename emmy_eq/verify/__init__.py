"""Whether rules are true, layer by layer.

    typed         L0  one dtype, no new axes
    field         L1  equal modulo a chain of primes
    order         L2  equal in exact arithmetic with -inf, ties and empty axes; `laws`: what lets a twist run in blocks
    solver        L3  proved by z3, over scalars; `indices`: index expressions
    floats        L4  equal bits, or an error within the class's bound, on the operands of `operands`
    extractions   L5  any terms of a class have one value, in an e-graph of the rule's own
    audit         L6  all members of a saturated class agree
    mutants       L7  the layers refute the rule's mutants, those apart that `equivalence` proves

L8, every kernel against the interpreter before its time enters the timing store, is `emmy_eq.codegen.tune.reference`: the store
takes no time without that verdict (`emmy_eq.extract.store.record`).

A layer is a function ``refutes`` from rule and draw to the reason for refusal, or None; it raises `draws.Abstains` where it has
nothing to say.  `check.check_rule` runs them, `shrink` makes what they find small, and `emmy_eq.rules.certify` is the command.
"""
