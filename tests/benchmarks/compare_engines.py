"""vLLM against the transformers engine on real problems, by hand, in an environment that has vLLM:

    PYTHONPATH=. python tests/benchmarks/compare_engines.py results/STUDY/base/model mawps_singleop.jsonl

Same prompts, samples, temperature and limit. The engines draw different random numbers, so samples are compared as
distributions: pass@1 (paired by problem), and the log-probabilities of vLLM's tokens, token by token, as vLLM and as
the transformers model have them. `surprise` is how far those tokens are from samples of the transformers model at this
temperature: the sum of -log p minus entropy over a completion, 0 in expectation, in nats with its standard error.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from workflow_scripts.grading import grader
from workflow_scripts.models.weights import load_base, load_checkpoint
from workflow_scripts.sampling import Completion, Options, stream_seed
from workflow_scripts.sampling.prompts import encode
from workflow_scripts.sampling.transformers_engine import sample
from workflow_scripts.sampling.vllm_engine import VLLMEngine, sampling_parameters


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("problems_file", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--family", default="chat-examples")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-completion", type=int, default=48)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def with_log_probs(
    engine: VLLMEngine, prompts: list[list[int]], seeds: list[int], options: Options
) -> list[tuple[list[int], list[float]]]:
    """Tokens of one completion per prompt, and vLLM's log-probability of each at temperature 1."""
    outputs = engine.llm.generate(
        [{"prompt_token_ids": ids} for ids in prompts],
        [sampling_parameters(options, engine.ends, seed, logprobs=0) for seed in seeds],
        use_tqdm=False,
        lora_request=engine.adapter,
    )
    drawn = [output.outputs[0] for output in outputs]
    return [
        (list(d.token_ids), [place[token].logprob for place, token in zip(d.logprobs, d.token_ids, strict=True)])
        for d in drawn
    ]


@torch.no_grad()
def score(model: Any, ids: list[int], begin: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the tokens from `begin` on: log-probabilities at temperature 1; -log p - entropy at this temperature."""
    logits = model(torch.tensor([ids], device=model.device)).logits[0, begin - 1 : -1].float()
    tokens = torch.tensor(ids[begin:], device=model.device)[:, None]
    cooled = (logits / temperature).log_softmax(-1)
    entropy = -(cooled.exp() * cooled).sum(-1)
    return logits.log_softmax(-1).gather(1, tokens)[:, 0], -cooled.gather(1, tokens)[:, 0] - entropy


def mean_and_error(values: list[float]) -> str:
    """Mean ± standard error."""
    return f"{statistics.mean(values):+.4f} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def main() -> None:
    """Draw with both engines, from the base and from the adapter, and print what differs."""
    a = arguments()
    logging.disable_progress_bar()
    torch.set_num_threads(a.threads)
    rows = [json.loads(line) for line in a.problems_file.read_text(encoding="utf-8").splitlines()[: a.problems]]
    model, tokenizer = load_base(a.base, a.dtype)
    model = model.to(a.device).eval()
    prompts = [ids for ids in encode(tokenizer, [row["input"] for row in rows], a.family) for _ in range(a.samples)]
    answers = [f"{row['target']:.15g}" for row in rows for _ in range(a.samples)]
    seeds = [stream_seed("compare", number) for number in range(len(prompts))]
    options = Options(a.temperature, 1.0, a.max_completion)
    rank = json.loads((a.adapter / "adapter_config.json").read_text())["r"] if a.adapter else None
    engine = VLLMEngine(a.base, a.dtype, a.device, 0.4, max(map(len, prompts)) + a.max_completion + 1, rank)

    def passed(drawn: list[Completion]) -> list[float]:
        texts = tokenizer.batch_decode([one.token_ids for one in drawn], skip_special_tokens=True)
        graded = zip(texts, answers, drawn, strict=True)
        right = [grader("exact_answer")(text, gold, one.truncated).status == "correct" for text, gold, one in graded]
        return [statistics.mean(right[i : i + a.samples]) for i in range(0, len(right), a.samples)]

    first: list[Completion] = []
    for folder in [None, a.adapter] if a.adapter else [None]:
        start = time.perf_counter()
        engine.load(folder)
        drawn = engine.sample(prompts, seeds, options)
        seconds = time.perf_counter() - start
        few = list(range(0, len(prompts), 4))[::-1]  # in another order and company
        again = with_log_probs(engine, [prompts[i] for i in few], [seeds[i] for i in few], options)
        if folder:
            model = load_checkpoint(model, folder, a.dtype).eval()
        start = time.perf_counter()
        ours = sample(model, tokenizer, prompts, seeds, options, "auto")
        ours_seconds = time.perf_counter() - start
        differences, surprises = [], []
        for i, (tokens, known) in zip(few, again, strict=True):
            log_probs, surprise = score(model, prompts[i] + tokens, len(prompts[i]), a.temperature)
            differences += (log_probs.cpu() - torch.tensor(known)).abs().tolist()
            surprises.append(surprise.sum().item())
        by_problem = [x - y for x, y in zip(passed(drawn), passed(ours), strict=True)]
        same = sum(again[n][0] == drawn[i].token_ids for n, i in enumerate(few))
        pairs = {"pass@1": (passed(drawn), passed(ours))}
        pairs["tokens"] = ([len(one.token_ids) for one in drawn], [len(one.token_ids) for one in ours])
        pairs["truncated"] = ([one.truncated for one in drawn], [one.truncated for one in ours])
        print(f"--- {folder or 'base'}: {len(rows)} problems x {a.samples}, {a.dtype}, {a.device}, {engine.name}")
        for name, (x, y) in pairs.items():
            print(f"{name:20} vllm {statistics.mean(x):.3f}, transformers {statistics.mean(y):.3f}")
        print(f"difference of pass@1 {mean_and_error(by_problem)}")
        print(f"|log p difference|   mean {statistics.mean(differences):.2e}, max {max(differences):.2e}")
        print(f"surprise             {mean_and_error(surprises)} nats a completion, {len(differences)} tokens")
        print(f"other order, subset  {same} of {len(few)} the same")
        if folder:
            print(f"other than the base  {sum(x != y for x, y in zip(drawn, first, strict=True))} of {len(drawn)}")
        print(f"seconds              vllm {seconds:.0f}, transformers {ours_seconds:.0f}", flush=True)
        first = drawn


if __name__ == "__main__":
    main()
