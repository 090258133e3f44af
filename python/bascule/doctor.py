"""`python -m bascule doctor`: checks this machine, and reports problems and what to do about them."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LEAST_DESCRIPTORS = 1024
_LEAST_DRIVER = 13000  # CUDA 13.0 in the driver's form: 1000 * major + 10 * minor
_LEAST_NCCL = 22700


@dataclass
class Finding:
    """One line of the report. `wrong` says which part of Bascule will not work here, and what to do; and is empty if all is well."""

    what: str
    found: str
    wrong: str = ""


def findings() -> Iterator[Finding]:
    """Runs the checks and yields their findings. Blocks for seconds: one check starts a process and sends to it."""
    for look in (_python, _limits, _memory, _io_uring, _gpu, _nccl, _frameworks, _send):
        try:
            yield from look()
        except Exception as error:  # the other findings are still shown
            yield Finding(look.__name__.strip("_").replace("_", " "), "", f"could not be checked: {error!r}")


def run(write: Callable[[str], None] = print) -> int:
    """Passes each finding to `write`, with what to do about each problem; returns the number of problems."""
    wrong = 0
    for finding in findings():
        write(f"{'WRONG' if finding.wrong else 'ok   '}  {finding.what}: {finding.found}")
        if finding.wrong:
            wrong += 1
            write(f"       {finding.wrong}")
    write("nothing is wrong" if wrong == 0 else f"wrong: {wrong}")
    return wrong


def _python() -> Iterator[Finding]:
    from . import __version__

    yield Finding("bascule", f"{__version__}, Python {platform.python_version()}, {' '.join(platform.libc_ver())}, "
                             f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} cores")


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield Finding("open files", f"{soft}, at most {hard}",
                  "" if soft >= _LEAST_DESCRIPTORS else f"expected {_LEAST_DESCRIPTORS} or more: each worker takes "
                  f"several at the sender; run ulimit -n {_LEAST_DESCRIPTORS}")
    for name, limit in (("address space", resource.RLIMIT_AS), ("file size", resource.RLIMIT_FSIZE)):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield Finding(name, f"{soft} bytes", "slots of a model may not fit; run ulimit -v unlimited -f unlimited")


def _memory() -> Iterator[Finding]:
    descriptor = os.memfd_create("bascule-doctor")
    try:
        os.ftruncate(descriptor, 1 << 20)
    finally:
        os.close(descriptor)
    pages = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
    huge = open(pages).read().split("[")[1].split("]")[0] if os.path.exists(pages) else "unknown"
    total, free = (os.sysconf("SC_PAGE_SIZE") * os.sysconf(f"SC_{what}PHYS_PAGES") / 2**30 for what in ("", "AV"))
    yield Finding("memory", f"{free:.1f} of {total:.1f} GiB free; memfd works; huge pages of shared memory: {huge}")


def _io_uring() -> Iterator[Finding]:
    switch = "/proc/sys/kernel/io_uring_disabled"
    off = os.path.exists(switch) and open(switch).read().strip() != "0"
    yield Finding("io_uring", "off: memmap uses plain system calls" if off else "on")


def _gpu() -> Iterator[Finding]:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield Finding("GPU", "no driver: schemes for GPUs are off")
        return
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    named = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if code := driver.cuInit(0):
        yield Finding("GPU", f"driver for CUDA {named}", f"cuInit() fails with {code}; does nvidia-smi work?")
        return
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    yield Finding("GPU", f"{count.value}, driver for CUDA {named}",
                  "" if version.value >= _LEAST_DRIVER else "this wheel was built for CUDA 13.0, which needs driver "
                  "580 or newer")
    settings = (os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))  # new, old
    if any("expandable_segments:True" in each for each in settings):
        yield Finding("expandable segments", "on in PyTorch; slots are Bascule's own memory, so nothing changes")


def _nccl() -> Iterator[Finding]:
    try:
        library = ctypes.CDLL("libnccl.so.2")
    except OSError:
        yield Finding("NCCL", "not on the library path: the scheme nccl is off, unless the process has it from torch")
        return
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    yield Finding("NCCL", str(version.value), "" if version.value >= _LEAST_NCCL else "expected 2.27 or newer for nccl")


def _frameworks() -> Iterator[Finding]:
    found = {}
    for name in ("torch", "numpy", "vllm", "torchrl", "trl", "transformers", "ray"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    yield Finding("installed", ", ".join(f"{name} {version}" for name, version in found.items()) or "no framework")
    if "vllm" in found:
        plugins = importlib.metadata.entry_points(group="vllm.general_plugins")
        allowed = os.environ.get("VLLM_PLUGINS")
        visible = "bascule" in plugins.names and (allowed is None or "bascule" in allowed.split(","))
        yield Finding("vLLM's plugin", "visible" if visible else "not visible",
                      "" if visible else "install bascule into vLLM's environment; if VLLM_PLUGINS is set, add "
                      "bascule to it")


def _send() -> Iterator[Finding]:
    """Sends a version from this process to another one."""
    import subprocess

    from . import Sender, _core

    class Bytes:  # needs no numpy
        def __init__(self, size: int):
            self.memory = (ctypes.c_uint8 * size).from_buffer_copy(os.urandom(size))

    engine = ("import sys, bascule; r = bascule.Receiver(sys.argv[1], worker='doctor'); r.wait_ready(20); "
              "print(r.commit().version)")
    with tempfile.TemporaryDirectory() as folder:
        endpoint = _core.endpoint_for_any_engine(gpu=False, folder=f"{folder}/endpoint")
        with Sender(endpoint, log=lambda line: None) as sender:
            some = Bytes(1 << 24)
            described = _core.Tensors(["some"], ["U8"], [[1 << 24]], [[1]], [ctypes.addressof(some.memory)], [-1], 0)
            sender._core.register_tensors(described, "")
            process = subprocess.Popen([sys.executable, "-c", engine, endpoint], stdout=subprocess.PIPE, text=True)
            try:
                sender.wait_for_workers(1, timeout=20)
                report = sender.send()
                served, _ = process.communicate(timeout=20)
            finally:
                process.kill()
    right = report.complete and served == f"{report.version}\n"
    yield Finding("a send of 16 MiB to another process", f"{1e3 * report.seconds.total:.1f} ms",
                  "" if right else f"it was not served: {report.workers}")
