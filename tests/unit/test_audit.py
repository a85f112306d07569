"""`armslength audit`: logs of TRL's own trainer, of ours, the published patterns, and whatever else a FILE may be."""

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workflow_scripts import tables
from workflow_scripts.commands import audit
from workflow_scripts.commands.audit import trainer_log, update_rhythm
from workflow_scripts.commands.audit.trainer_log import TRUNCATED, LogError

ROOT = Path(__file__).resolve().parents[2]
UNKNOWN = "cannot be determined"
LOW, HIGH, REGION = "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean"


def entries(clip: list[float], updates: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """A log: the clip share of steps 1, 2, …; a reward at the first of `updates` steps, or at all (None)."""
    return [
        {"step": step, "loss": 0.1, "learning_rate": 1e-6, REGION: share, LOW: 0.0, HIGH: share, "entropy": 1.0, **more}
        | ({"reward": 0.5, "frac_reward_zero_std": 0.25} if not updates or step % updates == 1 % updates else {})
        for step, share in enumerate(clip, 1)
    ]


def drawn(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same log as TRL's GRPOTrainer writes it where each step draws rollouts: the tokens so far grow."""
    return [entry | {"num_tokens": 100 * entry["step"]} for entry in history]


def state(history: Any, **more: Any) -> dict[str, Any]:
    """A TrainerState."""
    return {"global_step": 1, "max_steps": 1, "log_history": history, **more}


def write(folder: Path, history: Any) -> Path:
    """A trainer_state.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainer_state.json"
    path.write_text(json.dumps(state(history)))
    return path


def cells(path: Path) -> dict[str, str]:
    """The table's column by row."""
    return dict(zip(audit.ROWS, audit.column(trainer_log.read(str(path))), strict=True))


def judged(path: Path) -> tuple[str, str, str]:
    """The verdict."""
    log = trainer_log.read(str(path))
    return audit.verdict(log, audit.updates_per_batch(log))


# The real trainer


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trains an untrained small model with TRL's own GRPOTrainer; its trainer_state.json."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from workflow_scripts.benchmarks import word_problems
    from workflow_scripts.models import warm_start

    folder = tmp_path_factory.mktemp("real")
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    rows = [{"prompt": problem["question"]} for problem in word_problems.generate("train", 64, seed=1)]

    def train(name: str, steps: int, **arguments: Any) -> Path:
        torch.set_num_threads(1)
        common = {
            "output_dir": str(folder / name), "max_steps": steps, "per_device_train_batch_size": 8,
            "num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-2, "lr_scheduler_type": "constant",
            "logging_steps": 1, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False,
            "disable_tqdm": True, "dataloader_pin_memory": False, "gradient_checkpointing": False, "seed": 0,
        }  # fmt: skip
        trainer = GRPOTrainer(
            model=warm_start.small_llama(tokenizer, seed=0),
            reward_funcs=lambda completions, **_: [float(len(text) % 2 == 0) for text in completions],
            args=GRPOConfig(**{**common, **arguments}),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
        trainer.train()
        path = folder / name / "trainer_state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        trainer.state.save_to_json(str(path))
        return path

    return train


def test_trl_with_one_update_cannot_clip(real: Any) -> None:
    path = real("one", 8)
    found = cells(path)
    assert found["steps logged"] == "8 (1 to 8)"
    assert found["updates per batch"] == "1"
    assert found["steps with a clip"].startswith("0 of 8")
    could, did, why = judged(path)
    assert (could, did) == ("no", "no")
    assert "num_iterations" in why


@pytest.mark.parametrize(
    ("updates", "arguments"),
    [(2, {"num_iterations": 2}), (4, {"steps_per_generation": 4}), (4, {"loss_type": "cispo"})],
)
def test_trl_with_several_updates_clips(real: Any, updates: int, arguments: dict[str, Any], tmp_path: Path) -> None:
    if "loss_type" in arguments:
        arguments = {**arguments, "epsilon_high": 1.2, "steps_per_generation": 4}
    path = real(f"several-{updates}-{len(arguments)}", 24, **arguments)
    found = cells(path)
    assert found["updates per batch"] == str(updates)
    assert found["clip at first updates"] == f"0 of {24 // updates} (0 %), mean 0 %"
    assert judged(path)[:2] == ("yes", "yes")
    assert float(found["flat groups"].split()[1]) >= 0
    # The same of the clip alone, as where rewards are logged at every step.
    history = json.loads(path.read_text())["log_history"]
    marked = [entry | {"reward": 0.5} for entry in history if "loss" in entry]
    assert cells(write(tmp_path, marked))["updates per batch"] == f"{updates}, by the clip's pattern"


def test_trl_that_draws_rollouts_within_a_step(real: Any) -> None:
    """Every step has new rollouts, and every second one also the rest of a batch that an update came before."""
    path = real("within", 8, steps_per_generation=2, gradient_accumulation_steps=3, per_device_train_batch_size=4)
    shown = cells(path)
    assert not shown["steps with a clip"].startswith("0 ")
    assert shown["updates per batch"] == "cannot be determined: each step has a reward, yet the clip fires"
    assert judged(path)[:2] == (UNKNOWN, UNKNOWN)


def test_trl_that_logs_means_of_steps(real: Any) -> None:
    shown = cells(real("means", 24, steps_per_generation=4, logging_steps=2))
    assert (shown["logged every"], shown["updates per batch"]) == ("2 steps", "4")
    assert shown["clip at first updates"] == "-"
    shown = cells(real("wide", 24, num_iterations=2, logging_steps=4))
    assert shown["updates per batch"] == "cannot be determined: logged every 4 steps; at most 4"


def test_a_narrow_learning_rate_could_clip_and_does_not(real: Any) -> None:
    path = real("tame", 8, num_iterations=2, learning_rate=1e-9)
    assert cells(path)["updates per batch"] == "2"
    could, did, why = judged(path)
    assert (could, did) == ("yes", "no")
    assert "never fired" in why


# The published patterns


def pattern(steps: int, updates: int, share: float = 0.002) -> list[float]:
    """Zero at the first update of each batch."""
    return [0.0 if step % updates == 0 else share for step in range(steps)]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("updates", "steps", "fired", "quiet"), [(4, 660, 494, [1]), (2, 40, 20, []), (3, 30, 19, [4])]
)
def test_published_patterns(
    updates: int, steps: int, fired: int, quiet: list[int], marked: bool, tmp_path: Path
) -> None:
    clip = pattern(steps, updates)
    for step in quiet:
        clip[step] = 0.0  # one update that could clip and did not
    path = write(tmp_path, entries(clip, updates if marked else None))
    found = cells(path)
    assert found["steps with a clip"] == f"{fired} of {steps} ({100 * fired / steps:.1f} %)"
    assert found["updates per batch"] == f"{updates}" + ("" if marked else ", by the clip's pattern")
    could = steps - math.ceil(steps / updates)
    assert judged(path) == ("yes", "yes", f"it fired in {fired} of {could} steps that could clip, mean share 0.2 %")


def test_one_update_that_never_fires(tmp_path: Path) -> None:
    path = write(tmp_path, drawn(entries([0.0] * 40)))
    assert cells(path)["updates per batch"] == "1"
    assert judged(path)[:2] == ("no", "no")
    assert judged(write(tmp_path, entries([0.0] * 40)))[:2] == (UNKNOWN, "no")  # a stack may repeat the last reward
    log = [{key: value for key, value in entry.items() if key != "reward"} for entry in entries([0.0] * 40)]
    assert judged(write(tmp_path, log))[:2] == (UNKNOWN, "no")
    assert judged(write(tmp_path, [e | {"step": 5 * e["step"]} for e in entries([0.0] * 40)]))[:2] == (UNKNOWN, "no")
    assert judged(write(tmp_path, entries([0.0])))[0] == UNKNOWN  # one step says nothing of the next


def test_shares_are_those_of_the_log(tmp_path: Path) -> None:
    history = entries(pattern(40, 2), 2)
    history[11] |= {LOW: 0.0105, HIGH: 0.0125, REGION: 0.023}
    history[12]["frac_reward_zero_std"] = 0.67
    found = cells(write(tmp_path, history))
    assert found["clip share"] == "mean 0.2 %, largest 2.3 % at step 12"
    assert found["  upper, share"] == "mean 0.1 %, largest 1.2 % at step 12"
    assert found["  lower bound"] == "1 of 40 (2.5 %)"
    assert found["flat groups"] == "mean 27.1 %, peak 67.0 % at step 13"
    for entry in history:
        del entry[REGION]
    assert cells(write(tmp_path, history))["clip share"] == "mean 0.2 %, largest 2.3 % at step 12"


@pytest.mark.parametrize(("metric", "shown"), [("clip_ratio", "clip_ratio"), ("cispo_clip_ratio", "cispo_clip_ratio")])
def test_logs_with_one_clip_metric(metric: str, shown: str, tmp_path: Path) -> None:
    history = [{"step": s + 1, "loss": 0.0, metric: v, "reward": 1.0} for s, v in enumerate(pattern(40, 4))]
    found = cells(write(tmp_path, history))
    assert found["clip metrics"] == shown
    assert found["updates per batch"].startswith("4")
    assert found["  lower bound"] == "-"


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(("noise", "did"), [(1e-4, "yes"), (1e-3, "no")])
def test_noise_on_new_rollouts(noise: float, did: str, marked: bool, tmp_path: Path) -> None:
    clip = [share or noise for share in pattern(80, 4)]
    path = write(tmp_path, entries(clip, 4 if marked else None))
    found = judged(path)
    if marked:
        assert found[:2] == ("yes", did)
        assert ("numerical noise" in found[2]) == (did == "no")
        assert cells(path)["clip at first updates"].startswith("20 of 20")
    else:
        assert found[:2] == (("yes", "yes") if did == "yes" else (UNKNOWN, UNKNOWN))


def test_firing_too_rare_for_a_period(tmp_path: Path) -> None:
    clip = [0.01 if step in (3, 17, 29) else 0.0 for step in range(40)]
    path = write(tmp_path, entries(clip))
    assert cells(path)["updates per batch"].startswith(UNKNOWN)
    assert judged(path)[0] == UNKNOWN
    assert update_rhythm.period({step: step in (3, 17, 29) for step in range(40)}) is None


def test_a_clip_that_only_fires_late_in_a_batch() -> None:
    """Every second step is silent too; the whole pattern has period 4."""
    found = update_rhythm.period({step: step % 4 == 3 for step in range(80)})
    assert found is not None and found[0] == 4


def test_uneven_and_resumed_batches(tmp_path: Path) -> None:
    resumed = entries(pattern(60, 4), 4)
    for entry in resumed[29:]:  # a batch cut short: new rollouts at step 30 instead of 33
        entry.pop("reward", None)
        if entry["step"] % 4 == 2:
            entry["reward"] = 0.5
    assert cells(write(tmp_path, resumed))["updates per batch"].startswith("4, except in 1 of ")
    uneven = entries([0.0] * 12)
    for step in (3, 6, 9, 12):
        del uneven[step - 1]["reward"]
    assert cells(write(tmp_path, uneven))["updates per batch"] == "about 1.4, uneven: 1 to 2"


@pytest.mark.parametrize(("last", "collapsed"), [(0.019, True), (0.021, False)])
def test_entropy_collapse(last: float, collapsed: bool, tmp_path: Path) -> None:
    history = [e | {"entropy": 0.2 if e["step"] < 36 else last} for e in entries([0.0] * 40)]
    assert cells(write(tmp_path, history))["entropy"] == f"0.2 -> {last:.3g}" + ", collapsed" * collapsed


def test_flat_groups(tmp_path: Path) -> None:
    flat = [e | {"frac_reward_zero_std": 1.0} for e in drawn(entries([0.0] * 8, 1))]
    assert judged(write(tmp_path, flat))[2].startswith("every group is flat")
    flat[3]["frac_reward_zero_std"] = 0.75
    assert judged(write(tmp_path, flat))[2].startswith("one update per rollout batch")
    spread = [e | {"reward_std": float(e["step"] % 4 > 0)} for e in entries([0.0] * 8)]
    for entry in spread:
        del entry["frac_reward_zero_std"]
    assert cells(write(tmp_path, spread))["flat groups"] == "reward_std 0 in 2 of 8 steps"


def test_what_is_left_out(tmp_path: Path) -> None:
    history: list[Any] = entries([0.9] * 4 + pattern(40, 4), 4)
    again = [e | {REGION: 0.0, HIGH: 0.0} for e in history[:4]]  # a resumed run logs its steps again
    odd = [{"loss": 1.0}, {"step": "7", "loss": 1.0}, {"step": True, "loss": 1.0}, {"step": 2.5, "loss": 1.0}]
    others = [{"step": 8, "eval_loss": 1.0, f"eval_{REGION}": 0.7}, {"step": 44, "train_loss": 0.0}, "x"]
    history[9] |= {REGION: math.nan, LOW: math.nan, HIGH: None, "entropy": math.inf}
    found = cells(write(tmp_path, history + again + odd + others))
    assert found["steps logged"] == "44 (1 to 44)"
    assert found["clip share"].endswith("largest 0.2 % at step 6")
    assert found["left out"] == "4 repeated step, 4 without a step, 1 evaluation, 1 no entry, 4 no number"
    assert found["steps with a clip"].startswith("29 of 43 ")
    history = [e | {"frac_reward_zero_std": 1.5, TRUNCATED: -0.1} for e in entries([0.0] * 4)]  # no shares
    assert cells(write(tmp_path, [*history, *entries([0.0] * 5)[4:]]))["left out"] == "8 no number"


# What a FILE may be


def test_folders(tmp_path: Path) -> None:
    for number, share in ((9, 0.1), (10, 0.2)):
        write(tmp_path / f"checkpoint-{number}", entries(pattern(8, 4, share), 4))
    (tmp_path / "checkpoint-11").mkdir()
    assert trainer_log.read(str(tmp_path)).clip[2] == 0.2
    write(tmp_path, entries(pattern(8, 4, 0.3), 4))
    assert trainer_log.read(str(tmp_path)).clip[2] == 0.3


def test_training_args_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return open, (str(tmp_path / "sprung"), "w")

    write(tmp_path, entries([0.0] * 8))
    (tmp_path / "training_args.bin").write_bytes(pickle.dumps(Trap()))
    assert audit.main([str(tmp_path)]) == 0
    assert audit.main([str(tmp_path / "training_args.bin")]) == 1
    assert not (tmp_path / "sprung").exists()


def test_our_own_log(tmp_path: Path) -> None:
    from workflow_scripts.training.run import log_rows

    history = entries(pattern(48, 4), 4)
    rows = log_rows(history)
    tables.write(tmp_path / "trainer_log.parquet", tables.TRAINER_LOG, rows, {})
    write(tmp_path / "same", history)
    ours, theirs = cells(tmp_path / "trainer_log.parquet"), cells(tmp_path / "same" / "trainer_state.json")
    assert ours == theirs
    assert ours["updates per batch"] == "4"
    assert trainer_log.read(str(tmp_path)).name.endswith("trainer_log.parquet")


def bad_files() -> dict[str, tuple[bytes | None, str]]:
    """Name → content and what is said."""
    good = json.dumps(state(entries(pattern(8, 4), 4))).encode()
    sft = json.dumps(state([{"step": 1, "loss": 1.0, "eval_loss": 2.0}])).encode()
    return {
        "missing": (None, "No such file"),
        "empty": (b"", "the file is empty"),
        "zeros": (b"\0" * 64, "the file is empty"),
        "cut": (good[: len(good) // 2], "breaks off at line 1 column"),
        "cut-after-entry": (good[: good.rindex(b"}, {") + 1], "breaks off"),
        "text": (b"step,loss\n1,2\n", "a csv file; audit reads trainer_state.json"),
        "binary": (b"\x80\x04\x95\xff", "a Python pickle; audit reads"),
        "digits": (b'{"log_history": [' + b"1" * 5000 + b"]}", "no JSON that can be read"),
        "deep": (b"[" * 100_000, "no JSON that can be read: RecursionError"),
        "list": (json.dumps(entries([0.1])).encode(), "a bare log_history list; save it as"),
        "other": (b'{"name": "x"}', "no TrainerState"),
        "null": (b'{"log_history": null}', "no TrainerState"),
        "no-entries": (json.dumps(state([])).encode(), "no entries of training"),
        "evaluations": (json.dumps(state([{"step": 1, "eval_loss": 1.0}])).encode(), "no entries of training"),
        "sft": (sft, f"no clip metric and no reward: none of {REGION}, "),
        "nan-clips": (json.dumps(state([{"step": 1, REGION: math.nan}])).encode(), "no clip metric"),
        "parquet": (b"PAR1 and no more", "not a readable parquet file"),
    }


@pytest.mark.parametrize("name", bad_files())
def test_bad_files_are_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = bad_files()[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert audit.main([str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"armslength audit: {path}: ") and err.count("\n") == 1
    assert said in err


def test_a_folder_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoint-x").mkdir()
    assert audit.main([str(tmp_path)]) == 1
    assert f"{tmp_path}: a folder without trainer_state.json" in capsys.readouterr().err


def test_another_table_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "plan.parquet"
    tables.write(path, tables.PLAN, [], {})
    with pytest.raises(LogError, match="is not a table trainer_log"):
        trainer_log.read(str(path))


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, entries([0.0] * 8))
    monkeypatch.setattr(trainer_log, "MOST_BYTES", path.stat().st_size - 1)
    with pytest.raises(LogError, match="larger than"):
        trainer_log.read(str(path))
    monkeypatch.setattr(trainer_log, "MOST_BYTES", path.stat().st_size)
    assert trainer_log.read(str(path)).steps == list(range(1, 9))


def test_several_files_are_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one", drawn(entries([0.0] * 40)))
    two = write(tmp_path / "t\nwo", entries(pattern(40, 4), 4))
    assert audit.main([str(one), str(tmp_path / "none"), str(two)]) == 1
    out, err = capsys.readouterr()
    head, *body = out.splitlines()
    assert head.split() == ["one/trainer_state.json", "t?wo/trainer_state.json"]
    assert next(line for line in body if line.startswith("updates per batch")).split()[-2:] == ["1", "4"]
    assert body[-2].startswith("one/trainer_state.json: could bind: no; did: no: one update per rollout batch")
    assert body[-1].startswith("t?wo/trainer_state.json: could bind: yes; did: yes: it fired in 30 of 30 steps")
    assert err.count("\n") == 1 and "none: No such file" in err


def test_help_explains_every_row_and_nothing_heavy_is_imported(tmp_path: Path) -> None:
    path = write(tmp_path, entries(pattern(40, 4), 4))
    program = (
        "import sys; from workflow_scripts.commands import audit; code = audit.main(sys.argv[1:]);"
        "assert not {'torch', 'trl', 'transformers', 'pandas', 'pyarrow'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    command = [sys.executable, "-m", "workflow_scripts", "audit", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    shown = " ".join(done.stdout.split())
    assert not [row for row, text in audit.ROWS.items() if text and (row not in shown or text not in shown)]
