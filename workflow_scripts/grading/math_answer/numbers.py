"""Whether two numbers are one: exactly where both are rational, else by five hundred digits after the point.

Sympy keeps 2^{2022} - 1 as it is typed; it is worked out here, as far as it stays below `_MOST_BITS`.
"""

from typing import Any

import sympy

_MOST_BITS = 1 << 18
_FEW, _MANY, _MOST_DIGITS, _MOST_AT_POINT = 60, 500, 6000, 1200
_FEW_AGREED, _MANY_AGREED = sympy.Rational(1, 10**40), sympy.Rational(1, 10**400)
_CAN_COUNT = {sympy.factorial: 5000, sympy.binomial: 20000, sympy.floor: None, sympy.ceiling: None, sympy.Abs: None,
              sympy.Mod: None, sympy.Max: None, sympy.Min: None}  # fmt: skip


def _bits(value: Any) -> int:
    return int(abs(value.p)).bit_length() + int(value.q).bit_length()


def _power(base: Any, exponent: Any) -> Any:
    if not exponent.is_Integer or (not base and exponent < 0):
        return None
    if base not in (0, 1, -1) and abs(int(exponent)) * _bits(base) > 2 * _MOST_BITS:
        return None
    return base**exponent


def exactly(expr: Any) -> Any:
    """The rational number that an expression is, or None if it is none, or too large, or not seen to be one."""
    if expr.is_Rational:
        return expr
    if not expr.args or expr.free_symbols or isinstance(expr, sympy.MatrixBase):
        return None
    kind = type(expr)
    if not (expr.is_Add or expr.is_Mul or expr.is_Pow or kind in _CAN_COUNT):
        return None
    values = []
    for argument in expr.args:
        value = exactly(argument)
        if value is None:
            return None
        values.append(value)
    if expr.is_Pow:
        return _power(*values)
    if kind in _CAN_COUNT:
        most = _CAN_COUNT[kind]
        found = kind(*values) if most is None or all(abs(value) <= most for value in values) else None
        return found if found is not None and found.is_Rational else None
    found = values[0]
    for value in values[1:]:
        found = found + value if expr.is_Add else found * value
        if _bits(found) > 2 * _MOST_BITS:
            return None
    return found


def number(expr: Any, digits: int = _FEW) -> Any:
    """Sixty digits of a value, or None if it has none."""
    if expr.is_Rational:
        return expr
    value = expr.evalf(digits, maxn=max(400, 2 * digits))
    value = value.n(digits) if value.is_number else value
    parts = value.as_real_imag() if value.is_number else ()
    if not parts or not all(part.is_Float or part.is_Rational for part in parts):
        return None
    return value


def agree(gold: Any, said: Any, at_point: bool = False) -> bool | None:
    """Whether two expressions without variables are one number; None if one of them has no digits.

    Too large for that many digits: not one; at_point, where others decide too: None.
    """
    exact = exactly(gold), exactly(said)
    if None not in exact:
        return bool(exact[0] == exact[1])
    few = number(gold), number(said)
    if None in few:
        return None
    largest = max(map(abs, few))
    if abs(few[0] - few[1]) > _FEW_AGREED * largest:
        return False
    if any(side.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit) for side in (gold, said)):
        return True  # more digits of a series or an integral take seconds
    digits = _MANY + (max(0, int(sympy.log(largest, 10).n(15))) if largest else 0)
    if digits > (_MOST_AT_POINT if at_point else _MOST_DIGITS):
        return None if at_point else False
    many = [number(e if side is None else side, digits) for e, side in zip((gold, said), exact, strict=True)]
    return None not in many and bool(abs(many[0] - many[1]) <= _MANY_AGREED)
