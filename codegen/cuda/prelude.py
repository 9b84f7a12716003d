"""Device functions that generated text may call; a source holds only those that it uses."""

from __future__ import annotations

import re

_DEVICE = "static __device__ __forceinline__ "

# NaN wins and -0.0 < 0.0 (PTX ISA, max: "+0.0 > -0.0"), as torch's maximum and minimum have it.
_LATTICE = """
{D}float emmy_{op}f(float a, float b) {{
  float r;
  asm("{op}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}}
"""
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

# Approximations (PTX ISA): at most 2 ulp (div.full, over the whole range), 1 ulp (rcp), 2^-23 (sqrt), 2^-11 (tanh) of the value.
_FAST = """
{D}float emmy_fast_{name}(float a) {{
  float r;
  asm("{name}.approx.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}}
"""

_FLOAT = {"T": "float", "s": "f", "D": _DEVICE}
_DOUBLE = {"T": "double", "s": "", "D": _DEVICE}

_FUNCTIONS: dict[str, str] = {
    "emmy_maxf": _LATTICE.format(op="max", D=_DEVICE),
    "emmy_minf": _LATTICE.format(op="min", D=_DEVICE),
    "emmy_max": _LATTICE64.format(op="max", D=_DEVICE),
    "emmy_min": _LATTICE64.format(op="min", D=_DEVICE),
    "emmy_floordivf": _FLOORDIV.format(**_FLOAT),
    "emmy_floordiv": _FLOORDIV.format(**_DOUBLE),
    "emmy_modf": _MOD.format(**_FLOAT),
    "emmy_mod": _MOD.format(**_DOUBLE),
    "emmy_powi": _POWI.format(T="int", U="unsigned", D=_DEVICE) + _POWI.format(T="long long", U="unsigned long long", D=_DEVICE),
    "emmy_fast_div": f"""
{_DEVICE}float emmy_fast_div(float a, float b) {{
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}}
""",
    **{f"emmy_fast_{name}": _FAST.format(name=name, D=_DEVICE) for name in ("rcp", "sqrt", "tanh")},
    "emmy_floor_index": f"""
{_DEVICE}long long emmy_floor_index(long long a, long long b) {{ return a / b - (a % b < 0); }}
""",
    "emmy_mod_index": f"""
{_DEVICE}long long emmy_mod_index(long long a, long long b) {{ long long r = a % b; return r < 0 ? r + b : r; }}
""",
    "emmy_f16_to_f32": f"""
{_DEVICE}float emmy_f16_to_f32(unsigned short x) {{
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}}
""",
    "emmy_f32_to_f16": f"""
{_DEVICE}unsigned short emmy_f32_to_f16(float x) {{
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}}
""",
    "emmy_bf16_to_f32": f"""
{_DEVICE}float emmy_bf16_to_f32(unsigned short x) {{ return __uint_as_float((unsigned)x << 16); }}
""",
    "emmy_f32_to_bf16": f"""
{_DEVICE}unsigned short emmy_f32_to_bf16(float x) {{
  unsigned short r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}}
""",
    "emmy_exp2_approx": f"""
{_DEVICE}float emmy_exp2_approx(float x) {{
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}}
""",
    **{
        f"emmy_pack_{dtype}": f"""
{_DEVICE}int emmy_pack_{dtype}(float low, float high) {{
  int r;
  asm("cvt.rn.{dtype}x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}}
"""
        for dtype in ("f16", "bf16")
    },
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
