"""The keys of a study, section by section: types, ranges and defaults. What they mean is said in config.yaml."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
)

from workflow_scripts import digest, grading
from workflow_scripts.objectives.presets import PRESETS
from workflow_scripts.study.faults import OneOf, nearest

_LARGEST = 10**9
_MOST_SEEDS = 10_000


def _axis(module: str) -> dict[str, tuple[str, ...]]:
    """What can be chosen on an axis (the public functions of its module): names and the keys each may be given."""
    return {name: required + optional for name, (required, optional) in digest.keyword_arguments(module).items()}


RATIOS = tuple(_axis("objectives.ratio"))
POLICIES = _axis("objectives.bounds")
SURROGATES = _axis("objectives.surrogate")
AGGREGATIONS = tuple(name.replace("_", "-") for name in _axis("objectives.aggregation"))
SCALES = tuple(name for name, keys in _axis("objectives.advantage").items() if not keys)
POLICY_KEYS = tuple(dict.fromkeys(key for axis in (POLICIES, SURROGATES) for keys in axis.values() for key in keys))
PROMPT_FAMILIES = tuple(json.loads((Path(__file__).parents[1] / "sampling" / "prompts.json").read_text("utf-8")))
REQUIRED_KEYS = {
    name: required
    for module in ("objectives.bounds", "objectives.surrogate")
    for name, (required, _) in digest.keyword_arguments(module).items()
}
NEEDS_FOCAL = ("f_grpo", "f_gspo")  # presets whose paper is the focal weight; it has no default


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


def _as_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("finite numbers, texts, flags, and lists and mappings of them") from None
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise ValueError("a name that can be a folder: letters, digits, _ and -, at most 64, not starting with _ or -")
    return value


def _arm_name(value: str) -> str:
    if value == "base":
        raise ValueError("this name is reserved for the model before training; choose another")
    return _name(value)


def _reward(value: str) -> str:
    if ":" in value:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", value):
            raise ValueError("a function of your own is written package.module:function")
    elif value not in grading.names():
        raise ValueError(
            f"a grader ({', '.join(grading.names())}) or package.module:function{nearest(value, grading.names())}"
        )
    return value


def _grader(value: str) -> str:
    if value not in grading.names():
        raise ValueError(f"one of {', '.join(grading.names())}{nearest(value, grading.names())}")
    return value


def _count_of_seeds(value: Any) -> Any:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value[:10])
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _MOST_SEEDS:
            raise ValueError(f"a count from 1 to {_MOST_SEEDS}, or a list of seeds")
        return list(range(value))
    if not isinstance(value, list):
        raise ValueError("a count of seeds, or a list of them")
    return value


def _distinct(values: list[Any]) -> list[Any]:
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise ValueError(f"each only once; {', '.join(map(str, twice))} stands twice")
    return values


def _or_count(word: str, number: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """What makes a key a word or a whole number from 1; number: what that is called."""

    def read(value: Any) -> Any:
        if value == word:
            return value
        try:
            count = 0 if isinstance(value, (bool, float)) else int(value)
        except (TypeError, ValueError):
            count = 0
        if not 1 <= count <= _LARGEST:
            raise ValueError(f"{word}, or {number}")
        return count

    schema = {"anyOf": [{"const": word}, {"type": "integer", "minimum": 1}]}
    return BeforeValidator(read), WithJsonSchema(schema)


def _form(value: Any) -> str:
    return "<mapping>" if isinstance(value, Mapping) else "<list>" if isinstance(value, (list, tuple)) else "<one>"


def _forms(allowed: str) -> Discriminator:
    return Discriminator(_form, custom_error_type="form", custom_error_message=allowed)


_Numeric = BeforeValidator(_no_flag)
Number = Annotated[float, _Numeric]
Positive = Annotated[float, Field(gt=0), _Numeric]
NotNegative = Annotated[float, Field(ge=0), _Numeric]
Share = Annotated[float, Field(gt=0, lt=1), _Numeric]
TopP = Annotated[float, Field(gt=0, le=1), _Numeric]
Whole = Annotated[int, Field(ge=0, le=_LARGEST), _Numeric]
Count = Annotated[int, Field(ge=1, le=_LARGEST), _Numeric]
AtLeastTwo = Annotated[int, Field(ge=2, le=_LARGEST), _Numeric]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(_name)]
ArmName = Annotated[str, AfterValidator(_arm_name)]
Grader = Annotated[str, AfterValidator(_grader)]
SEEDS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}
Seeds = Annotated[
    list[Whole],
    Field(min_length=1),
    AfterValidator(_distinct),
    BeforeValidator(_count_of_seeds),
    WithJsonSchema(SEEDS_SCHEMA),
]
Counts = Annotated[list[Count], Field(min_length=1), AfterValidator(_distinct)]
Names = Annotated[list[Name], AfterValidator(_distinct)]
Samples = Annotated[
    Annotated[Count, Tag("<one>")] | Annotated[dict[Name, Count], Tag("<mapping>")],
    _forms("a whole number, or one for each benchmark"),
]
Targets = Annotated[
    Annotated[Text, Tag("<one>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    _forms("all-linear, or a list of module names"),
]
PolicyValue = Annotated[
    Annotated[NotNegative, Tag("<one>")] | Annotated[list[Positive], Field(min_length=2, max_length=2), Tag("<list>")],
    _forms("a number, or a list of two"),
]
Checkpoint = Annotated[int | str, *_or_count("last", "the step of a checkpoint")]
BatchSize = Annotated[int | str, *_or_count("auto", "a whole number from 1")]


class Part(BaseModel):
    """A section: no unknown keys, no infinite numbers, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Adapter(Part):
    rank: Count
    alpha: Positive
    targets: Targets = "all-linear"


