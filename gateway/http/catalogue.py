"""The names of models: which there are now, who may use which, and what workers call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import InvalidRequest, ModelNotFound, NoWorker
from gateway.fleet.workers import Fleet
from gateway.tenancy.tenants import Tenant


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

    def resolve(self, name: str, tenant: Tenant) -> str:
        """What workers call the model. Raises ModelNotFound, NoWorker."""
        model = self.aliases.get(name, name)
        if not self.allows(tenant, name):
            raise ModelNotFound(name)
        if not self.fleet.knows(model):
            settled = self.fleet.ready and self.fleet.settled
            raise ModelNotFound(name) if settled else NoWorker("the workers are not all known yet")
        return model

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
