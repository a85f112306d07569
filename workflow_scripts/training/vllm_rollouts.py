"""Rollouts drawn by vLLM while training: TRL's VLLMGeneration, with what a comparison of arms needs.

What differs from TRL 1.16: each rollout has a seed of its own. A colocated engine is given the adapter as an adapter,
and full weights by vLLM's own reload. A server takes whole weights alone, so that an adapter must be merged for it; the
base weights are then put back, bit by bit.
"""

import os
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoConfig
from trl.generation import vllm_generation

from workflow_scripts.models.weights import save_checkpoint
from workflow_scripts.sampling import EngineError, Options
from workflow_scripts.sampling.stop_strings import end_at_stop
from workflow_scripts.sampling.transformers_engine import end_tokens
from workflow_scripts.sampling.vllm_engine import (
    import_vllm,
    llm_arguments,
    lora_request,
    one_line,
    reload_weights,
    sampling_parameters,
)

REQUESTS = 64  # to a server, at once


class KeptBase:
    """A copy, in the CPU's memory, of the weights that a model's adapters change when they are merged.

    In bfloat16, merging and unmerging rounds twice: each time the base weights drift.
    """

    def __init__(self, model: Any) -> None:
        layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
        self._weights = [layer.get_base_layer().weight for layer in layers]
        self._copies = [weight.detach().to("cpu", copy=True) for weight in self._weights]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What happens inside leaves no trace in those weights."""
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, copy in zip(self._weights, self._copies, strict=True):
                    weight.copy_(copy)


class Rollouts(vllm_generation.VLLMGeneration):
    """TRL's VLLMGeneration. `seeds`, one for each prompt of this process, is to be set before each `generate`."""

    seeds: list[int]

    @property
    def _stop(self) -> tuple[str, ...] | None:
        """The stop strings; the only generation argument that `training.setup` gives."""
        return tuple(self.generation_kwargs.get("stop", ())) or None

    def _init_vllm(self) -> None:
        self._adapter: Any = None
        self._syncs = 0
        self._folder: Any = None
        self._kept = KeptBase(self.model) if self.mode == "server" and isinstance(self.model, PeftModel) else None
        if self.top_p < 1 or self.top_k > 0:  # the importance weights would hold the mass of what can be drawn
            key, value, only = ("top_p", self.top_p, "1") if self.top_p < 1 else ("top_k", self.top_k, "none")
            raise EngineError(
                f"rollout.{key}: {value}: with compute.engine: vllm only {only}: its log-probabilities are within what "
                "can be drawn; use compute.engine: transformers"
            )
        device = self.accelerator.device.type
        vllm = import_vllm(device)
        rank = max(c.r for c in self.model.peft_config.values()) if isinstance(self.model, PeftModel) else None
        # vLLM's own choice of dtype for a float32 model would be 16 bits
        dtype = AutoConfig.from_pretrained(self.model.name_or_path, local_files_only=True).dtype
        arguments = llm_arguments(device, self.max_model_length, rank, bool(self._stop)) | {"dtype": dtype}
        vllm_generation.LLM = partial(vllm.LLM, **arguments)  # TRL's call has the last word
        if self.accelerator.num_processes == 1:  # all runs that start at once on a machine would take TRL's 29500
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        key = "server" if self.mode == "server" else "training_memory"
        value = self.server_base_url if self.mode == "server" else self.gpu_memory_utilization
        try:
            super()._init_vllm()
        except (OSError, ValueError, RuntimeError) as error:
            raise EngineError(f"compute.engine: vllm, with compute.vllm.{key} {value}: {one_line(error)}") from None
        finally:
            vllm_generation.LLM = vllm.LLM

    def sync_weights(self) -> None:
        """Give the engine the weights that are being trained."""
        if self.mode == "server":
            if self._kept is None:
                super().sync_weights()
            else:
                with self._kept.unchanged():
                    super().sync_weights()
            return
        if isinstance(self.model, PeftModel):
            before, self._folder = self._folder, tempfile.TemporaryDirectory(prefix="armslength-adapter-")
            save_checkpoint(self.model, Path(self._folder.name))
            self._syncs += 1
            self._adapter = lora_request(Path(self._folder.name), self._syncs)
            if before is not None:
                before.cleanup()
            return
        weights = ((name, parameter.data) for name, parameter in self.model.named_parameters())
        reload_weights(self.llm, weights_iterator=weights)

    def generate(
        self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None
    ) -> tuple[Any, ...]:
        """One rollout per prompt, drawn with its seed. Returns what TRL's `generate` does: prompts, completions, and of
        each token a list of its log-probability (after temperature) and a list of its id."""
        options = Options(self.temperature, self.top_p, self.max_completion_length, stop=self._stop)
        ends = end_tokens(self.model.generation_config, self.processing_class)
        draw = self._from_server if self.mode == "server" else self._colocated
        with profiler or torch.no_grad():
            drawn = draw(prompts, self.seeds, options, ends)
        if options.stop is None:
            return prompts, *drawn
        # vLLM waits for whole characters, so it may draw one token more after a stop string
        kept = [len(end_at_stop(self.processing_class, ids, options.stop)) for ids in drawn[0]]
        return prompts, *([row[:count] for row, count in zip(part, kept, strict=True)] for part in drawn)

    def _colocated(
        self, prompts: list[list[int]], seeds: list[int], options: Options, ends: set[int]
    ) -> tuple[Any, Any, Any]:
        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            [sampling_parameters(options, ends, seed, logprobs=0) for seed in seeds],
            use_tqdm=False,
            lora_request=self._adapter,
        )
        drawn = [list(output.outputs[0].token_ids) for output in outputs]
        return drawn, *vllm_generation.extract_logprobs(outputs)

    def _from_server(
        self, prompts: list[list[int]], seeds: list[int], options: Options, ends: set[int]
    ) -> tuple[Any, Any, Any]:
        """All processes' prompts go out from the main one, a request each: a request has one seed."""

        def draw(request: tuple[list[int], int]) -> tuple[list[int], Any, Any]:
            prompt, seed = request
            answer = self.vllm_client.generate(
                prompts=[prompt], temperature=options.temperature, top_p=options.top_p,
                max_tokens=options.max_completion, logprobs=0,
                generation_kwargs={"seed": seed, "stop_token_ids": sorted(ends), "stop": list(options.stop or ())},
            )  # fmt: skip
            return answer["completion_ids"][0], answer["logprobs"][0], answer["logprob_token_ids"][0]

        requests = gather_object(list(zip(prompts, seeds, strict=True)))
        answers: list[Any] = [None]
        if self.accelerator.is_main_process:
            with ThreadPoolExecutor(REQUESTS) as pool:
                answers = [list(pool.map(draw, requests))]
        broadcast_object_list(answers, from_process=0)
        start = self.accelerator.process_index * len(prompts)
        mine = answers[0][start : start + len(prompts)]
        completions, log_probs, token_ids = map(list, zip(*mine, strict=True))
        return completions, log_probs, token_ids
