"""emmy_eq: an equality-saturation tensor compiler.  PyTorch in, fused CUDA out.

    fast = emmy_eq.compile(model, (x,), target="sm_90a")
    y = fast(x)

Names load on first use, so that importing the package costs nothing until a program is compiled.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emmy_eq.errors import EmmyError as EmmyError
    from emmy_eq.errors import InvalidInput as InvalidInput
    from emmy_eq.errors import Unsupported as Unsupported
    from emmy_eq.errors import VerifyError as VerifyError
    from emmy_eq.pipeline import Compiled as Compiled
    from emmy_eq.pipeline import compile as compile

__version__ = "0.1.0"

_HOME = {
    "EmmyError": "emmy_eq.errors",
    "InvalidInput": "emmy_eq.errors",
    "Unsupported": "emmy_eq.errors",
    "VerifyError": "emmy_eq.errors",
    "Compiled": "emmy_eq.pipeline",
    "compile": "emmy_eq.pipeline",
}
__all__ = ["Compiled", "EmmyError", "InvalidInput", "Unsupported", "VerifyError", "compile"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'emmy_eq' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
