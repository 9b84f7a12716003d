"""Capture: PyTorch code -> Torch IR."""

from __future__ import annotations

from emmy_eq.capture.code import capture_code
from emmy_eq.capture.function import capture

__all__ = ["capture", "capture_code"]
