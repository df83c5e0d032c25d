"""serviceaccount-token-controller: fills Secrets of type kubernetes.io/service-account-token, and deletes those of
service accounts that are gone.

Only metadata of Secrets is kept: those with the annotation of an account are read when they or the account change.
"""

import base64
from typing import Any, ClassVar

from podwire.controllers.context import Context
from podwire.controllers.kinds import SECRETS, SERVICE_ACCOUNTS
from podwire.controllers.metadata import ACCOUNT_NAME, PartialObject, resource_of
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

TYPE = "kubernetes.io/service-account-token"
ACCOUNT_UID = "kubernetes.io/service-account.uid"


def names_account(secret: Object, account: Object | None) -> bool:
    """Returns whether an account exists and is the one of a Secret: of another uid, it is another one."""
    if account is None:
        return False
    uid = (secret["metadata"].get("annotations") or {}).get(ACCOUNT_UID)
    return not uid or uid == account["metadata"]["uid"]


def missing_data(secret: Object, root_ca: str) -> set[str]:
    """Returns the keys of a Secret that have to be written; a token that is there stays."""
    data = secret.get("data") or {}
    missing = {key for key in ("namespace", "token") if not data.get(key)}
    if root_ca and data.get("ca.crt") != _encoded(root_ca):
        missing.add("ca.crt")
    return missing


class AccountTokens:
    name: ClassVar[str] = "serviceaccount-token-controller"
    resources: ClassVar = frozenset(map(resource_of, (SECRETS, SERVICE_ACCOUNTS)))

    def __init__(self, context: Context) -> None:
        self._api = context.api
        self._graph = context.graph
        self._root_ca = context.root_ca
        self._signer = context.token_signer
        self._queue: WorkQueue[str] = WorkQueue("account-tokens", self._reconcile)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or not self._graph.complete:
            return
        if latest.resource == resource_of(SECRETS):
            if now is not None and now.account:
                self._queue.add(now.uid)
        elif before is None or now is None:
            for secret in self._graph.listed(SECRETS, latest.namespace):
                if secret.account == latest.name:
                    self._queue.add(secret.uid)

    def on_synced(self) -> None:
        for secret in self._graph.everywhere(SECRETS):
            if secret.account:
                self._queue.add(secret.uid)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    async def _reconcile(self, uid: str) -> None:
        seen = self._graph.node(uid)
        secret = await self._get(SECRETS, seen.name, seen.namespace) if seen is not None else None
        if secret is None or secret["metadata"]["uid"] != uid or secret.get("type") != TYPE:
            return
        name, namespace = secret["metadata"]["annotations"][ACCOUNT_NAME], secret["metadata"]["namespace"]
        account = await self._get(SERVICE_ACCOUNTS, name, namespace)
        if account is None or not names_account(secret, account):
            await self._delete(secret)
        elif not secret["metadata"].get("deletionTimestamp"):
            await self._fill(secret, account)

    async def _fill(self, secret: Object, account: Object) -> None:
        missing = missing_data(secret, self._root_ca)
        if not missing or self._signer is None:
            return
        meta = secret["metadata"]
        name, namespace, uid = account["metadata"]["name"], meta["namespace"], account["metadata"]["uid"]
        values: dict[str, Any] = {"ca.crt": self._root_ca, "namespace": namespace}
        if "token" in missing:
            values["token"] = self._signer.sign(namespace, name, uid, meta["name"])
        marks = {**(meta.get("annotations") or {}), ACCOUNT_NAME: name, ACCOUNT_UID: uid}
        data = {**(secret.get("data") or {}), **{key: _encoded(values[key]) for key in missing}}
        try:
            await self._api.replace({**secret, "metadata": {**meta, "annotations": marks}, "data": data})
        except ApiError as error:
            if error.code != 404:
                raise

    async def _delete(self, secret: Object) -> None:
        meta = secret["metadata"]
        try:
            await self._api.delete(SECRETS, meta["name"], meta["namespace"], uid=meta["uid"])
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _get(self, kind: Kind, name: str, namespace: str) -> Object | None:
        try:
            return await self._api.get(kind, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
