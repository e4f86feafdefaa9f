"""Comparators, one per numerics class. Each names the output, the worst element, what came, what was wanted, the limit.

Non-finite values are compared first, never removed; nothing is averaged, nothing compared by angle.
"""
