"""The names of models: which there are now, who may use which, and what workers call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import InvalidRequest, ModelNotFound, NoWorker
from gateway.fleet.workers import Fleet
from gateway.tenancy.tenants import Tenant

_DOES = {
    "generate": "generates text",
    "rerank": "scores pairs of a query and a document",
    "embed": "embeds texts",
}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Follows the fleet. aliases: further names of models."""

    fleet: Fleet
    aliases: Mapping[str, str]

    def names(self) -> list[str]:
        """All that is served now, by every name."""
        served = self.fleet.models()
        return [*served, *sorted(name for name, model in self.aliases.items() if model in served)]

    def allows(self, tenant: Tenant, name: str) -> bool:
        """Whether the tenant may use the model of this name, by this name or its own."""
        return tenant.may_use(name) or tenant.may_use(self.aliases.get(name, name))

    def resolve(self, name: str, tenant: Tenant, task: str | None = "generate") -> str:
        """What workers call the model. task: what it is wanted for; None: any of ours will do.

        Raises ModelNotFound, NoWorker, and InvalidRequest where its workers have another task.
        """
        model = self.aliases.get(name, name)
        if not self.allows(tenant, name):
            raise ModelNotFound(name)
        if not self.fleet.knows(model):
            settled = self.fleet.ready and self.fleet.settled
            raise ModelNotFound(name) if settled else NoWorker("the workers are not all known yet")
        self._check_task(model, task)
        return model

    def _check_task(self, model: str, task: str | None) -> None:
        """Refuse what nobody of the model's live workers does. Raises InvalidRequest."""
        infos = [worker.info for worker in self.fleet.serving(model).values()]
        tasks = {info.task for info in infos if info.resumes or task == "generate"}
        if not infos or task in tasks or (task is None and tasks):
            return
        if not tasks:
            raise InvalidRequest(
                "The servers of this model are asked to generate only.", param="model"
            )
        does = " and ".join(_DOES.get(one, one) for one in sorted(tasks))
        raise InvalidRequest(f"This model {does}; it doesn't {task}.", param="model")

    def check_scores(self, model: str, field: str) -> None:
        """Refuse a field that tells of the prompt where only foreign servers are, which do not.

        Raises InvalidRequest.
        """
        serving = self.fleet.serving(model).values()
        if serving and not any(worker.info.resumes for worker in serving):
            raise InvalidRequest(
                f"Unsupported parameter: the servers of this model know no '{field}'.",
                param=field,
                code="unsupported_parameter",
            )