class Model(Part):
    source: Annotated[str, OneOf(("embedded", "hub", "pypi", "local"))]
    name: Text | None = None
    revision: Text | None = None
    dtype: Annotated[str, OneOf(("float32", "bfloat16"))] = "float32"
    adapter: Adapter | None = None
    prompt_family: Annotated[str, OneOf(PROMPT_FAMILIES)] = "plain"


class TrainSet(Part):
    benchmark: Name
    split: Name | None = None
    rows: Count | None = None
    seed: Whole | None = None


class Data(Part):
    train: TrainSet
    decontaminate_against: Names = []
    remove_template_twins: bool = False


class Fields(Part):
    question: Text = "question"
    answer: Text = "answer"


class UserSet(Part):
    source: Annotated[str, OneOf(("local", "hub"))] = "local"
    path: Text | None = None
    revision: Text | None = None
    config: Text | None = None
    split: Text | None = None
    fields: Fields | None = None
    grader: Grader | None = None


class Rollout(Part):
    prompts: Count = 32
    group_size: AtLeastTwo = 8
    minibatches: Count = 2
    epochs: Count = 2
    temperature: Positive = 1.0
    top_p: TopP = 1.0
    max_completion: Count

    @property
    def updates_per_batch(self) -> int:
        """Optimizer updates from one rollout batch."""
        return self.minibatches * self.epochs

    @property
    def rollouts(self) -> int:
        """Rollouts of one batch."""
        return self.prompts * self.group_size


class Training(Part):
    steps: Count
    checkpoints: Counts | None = None
    learning_rate: Positive
    schedule: Annotated[str, OneOf(("constant", "constant_with_warmup", "linear", "cosine"))] = "constant"
    warmup_steps: Whole = 0
    max_grad_norm: Positive = 1.0
    beta: NotNegative = 0.0
    mask_truncated: bool = False
    reward: Annotated[str, AfterValidator(_reward)] = "exact_answer"
    success_threshold: Number | None = None
    trl: Annotated[dict[str, Any], AfterValidator(_as_json)] = {}


class Advantage(Part):
    scale: Annotated[str, OneOf(SCALES)] | None = None
    focal_gamma: NotNegative | None = None


class BranchFrom(Part):
    arm: ArmName
    step: Count


def _optional(section: type[Part]) -> type[Part]:
    """The same keys with none required: what an arm may override."""
    keys: dict[str, Any] = {
        name: (field.rebuild_annotation() | None, None) for name, field in section.model_fields.items()
    }
    return create_model(f"{section.__name__}Override", __base__=Part, **keys)


if TYPE_CHECKING:

    class TrainingOverride(Training): ...

    class RolloutOverride(Rollout): ...
else:
    TrainingOverride, RolloutOverride = _optional(Training), _optional(Rollout)


