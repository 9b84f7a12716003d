"""Device functions that generated text may call; a source holds only those that it uses."""

from __future__ import annotations

import re

_DEVICE = "static __device__ __forceinline__ "

_REGISTER = {"float": "f", "int": "r", "unsigned short": "h"}


def _asm(result: str, name: str, kind: str, params: str, instruction: str, operands: str = "") -> dict[str, str]:
    """A function of one instruction; ``operands``: its parameters, all of one ``kind``, in the instruction's order."""
    names, given = params.split(), (operands or params).split()
    slots = ", ".join(f"%{n}" for n in range(1 + len(given)))
    head = f"{result} {name}({', '.join(f'{kind} {x}' for x in names)})"
    sources = ", ".join(f'"{_REGISTER[kind]}"({x})' for x in given)
    call = f'"{instruction} {slots};" : "={_REGISTER[result]}"(r) : {sources}'
    return {name: f"\n{_DEVICE}{head} {{\n  {result} r;\n  asm({call});\n  return r;\n}}\n"}


_LATTICE64 = """
{D}double emmy_{op}(double a, double b) {{ return a != a ? a : b != b ? b : f{op}(a, b); }}
"""

# The quotient that Python, NumPy and torch agree on: consistent with the remainder, exact where the division is.
_FLOORDIV = """
{D}{T} emmy_floordiv{s}({T} a, {T} b) {{
  if (b == 0) return a / b;
  {T} m = fmod{s}(a, b);
  {T} q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysign{s}(({T})0, a / b);
  {T} f = floor{s}(q);
  return q - f > ({T})0.5 ? f + 1 : f;
}}
"""
_MOD = """
{D}{T} emmy_mod{s}({T} a, {T} b) {{
  {T} m = fmod{s}(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}}
"""

# Wraps; a negative exponent gives 0 unless the base is 1 or -1.
_POWI = """
{D}{T} emmy_powi({T} a, {T} b) {{
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
  {U} r = 1, x = ({U})a;
  for ({U} n = ({U})b; n; n >>= 1, x *= x) if (n & 1) r *= x;
  return ({T})r;
}}
"""

_FLOAT = {"T": "float", "s": "f", "D": _DEVICE}
_DOUBLE = {"T": "double", "s": "", "D": _DEVICE}

_FUNCTIONS: dict[str, str] = {
    # NaN wins and -0.0 < 0.0 (PTX ISA, max: "+0.0 > -0.0"), as torch's maximum and minimum have it.
    **_asm("float", "emmy_maxf", "float", "a b", "max.NaN.f32"),
    **_asm("float", "emmy_minf", "float", "a b", "min.NaN.f32"),
    "emmy_max": _LATTICE64.format(op="max", D=_DEVICE),
    "emmy_min": _LATTICE64.format(op="min", D=_DEVICE),
    "emmy_floordivf": _FLOORDIV.format(**_FLOAT),
    "emmy_floordiv": _FLOORDIV.format(**_DOUBLE),
    "emmy_modf": _MOD.format(**_FLOAT),
    "emmy_mod": _MOD.format(**_DOUBLE),
    "emmy_powi": _POWI.format(T="int", U="unsigned", D=_DEVICE) + _POWI.format(T="long long", U="unsigned long long", D=_DEVICE),
    # Approximations (PTX ISA): at most 2 ulp (div.full, over the whole range), 1 ulp (rcp), 2^-23 (sqrt), 2^-11 (tanh) of the value.
    **_asm("float", "emmy_fast_div", "float", "a b", "div.full.f32"),
    **_asm("float", "emmy_fast_rcp", "float", "a", "rcp.approx.f32"),
    **_asm("float", "emmy_fast_sqrt", "float", "a", "sqrt.approx.f32"),
    **_asm("float", "emmy_fast_tanh", "float", "a", "tanh.approx.f32"),
    "emmy_floor_index": f"""
{_DEVICE}long long emmy_floor_index(long long a, long long b) {{ return a / b - (a % b < 0); }}
""",
    "emmy_mod_index": f"""
{_DEVICE}long long emmy_mod_index(long long a, long long b) {{ long long r = a % b; return r < 0 ? r + b : r; }}
""",
    **_asm("float", "emmy_f16_to_f32", "unsigned short", "x", "cvt.f32.f16"),
    **_asm("unsigned short", "emmy_f32_to_f16", "float", "x", "cvt.rn.f16.f32"),
    "emmy_bf16_to_f32": f"""
{_DEVICE}float emmy_bf16_to_f32(unsigned short x) {{ return __uint_as_float((unsigned)x << 16); }}
""",
    **_asm("unsigned short", "emmy_f32_to_bf16", "float", "x", "cvt.rn.bf16.f32"),
    **_asm("float", "emmy_exp2_approx", "float", "x", "ex2.approx.ftz.f32"),
    **_asm("int", "emmy_pack_f16", "float", "low high", "cvt.rn.f16x2.f32", "high low"),
    **_asm("int", "emmy_pack_bf16", "float", "low high", "cvt.rn.bf16x2.f32", "high low"),
    "emmy_smem": f"""
{_DEVICE}unsigned emmy_smem(const void* p) {{ return (unsigned)__cvta_generic_to_shared(p); }}
""",
    "emmy_elect": f"""
{_DEVICE}bool emmy_elect() {{
  unsigned r;
  asm volatile("{{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }}" : "=r"(r));
  return r;
}}
""",
    # PTX ISA, "Matrix descriptor": addresses and offsets in units of 16 bytes; 1 at bit 62 is the 128-byte swizzle.
    "emmy_tile": f"""
{_DEVICE}unsigned long long emmy_tile(unsigned address, unsigned leading, unsigned stride) {{
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16
    | (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}}
""",
    "emmy_tensor_map": """
struct alignas(64) emmy_tensor_map { unsigned long long opaque[16]; };
""",
}


def functions_used(text: str) -> str:
    """The definitions, in a fixed order, of the device functions that ``text`` names."""
    found = set(re.findall(r"\bemmy_\w+", text))
    return "".join(body.lstrip("\n") for name, body in _FUNCTIONS.items() if name in found)


def names() -> frozenset[str]:
    return frozenset(_FUNCTIONS)
