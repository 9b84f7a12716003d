"""The GPUs that plans and kernels are made for: one record each, with published figures and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from emmy_eq.errors import InvalidInput
from emmy_eq.extract import calibration
from emmy_eq.extract.fitted import FITTED
from emmy_eq.extract.store import default_path

KiB, MiB = 1 << 10, 1 << 20
_UNITS = MappingProxyType({"f32": "fma", "f16": "f16", "bf16": "bf16", "f64": "fma_f64"})


# What stands behind a field's number where it is printed.
UNITS = {"clock": "Hz", "l2_bytes": "B", "l2_bandwidth": "B/s", "dram_bandwidth": "B/s", "flops": "FLOP/s"}


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One GPU.  Rates are peaks at boost clock, a second.

    ``flops`` by unit: ``fma`` (f32 outside tensor cores), ``fma_f64``, and tensor cores by operand type (dense, f32 accumulation), of
    which ``tf32x3`` multiplies f32 operands as three products of tf32.
    ``contraction_units``: the unit on which code generation really computes a sum of products, by operand type.
    ``mma_share``: the part of the tensor cores' peak that mma.sync reaches (sm_90: an estimate from tf32 on H200).
    ``l2_bandwidth`` and ``launch_seconds`` (a kernel in a CUDA graph, on H200) are not published; they are microbenchmark figures.
    ``sustained``: what `emmy_eq.extract.calibration` measured on this device; empty where it was not measured.
    ``fitted``: constants of the cost model, which are code generation's more than the device's.
    """

    name: str
    arch: str
    sms: int
    clock: float  # Hz
    shared_per_block: int  # bytes, opt-in maximum
    shared_per_sm: int
    registers_per_sm: int  # 32-bit
    l2_bytes: int
    l2_bandwidth: float  # bytes
    dram_bandwidth: float  # bytes
    flops: Mapping[str, float]
    source: str
    sfu_per_clock: int = 16  # special functions a clock and SM
    launch_seconds: float = 0.85e-6
    max_threads_per_sm: int = 2048
    contraction_units: Mapping[str, str] = field(default_factory=lambda: _UNITS)
    mma_share: float = 1.0
    cp_async: bool = True
    mma_bf16: bool = True
    tma: bool = False
    wgmma: bool = False
    clusters: bool = False
    sustained: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    fitted: Mapping[str, float] = field(default_factory=lambda: FITTED)

    def mma_sync(self, unit: str) -> float:
        """Flops of a tensor core's unit by mma.sync, a second."""
        return self.flops[unit] * self.mma_share

    @property
    def in_parts(self) -> bool:
        """Whether products of f32 are faster as three of tf32 than on fma, from some size on."""
        return self.contraction_units["f32"] == "fma" and self.mma_sync("tf32x3") > self.flops["fma"]

    @property
    def large_units(self) -> Mapping[str, str]:
        """``contraction_units`` of large products."""
        return {**self.contraction_units, **({"f32": "tf32x3"} if self.in_parts else {})}

    @property
    def published(self) -> Mapping[str, float]:
        """The peaks that belong to the figures of `emmy_eq.extract.calibration`."""
        peaks = {name: self.flops[unit] for name, unit in self.large_units.items() if name in calibration.FIGURES}
        exp2 = self.sms * self.sfu_per_clock * self.clock
        return peaks | {"DRAM": self.dram_bandwidth, "L2": self.l2_bandwidth, "fma": self.flops["fma"], "exp2": exp2}

    @property
    def dram_sustained(self) -> float:
        """Bytes a second."""
        return self.sustained.get("DRAM", self.fitted["dram.share"] * self.dram_bandwidth)

    @property
    def l2_sustained(self) -> float:
        return self.sustained.get("L2", self.fitted["l2.share"] * self.l2_bandwidth)

    @property
    def sfu_rate(self) -> float:
        """Special functions (exp2, rcp, rsqrt, ...) a second."""
        return self.sustained.get("exp2", self.published["exp2"])

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})"


