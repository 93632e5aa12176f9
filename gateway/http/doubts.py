"""What a tenant names that is not there now. It may come later, or be a typo: a word, no error."""

from __future__ import annotations

from gateway.http.catalogue import Catalogue
from gateway.tenant_config import TenantConfig


def doubts(config: TenantConfig, catalogue: Catalogue) -> list[str]:
    """A sentence for every model and worker that nobody knows now."""
    models = set(catalogue.names())
    workers = {worker.name for worker in catalogue.fleet.workers()}
    named = () if config.policy is None else config.policy.workers
    return [
        *(
            f"models names {model!r}, which no worker serves now."
            for model in config.models or ()
            if model not in models
        ),
        *(
            f"policy.workers names {worker!r}, and no worker of this name is linked now."
            for worker in named
            if worker not in workers
        ),
    ]
