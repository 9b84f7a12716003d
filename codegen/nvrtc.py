"""Compiles CUDA C++ to a cubin for an exact target with NVRTC; no GPU and no driver are needed.

CuPy's low-level binding is used, else that of cuda-bindings; both load the library that ``nvidia-cuda-nvrtc`` (or torch) brings.
Cubins are kept on disk, by a hash of text, target, flags and NVRTC's version.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from emmy_eq.errors import EmmyError


class CompileError(EmmyError):
    """NVRTC refuses a source, which is a fault of the code generator.  ``log`` is its whole log."""

    def __init__(self, arch: str, source: str, log: str) -> None:
        self.arch, self.source, self.log = arch, source, log
        found = re.search(r"\((\d+)\): error", log)
        line = source.splitlines()[int(found[1]) - 1].strip() if found and int(found[1]) <= source.count("\n") + 1 else ""
        super().__init__(f"NVRTC refuses the CUDA for {arch}{f' at `{line}`' if line else ''}: {log.strip()}")


class _Compiler(Protocol):
    def version(self) -> tuple[int, int]: ...

    def compile(self, source: str, options: list[str]) -> tuple[bytes, str]:
        """(cubin, log); the cubin is empty where compilation failed."""


class _Cupy:
    def __init__(self) -> None:
        from cupy.cuda import nvrtc

        self.nvrtc: Any = nvrtc
        self.version()  # fails here if the library cannot be loaded

    def version(self) -> tuple[int, int]:
        major, minor = self.nvrtc.getVersion()
        return major, minor

    def compile(self, source: str, options: list[str]) -> tuple[bytes, str]:
        program = self.nvrtc.createProgram(source, "kernel.cu", [], [])
        try:
            self.nvrtc.compileProgram(program, options)
            return bytes(self.nvrtc.getCUBIN(program)), ""
        except self.nvrtc.NVRTCError:
            return b"", str(self.nvrtc.getProgramLog(program))
        finally:
            self.nvrtc.destroyProgram(program)


class _CudaBindings:
    def __init__(self) -> None:
        from cuda.bindings import nvrtc

        self.nvrtc: Any = nvrtc
        self.version()

    def _call(self, result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(f"NVRTC: {result[0]}")
        return result[1] if len(result) == 2 else result[1:]

    def version(self) -> tuple[int, int]:
        major, minor = self._call(self.nvrtc.nvrtcVersion())
        return major, minor

    def compile(self, source: str, options: list[str]) -> tuple[bytes, str]:
        program = self._call(self.nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
        try:
            failed = int(self.nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])[0])
            if failed:
                log = b" " * self._call(self.nvrtc.nvrtcGetProgramLogSize(program))
                self._call(self.nvrtc.nvrtcGetProgramLog(program, log))
                return b"", log.decode().rstrip("\0 ")
            cubin = b" " * self._call(self.nvrtc.nvrtcGetCUBINSize(program))
            self._call(self.nvrtc.nvrtcGetCUBIN(program, cubin))
            return cubin, ""
        finally:
            self.nvrtc.nvrtcDestroyProgram(program)


@cache
def _compiler() -> _Compiler:
    reasons = []
    for binding in (_Cupy, _CudaBindings):
        try:
            return binding()
        except (ImportError, RuntimeError, OSError) as why:
            reasons.append(f"{binding.__name__[1:]}: {why}")
    raise EmmyError(f"No NVRTC: {'; '.join(reasons)}. Install cupy-cuda13x and nvidia-cuda-nvrtc.")


def available() -> bool:
    """Whether sources can be compiled here."""
    try:
        _compiler()
    except EmmyError:
        return False
    return True


def version() -> str:
    """NVRTC's, such as ``13.0``."""
    major, minor = _compiler().version()
    return f"{major}.{minor}"


def _cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("EMMY_EQ_CACHE", f"{root}/emmy_eq")) / "cubin"


def compile_cubin(source: str, arch: str, fmad: bool = False) -> bytes:
    """The cubin of ``source`` for ``arch`` (``sm_90a``).  ``fmad``: let the compiler contract a * b + c; off, since Kernel IR
    says where an fma is.  Raises `CompileError`."""
    options = [f"-arch={arch}", "--std=c++17", "-w", f"--fmad={'true' if fmad else 'false'}"]
    compiler = _compiler()
    text = "\0".join([source, *options, str(compiler.version())])
    path = _cache_directory() / f"{hashlib.sha256(text.encode()).hexdigest()}.cubin"
    if path.is_file():
        return path.read_bytes()
    cubin, log = compiler.compile(source, options)
    if not cubin:
        raise CompileError(arch, source, log)
    _keep(path, cubin)
    return cubin


def _keep(path: Path, cubin: bytes) -> None:
    """Written beside and moved, so that no other process reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
        f.write(cubin)
    os.replace(f.name, path)