class _ArmKeys(Part):
    role: Annotated[str, OneOf(("comparison", "placebo", "sensitivity"))] = "comparison"
    preset: Annotated[str, OneOf(tuple(PRESETS))] | None = None
    same_as: ArmName | None = None
    ratio: Annotated[str, OneOf(RATIOS)] | None = None
    bounds: Annotated[str, OneOf(tuple(POLICIES))] | None = None
    surrogate: Annotated[str, OneOf(tuple(SURROGATES))] | None = None
    advantage: Advantage | None = None
    aggregation: Annotated[str, OneOf(AGGREGATIONS)] | None = None
    kl: Annotated[str, OneOf(("k3", "k3_importance"))] | None = None
    seeds: Seeds | None = None
    branch_from: BranchFrom | None = None
    optimizer: Annotated[str, OneOf(("carry", "reset"))] | None = None
    training: TrainingOverride | None = None
    rollout: RolloutOverride | None = None


class _PolicyKeys(Part):
    bounds: Annotated[str, OneOf(tuple(POLICIES))]


if TYPE_CHECKING:

    class ArmKeys(_ArmKeys): ...

    class Policy(_PolicyKeys): ...
else:  # the keys of the clip policies are those of their functions: a new policy needs no change here
    ArmKeys = create_model("ArmKeys", __base__=_ArmKeys, **dict.fromkeys(POLICY_KEYS, (PolicyValue | None, None)))
    _widths = {key: (NotNegative | None, None) for keys in POLICIES.values() for key in keys}
    Policy = create_model("Policy", __base__=_PolicyKeys, **_widths)


class Evaluation(Part):
    benchmarks: Annotated[Names, Field(min_length=1)]
    selection: Name | None = None
    problems: Count | None = None
    samples: Samples = 8
    pass_at: Counts = [1]
    temperature: Positive = 1.0
    top_p: TopP = 1.0
    max_completion: Count
    base_repeats: Count = 3


class Endpoint(Part):
    pass_at: Count = 1
    checkpoint: Checkpoint = "last"


class Analysis(Part):
    endpoint: Endpoint = Endpoint()
    margin: Share = 0.05
    alpha: Share = 0.05
    looks: Annotated[list[AtLeastTwo], AfterValidator(_distinct)] | None = None
    policies: dict[Name, Policy] = {}
    allow_unreachable: bool = False


class Keep(Part):
    rollouts: bool = True
    completions: bool = True
    checkpoints: bool = True
    state: Annotated[str, OneOf(("none", "last"))] = "none"


class Vllm(Part):
    mode: Annotated[str, OneOf(("colocate", "server"))] = "colocate"
    server: Text | None = None
    training_memory: Share = 0.3
    sampling_memory: Share = 0.9


class Compute(Part):
    device: Annotated[str, OneOf(("auto", "cpu", "cuda"))] = "auto"
    gpus: Whole = 0
    processes: Count | None = None
    micro_batch: BatchSize = "auto"
    gradient_checkpointing: bool = False
    engine: Annotated[str, OneOf(("transformers", "vllm"))] = "transformers"
    vllm: Vllm = Vllm()
    eval_batch: BatchSize = "auto"
    threads: Count = 1
    trackers: Annotated[
        list[Annotated[str, OneOf(("tensorboard", "trackio", "wandb"))]], AfterValidator(_distinct)
    ] = []
    keep: Keep = Keep()

    @property
    def place(self) -> str:
        """cpu or cuda: auto is a GPU where the study asks for one."""
        return {"auto": "cuda" if self.gpus else "cpu"}.get(self.device, self.device)


class StudyKeys(Part):
    """All keys of a study, in the order of config.yaml."""

    study: Name
    data_dir: Text | None = None
    allow_missing: bool = False
    retrain_on_reward_change: bool = False
    question: Text | None = None
    model: Model
    data: Data
    sets: dict[Name, UserSet] = {}
    rollout: Rollout
    training: Training
    arms: Annotated[dict[ArmName, ArmKeys], Field(min_length=1)]
    baseline: ArmName
    seeds: Seeds = list(range(5))
    only_arms: Annotated[list[ArmName], Field(min_length=1), AfterValidator(_distinct)] | None = None
    evaluation: Evaluation
    analysis: Analysis = Analysis()
    compute: Compute = Compute()
