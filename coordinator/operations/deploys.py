"""`HomeDeploys`: the deploys of the code of a home's agents."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from chronicle.lazy_exports import lazy_module
from coordinator.operations import objects
from coordinator.operations.contents import HomeContents

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from coordinator.access import audit
    from coordinator.operations import uploads
    from coordinator.registry import deploying
    from coordinator.service import client as service
    from podium.code import deploys, transfer
else:  # Few calls need them.
    audit = lazy_module("coordinator.access.audit")
    uploads = lazy_module("coordinator.operations.uploads")
    deploying = lazy_module("coordinator.registry.deploying")
    service = lazy_module("coordinator.service.client")
    deploys = lazy_module("podium.code.deploys")
    transfer = lazy_module("podium.code.transfer")

__all__ = ["Deployer", "HomeDeploys"]


@dataclass(frozen=True, slots=True)
class Deployer:
    """Who deploys, as the audit record has it."""

    who: str
    tenant: str | None = None
    client: str | None = None

    @classmethod
    def this_user(cls) -> Deployer:
        """Return the user of this process."""
        return cls(f"cli uid {os.getuid()}")


class HomeDeploys(HomeContents):
    """The deploys of a home's code. A deploy is durable before a running service is told of it, which uses it at once.

    Each is a line of the audit record, also one that is refused. All raise `Conflict` if another deploy is made at the
    same moment.
    """

    async def deploys(self) -> objects.DeployList:
        """Return all deploys, the current one last."""
        found = await self._stores.read_journal(deploys.deploys)
        return objects.DeployList(items=tuple(objects.Deploy(**each.to_wire()) for each in found))

    async def deploy(self, content: AsyncIterable[bytes], deployer: Deployer | None = None) -> objects.Deployed:
        """Make a bundle the current one; nothing of it is stored before all of it is checked.

        Args:
            content: as `podium.code.transfer.sent` yields it.
            deployer: by default the user of this process.

        Raises:
            InvalidInput: it is no bundle, a damaged one, or one whose classes cannot be used.
            UploadTooLarge: it is longer than a bundle may be.
        """

        def stored(_: JournalStore, blobs: BlobStore, file: BinaryIO) -> BlobId:
            deploying.check_deployable(transfer.read_sent(file))
            file.seek(0)
            return transfer.store_sent(file, blobs).bundle

        async def received() -> tuple[BlobId, None]:
            async with uploads.received(content, transfer.MAX_SENT_BYTES) as (file, _):
                return await self._stores.write(stored, file), None

        return await self._made(received, deployer)

    async def deploy_previous(self, deployer: Deployer | None = None) -> objects.Deployed:
        """Make the bundle of the deploy before the current one current.

        Raises:
            NotFound: there is none.
        """

        async def previous() -> tuple[BlobId | None, int]:
            before = await self._stores.read_journal(deploys.previous_deploy)
            return before.bundle, before.number + 1

        return await self._made(previous, deployer)

    async def withdraw_deploy(self, deployer: Deployer | None = None) -> objects.Deployed:
        """Have agents run the files of the service's machine again."""

        async def none() -> tuple[None, None]:
            return None, None

        return await self._made(none, deployer)

    async def _made(
        self, choose: Callable[[], Awaitable[tuple[BlobId | None, int | None]]], deployer: Deployer | None
    ) -> objects.Deployed:
        """Make a bundle current.

        Args:
            choose: returns the bundle, and the number of the current deploy if it was chosen by that.
        """
        by = deployer or Deployer.this_user()
        record = audit.Audit(self._stores.home.logs, self._clock)
        with record.noting(by.who, "deploy", tenant=by.tenant, client=by.client) as line:
            bundle, after = await choose()
            now_ms = self._clock.now_ms()
            made = await self._stores.write(
                lambda store, blobs: deploys.make_deploy(store, blobs, bundle, by.who, now_ms, after=after)
            )
            line.update(number=made.number, bundle=made.bundle)
        reloaded = await self._used(made.number)
        return objects.Deployed(**made.to_wire(), service=reloaded is not None, reloaded=tuple(reloaded or ()))

    async def _used(self, number: int) -> list[str] | None:
        """Have a running service use the current deploy; return the agents that move, ``None`` if none runs."""
        try:
            return await (await self._link.client()).redeploy()
        except service.ServiceRefused as error:
            text = f"deploy {number} is current, but not used yet: {error}; podium reload has the service use it"
            raise service.ServiceRefused(error.kind, text) from error
        except service.ServiceError:
            return None
