"""What a base gains by stop strings: correct answers, tokens and seconds, with and without, on two-example prompts.

    python tests/benchmarks/time_stop_strings.py results/STUDY/base/model mawps_singleop.jsonl [--problems 100]

The prompt is text: two worked problems and the question, each behind "Question:". Both ways draw with the same seeds.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from transformers.utils import logging

from workflow_scripts.grading import grade_many
from workflow_scripts.models.weights import load_base
from workflow_scripts.sampling import Options, stream_seed
from workflow_scripts.sampling.stop_strings import cut, decoded
from workflow_scripts.sampling.transformers_engine import sample
from workflow_scripts.study.keys import PROMPTS


def main() -> None:
    """Draw both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("problems_file", type=Path)
    parser.add_argument("--fields", nargs=2, default=["input", "target"])
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-completion", type=int, default=64)
    parser.add_argument("--stop", nargs="+", default=["\n\nQuestion:"])
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(a.threads)
    rows = [json.loads(line) for line in a.problems_file.read_text(encoding="utf-8").splitlines()[: a.problems]]
    examples = "".join(f"Question: {q}\nAnswer: {answer}\n\n" for q, answer in PROMPTS["chat-examples"]["examples"])
    model, tokenizer = load_base(a.base, "float32")
    model.eval()
    asked = [row for row in rows for _ in range(a.samples)]
    prompts = [tokenizer(f"{examples}Question: {row[a.fields[0]]}\nAnswer:")["input_ids"] for row in asked]
    seeds = [stream_seed("stop", number) for number in range(len(prompts))]
    for name, stop in (("without", None), ("with", tuple(a.stop))):
        start = time.perf_counter()
        drawn = sample(model, tokenizer, prompts, seeds, Options(a.temperature, 1.0, a.max_completion, stop=stop), 32)
        seconds = time.perf_counter() - start
        texts = [cut(text, stop)[0] for text in decoded(tokenizer, [one.token_ids for one in drawn])]
        answers = [str(row[a.fields[1]]) for row in asked]
        verdicts = grade_many(
            "exact_answer", [(t, gold, one.truncated) for t, gold, one in zip(texts, answers, drawn, strict=True)]
        )
        kinds = [verdict.status for verdict in verdicts]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        tokens = sum(len(one.token_ids) for one in drawn) / len(drawn)
        cut_off = sum(one.truncated for one in drawn)
        print(
            f"{name:8} {len(drawn)} completions: {counts}, {cut_off} cut off, {tokens:.1f} tokens, {seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
