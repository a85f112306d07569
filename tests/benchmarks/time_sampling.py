"""Samples per second of the transformers engine against lm-evaluation-harness's HF back end, in one run.

    pip install lm-eval
    python tests/benchmarks/time_sampling.py results/STUDY/base/model PROBLEMS.jsonl [--problems 24] [--top-p 0.95]

Same model, dtype, prompts, samples per problem, temperature and token limit; lm-eval at each of its batch sizes, the
best of which counts; the order alternates, and medians of the repeats are compared.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers.utils import logging

from workflow_scripts.models.weights import load_base
from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.sampling.prompts import encode
from workflow_scripts.sampling.transformers_engine import sample


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("problems_file", type=Path)
    parser.add_argument("--field", default="question")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--family", default="chat-examples")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--max-completion", type=int, default=48)
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    """Time both and print a table."""
    a = arguments()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(a.threads)
    lines = a.problems_file.read_text(encoding="utf-8").splitlines()[: a.problems]
    questions = [json.loads(line)[a.field] for line in lines]
    model, tokenizer = load_base(a.base, a.dtype)
    model.eval()
    prompts = [ids for ids in encode(tokenizer, questions, a.family) for _ in range(a.samples)]
    options = Options(a.temperature, a.top_p, a.max_completion)
    harness = HFLM(pretrained=str(a.base), dtype=a.dtype, device="cpu", batch_size=a.batches[0])
    sampling = {"do_sample": True, "temperature": a.temperature, "top_p": a.top_p, "until": []}

    def ours() -> list[int]:
        seeds = [stream_seed("time", i) for i in range(len(prompts))]
        return [len(c.token_ids) for c in sample(model, tokenizer, prompts, seeds, options, "auto")]

    def theirs(batch: int) -> list[int]:
        harness.batch_size_per_gpu = batch
        requests: list[Any] = [
            Instance(
                request_type="generate_until", doc={}, idx=i,
                arguments=(tokenizer.decode(ids), {**sampling, "max_gen_toks": a.max_completion}),
            )
            for i, ids in enumerate(prompts)
        ]  # fmt: skip
        return [len(tokenizer(text)["input_ids"]) for text in harness.generate_until(requests, disable_tqdm=True)]

    ways = {"armslength": ours} | {f"lm-eval, batch {b}": lambda b=b: theirs(b) for b in a.batches}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(a.repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            lengths = way()
            rates[name].append(len(prompts) / (time.perf_counter() - start))
            print(f"{name:20} {rates[name][-1]:6.2f} samples/s, mean {statistics.mean(lengths):.1f} tokens", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max((name for name in ways if name != "armslength"), key=lambda name: medians[name])
    print(f"ratio to {best}: {medians['armslength'] / medians[best]:.2f}")


if __name__ == "__main__":
    main()