def _flops(fma: float, f64: float, tf32: float, f16: float) -> Mapping[str, float]:
    return MappingProxyType({"fma": fma, "fma_f64": f64, "tf32": tf32, "tf32x3": tf32 / 3, "f16": f16, "bf16": f16})


_ROWS = (
    Target("A100", "sm_80", 108, 1.41e9, 163 * KiB, 164 * KiB, 65536, 40 * MiB, 5.0e12, 2.039e12,
           _flops(19.5e12, 9.7e12, 156e12, 312e12),
           "NVIDIA A100 80GB SXM datasheet (2021); A100 Tensor Core GPU Architecture whitepaper (2020)"),
    Target("RTX4090", "sm_89", 128, 2.52e9, 99 * KiB, 100 * KiB, 65536, 72 * MiB, 5.0e12, 1.008e12,
           _flops(82.6e12, 1.29e12, 82.6e12, 165.2e12),
           "NVIDIA Ada GPU Architecture whitepaper, appendix A (2022)", max_threads_per_sm=1536),
    Target("H100", "sm_90a", 132, 1.98e9, 227 * KiB, 228 * KiB, 65536, 50 * MiB, 7.1e12, 3.35e12,
           _flops(66.9e12, 33.5e12, 494.7e12, 989.4e12),
           "NVIDIA H100 Tensor Core GPU Architecture whitepaper, H100 SXM5 (2022)", mma_share=0.5, tma=True, wgmma=True, clusters=True),
    Target("H200", "sm_90a", 132, 1.98e9, 227 * KiB, 228 * KiB, 65536, 50 * MiB, 7.1e12, 4.8e12,
           _flops(66.9e12, 33.5e12, 494.7e12, 989.4e12),
           "NVIDIA H200 Tensor Core GPU datasheet, SXM (2024)", mma_share=0.5, tma=True, wgmma=True, clusters=True),
    Target("RTX5090", "sm_120", 170, 2.41e9, 99 * KiB, 100 * KiB, 65536, 96 * MiB, 7.0e12, 1.792e12,
           _flops(104.8e12, 1.64e12, 104.8e12, 209.5e12),
           "NVIDIA RTX Blackwell GPU Architecture whitepaper, appendix A (2025)", max_threads_per_sm=1536, tma=True, clusters=True),
)  # fmt: skip

_ARCHITECTURES = {"sm_80": "A100", "sm_89": "RTX4090", "sm_90a": "H200", "sm_120": "RTX5090"}  # the record an architecture stands for


@cache
def contracted(t: Target, accuracy: str) -> Target:
    """``t`` as code is generated for it under an accuracy contract: ``fast`` rounds the operands of f32 products to tf32, where tensor
    cores are faster so than fma is.  (``strict`` has no product that tensor cores take: it sums in order.)"""
    if accuracy != "fast" or t.mma_sync("tf32") <= t.flops["fma"]:
        return t
    return replace(t, contraction_units=MappingProxyType({**t.contraction_units, "f32": "tf32"}))


@cache
def targets() -> dict[str, Target]:
    """The records by name."""
    return {row.name: row for row in _ROWS}


def target(name_or_arch: str) -> Target:
    """The record of that name (in any case) or architecture, with what was measured of it; raises `InvalidInput` with the legal ones."""
    name = _ARCHITECTURES.get(name_or_arch.lower(), name_or_arch)
    for row in targets().values():
        if row.name.lower() == name.lower():
            return calibrated(row, calibrations())
    raise InvalidInput(f"target {name_or_arch!r}", f"it is one of {', '.join([*targets(), *_ARCHITECTURES])}")


def calibrations() -> Mapping[str, calibration.Calibration]:
    """What was measured of the devices here, by target."""
    store = default_path()
    return calibration.read(calibration.path_beside(store)) if store is not None else {}


def calibrated(row: Target, by_target: Mapping[str, calibration.Calibration]) -> Target:
    """With what was measured of it, if that is among ``by_target``."""
    found = by_target.get(row.name)
    return replace(row, sustained=found.sustained, launch_seconds=found.launch_seconds) if found is not None else row
