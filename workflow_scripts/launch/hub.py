"""Whether the Hugging Face hub answers, and has what a study pins; asked once and briefly, before any job starts."""

import os
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from workflow_scripts.errors import first_line

SECONDS = 5.0


class Hub:
    """The Hugging Face hub, or the mirror in HF_ENDPOINT; where it does not answer it is not asked again."""

    def __init__(self) -> None:
        self.silent = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else None
        self.api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)

    def rows_are_cached(self, path: str, config: str | None, revision: str) -> bool:
        """Whether a data set's rows of that revision were made from the hub before: `datasets` keeps them by revision,
        but takes any that it finds where the hub does not answer."""
        from datasets import config as places
        from datasets.naming import camelcase_to_snakecase

        *owner, name = path.split("/")
        folder = Path(places.HF_DATASETS_CACHE) / "___".join([*owner, camelcase_to_snakecase(name)])
        return any(folder.glob(f"{config or '*'}/*/{revision}/dataset_info.json"))

    def faults(self, key: str, kind: str, name: str, revision: str, other: str, beside: str = "") -> list[str]:
        """At most one line: why a revision that is not in the cache cannot be had.

        key: of the study. kind: model or dataset. other: what can be set beside the cache and the mirror. beside: what
        the cache lacks of it.
        """
        said = f"{key}: {name}, revision {revision}:"
        if self.silent is None:
            try:
                ask = self.api.model_info if kind == "model" else self.api.dataset_info
                if ask(name, revision=revision, timeout=SECONDS).gated:
                    self.api.auth_check(name, repo_type=kind)
                return []
            except GatedRepoError:
                return [f"{said} its owner asks for consent: accept the terms on its page, then set HF_TOKEN"]
            except RevisionNotFoundError:
                return [f"{said} no such revision on {self.api.endpoint}"]
            except RepositoryNotFoundError:
                return [f"{said} no such {kind} on {self.api.endpoint}; if it is private, set HF_TOKEN"]
            except HFValidationError as error:
                return [f"{said} no name of the hub: {first_line(error)}"]
            except HfHubHTTPError as error:
                self.silent = f"{self.api.endpoint} answers {error.response.status_code}"
            except Exception as error:  # whatever lies between here and there: names, proxies, certificates, time
                self.silent = f"{self.api.endpoint} does not answer ({first_line(error)})"
        return [
            f"{said} not in the cache below {constants.HF_HOME}{beside}, and {self.silent}; "
            f"set HF_HOME to a cache that holds it, HF_ENDPOINT to a mirror, or {other}"
        ]
