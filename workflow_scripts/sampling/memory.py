"""Memory that one process may count on."""

import resource
from pathlib import Path

import psutil
import torch

from workflow_scripts import platforms


def _control_group_limit() -> int:
    """What Linux allows all processes of this job together; 0 if nothing is said."""
    root = Path("/sys/fs/cgroup")
    try:
        here = root / Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::/")[2].strip()
        files = [folder / "memory.max" for folder in (here, *here.parents) if folder.is_relative_to(root)]
        said = [file.read_text(encoding="utf-8").strip() for file in files if file.is_file()]
    except OSError:  # not Linux, or not to be read here
        return 0
    return min((int(text) for text in said if text.isdigit()), default=0)


def machine_bytes(threads: int) -> int:
    """This process's share of the machine, as if all cores were taken by processes of `threads` threads."""
    limits = [psutil.virtual_memory().total, _control_group_limit(), resource.getrlimit(resource.RLIMIT_AS)[0]]
    return min(limit for limit in limits if limit > 0) * threads // max(threads, platforms.cores())


def free_bytes(device: torch.device) -> int:
    """What is left on a device; on a CPU, of this process's share. What PyTorch holds and does not use counts as
    left."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return max(0, machine_bytes(torch.get_num_threads()) - psutil.Process().memory_info().rss)
