"""What a study trains and samples, in counts, and the hours that takes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workflow_scripts import benchmarks
from workflow_scripts.launch.progress import RunProgress, job_seconds
from workflow_scripts.study import Study


@dataclass(frozen=True)
class Cost:
    """Counts of one arm over all its runs; completions are of evaluation, None if a benchmark's size is unknown."""

    updates: int
    rollouts: int
    completions: int | None


@dataclass(frozen=True)
class Rates:
    """Tokens a second of one GPU, or else core: each completion at its longest, loading and updates included; where
    from."""

    training: float
    sampling: float
    source: str


# Both arms of the recipe (studies/recipe-gsm8k.yaml) in 12.8 and 7.6 GPU minutes: 2 x 960 rollouts and 2 x 480
# completions of 256 tokens at most. Whether the evaluations of the base are in it is not said; with them it is 900.
_L40S = Rates(600, 600, "as Qwen2.5-1.5B on one L40S")
_EMBEDDED = Rates(5_300, 22_400, "as measured in docs/real-runs.md")


def problems_of(study: Study, benchmark: str) -> int | None:
    """Problems sampled of a benchmark; None where only the fetched file could tell."""
    size = None if benchmark in study.sets else benchmarks.problem_set(benchmark).size
    wanted = study.evaluation.problems
    if wanted is None or size is None:
        return wanted or size
    return min(wanted, size)


def completions(study: Study, passes: int) -> int | None:
    """Completions of so many passes over all sampled benchmarks."""
    total = 0
    for benchmark in study.sampled:
        problems = problems_of(study, benchmark)
        if problems is None:
            return None
        total += passes * problems * study.samples_of(benchmark)
    return total


def cost(study: Study, arm_name: str, runs: int) -> Cost:
    """What so many runs of an arm train and sample."""
    arm = study.resolved(arm_name)
    updates = runs * (arm.training.steps - (arm.branch_from.step if arm.branch_from else 0))
    return Cost(
        updates=updates,
        rollouts=updates // arm.updates_per_batch * arm.rollout.rollouts,
        completions=completions(study, runs * len(arm.checkpoints)),
    )


def tokens(study: Study, runs: Mapping[str, int], passes_of_base: int) -> tuple[int, int | None]:
    """Tokens of rollouts and of evaluation, each completion at its longest, of so many runs of each arm."""
    costs = {arm: cost(study, arm, count) for arm, count in runs.items()}
    rollouts = sum(c.rollouts * study.resolved(arm).rollout.max_completion for arm, c in costs.items())
    drawn = [completions(study, passes_of_base), *(c.completions for c in costs.values())]
    if None in drawn:
        return rollouts, None
    return rollouts, sum(n for n in drawn if n is not None) * study.evaluation.max_completion


def rates(study: Study, root: Path) -> Rates | None:
    """How fast this study's own jobs went, where some of both kinds have ended; else what is known; else None."""
    train, sample = [0.0, 0.0], [0.0, 0.0]
    jobs = 0
    for arm, seeds in study.runs().items():
        arm_tokens, _ = tokens(study, {arm: 1}, 0)
        for seed in seeds:
            if seconds := job_seconds(root / "benchmarks" / "train" / f"{arm}-{seed}.tsv"):
                train = [train[0] + arm_tokens, train[1] + seconds]
                jobs += 1
            for benchmark in study.sampled:
                problems = problems_of(study, benchmark)
                file = root / "benchmarks" / "sample_checkpoints" / f"{arm}-{seed}-{benchmark}.tsv"
                if problems and (seconds := job_seconds(file)):
                    drawn = problems * study.samples_of(benchmark) * len(study.resolved(arm).checkpoints)
                    sample = [sample[0] + drawn * study.evaluation.max_completion, sample[1] + seconds]
                    jobs += 1
    if train[1] and sample[1]:
        training, sampling = _devices(study)
        each = train[0] / train[1] / training, sample[0] / sample[1] / sampling
        return Rates(*each, f"as {jobs} jobs of this study so far")
    if study.compute.gpus:
        return _L40S
    return _EMBEDDED if study.model.source == "embedded" else None


def _devices(study: Study) -> tuple[int, int]:
    """GPUs, or else cores, of a training and of a sampling job."""
    compute = study.compute
    cores = compute.threads * (compute.processes or 1)
    return (compute.gpus, 1) if compute.gpus else (cores, compute.threads)


def _few(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def hours_line(study: Study, root: Path, runs: Sequence[RunProgress], given: float | None) -> str:
    """One line: GPU or CPU hours in all and to come, and on what assumption. given: tokens a second, by the user."""
    kind = "GPU" if study.compute.gpus else "CPU"
    rate = Rates(given, given, "as given") if given else rates(study, root)
    if rate is None:
        return f"{kind} hours: ?, as no job of this study has been timed yet; --tokens-per-second N for a guess"
    whole = tokens(study, Counter(run.arm for run in runs), study.evaluation.base_repeats)
    rollouts, _ = tokens(study, Counter(run.arm for run in runs if not run.trained), 0)
    _, sampled = tokens(study, Counter(run.arm for run in runs if run.state != "evaluated"), _base_left(study, root))

    def hours(training: int, sampling: int | None) -> float:
        return (training / rate.training + (sampling or 0) / rate.sampling) / 3600

    speed = f"{rate.training:,.0f}" + (f" and {rate.sampling:,.0f}" if rate.sampling != rate.training else "")
    beyond = "" if whole[1] is not None else ", evaluation left out: a benchmark's size is not known"
    return (
        f"{kind} hours: about {_few(hours(*whole))} in all, {_few(hours(rollouts, sampled))} to come{beyond}; every "
        f"completion at its longest, {speed} tokens a second, {rate.source} (--tokens-per-second N)"
    )


def _base_left(study: Study, root: Path) -> int:
    """Evaluations of the base that are not whole yet."""
    repeats = [root / "base" / f"repeat-{repeat}" for repeat in range(study.evaluation.base_repeats)]
    return sum(not all((f / b / "samples.parquet").exists() for b in study.sampled) for f in repeats)
