"""The machine that measures: what kind it is, the versions on it, and how busy it is."""

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "pytorch-lightning", "ray", "wandb", "dvc", "numpy", "pandas", "pyarrow", "pydantic")
BUSY = 0.3  # processes that want a core, besides ours, from which on figures are not to be trusted


def machine() -> dict[str, str | int]:
    """What makes a kind of machine: processor, cores, system; and its memory, which does not."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
    }


def cores() -> int:
    """The cores that a process may use; a container may give it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kind(of: dict[str, str | int]) -> str:
    """The name of a kind of machine, fit for a file.

    >>> kind({"processor": "AMD EPYC (family 23, model 1)", "cores": 2, "system": "Linux x86_64", "memory_gb": 25})
    'amd-epyc-family-23-model-1-2-cores-linux-x86-64'
    """
    text = f"{of['processor']} {of['cores']} cores {of['system']}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def versions() -> dict[str, str]:
    """Python and the packages that the figures depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def load() -> float:
    """Mean number of processes that wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    """Name, family and model of the processor; virtual machines often share the name."""
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.processor() or platform.machine()
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.+)$", path.read_text(), flags=re.MULTILINE))
    if "model name" not in found:
        return platform.machine()
    return f"{found['model name']} (family {found.get('cpu family')}, model {found.get('model')})"
