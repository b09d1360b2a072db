"""Compiles the kernels to PTX, without a GPU: `python compile.py [OUT]`.

Needs NVRTC 12.1: `pip install nvidia-cuda-nvrtc-cu12==12.1.105`. Writes NAME.ptx.gz for each
NAME.cu here into OUT, by default this folder, and sources.sha256, which says what they are made of.
The same sources give the same PTX on every machine; `zcat NAME.ptx.gz` shows it.
"""

import ctypes
import gzip
import hashlib
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
OPTIONS = [b"--gpu-architecture=compute_70", b"--fmad=false", b"--std=c++17"]


def nvrtc():
    """The library of the installed package, at the version that made the files."""
    found = importlib.util.find_spec("nvidia.cuda_nvrtc")
    if found is None:
        sys.exit("NVRTC is missing: pip install nvidia-cuda-nvrtc-cu12==12.1.105")
    library = ctypes.CDLL(str(pathlib.Path(list(found.submodule_search_locations)[0], "lib", "libnvrtc.so.12")))
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != (12, 1):
        sys.exit(f"NVRTC {major.value}.{minor.value}: the files are made by 12.1, which is nvidia-cuda-nvrtc-cu12==12.1.105")
    return library


def compile(library, source):
    """PTX of one file."""
    headers = sorted(HERE.glob("*.cuh"))
    strings = lambda all: (ctypes.c_char_p * len(all))(*all)
    texts, names = strings([h.read_bytes() for h in headers]), strings([h.name.encode() for h in headers])
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    made = library.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names)
    if made != 0:
        sys.exit(f"{source.name}: nvrtcCreateProgram failed with {made}")
    code = library.nvrtcCompileProgram(program, len(OPTIONS), strings(OPTIONS))
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if code != 0:
        sys.exit(f"{source.name}: {log.value.decode()}")
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, ptx)
    # NVRTC declares 38 variables for <nv/target>, which no kernel reads
    return b"".join(line for line in ptx.value.splitlines(keepends=True) if b"nv6target" not in line)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    library = nvrtc()
    for source in sorted(HERE.glob("*.cu")):
        packed = gzip.compress(compile(library, source), mtime=0)
        (out / f"{source.stem}.ptx.gz").write_bytes(packed)
    sources = sorted(HERE.glob("*.cu")) + sorted(HERE.glob("*.cuh"))
    hashes = [f"{hashlib.sha256(s.read_bytes()).hexdigest()}  {s.name}\n" for s in sources]
    (out / "sources.sha256").write_text("".join(hashes))
