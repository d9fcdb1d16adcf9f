"""What a lock server must allow, tried out once at start so that no tick finds out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from redis import Redis
from redis.exceptions import NoPermissionError, NoScriptError
from redis.lock import Lock

from weft_tasks.errors import LockUnavailable, SettingsError
from weft_tasks.locks.server import NO_ANSWER, reason_of

_KEEPS_LOCKS = "noeviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockServerCheck:
    """What a usable lock server told about itself."""

    maxmemory_policy: str | None
    """None if the user may not read it."""

    warnings: tuple[str, ...] = ()


def check_lock_server(client: Redis, scratch_prefix: str) -> LockServerCheck:
    """Try every command that the locks use, each by itself, on a scratch key of its own that lives for a second.

    Raises SettingsError naming all that the Redis user may not run, and LockUnavailable if the server did not answer or
    refuses writes for another reason.
    """
    key = f"{scratch_prefix}check:{uuid.uuid4().hex}"
    refused = {command: answer for command, probe in _PROBES.items() if (answer := _refusal(probe, client, key))}
    if refused:
        raise SettingsError(
            f"the Redis user of the single-flight locks lacks permissions: {', '.join(refused)} "
            f"(the server: {'; '.join(dict.fromkeys(refused.values()))}). What they need: "
            f"ACL SETUSER <user> ~{scratch_prefix}* {' '.join(_GRANTS)}"
        )
    policy = _maxmemory_policy(client)
    return LockServerCheck(maxmemory_policy=policy, warnings=_warnings(policy))


def _refusal(probe: Callable[[Redis, str], object], client: Redis, key: str) -> str | None:
    try:
        probe(client, key)
    except NoScriptError:
        return None  # It looked for the script, so it may run one.
    except NoPermissionError as error:
        return reason_of(error)
    except NO_ANSWER as error:
        raise LockUnavailable(f"the lock server cannot be used now: {reason_of(error)}") from error
    return None


# The scripts of redis-py's Lock run GET, PTTL, PEXPIRE and DEL, with the same user's permissions.
_PROBES: Mapping[str, Callable[[Redis, str], object]] = MappingProxyType(
    {
        "SET": lambda client, key: client.set(key, "", nx=True, px=1000),
        "GET": lambda client, key: client.get(key),
        "PTTL": lambda client, key: client.pttl(key),
        "PEXPIRE": lambda client, key: client.pexpire(key, 1000),
        "DEL": lambda client, key: client.delete(key),
        "EVALSHA": lambda client, key: client.evalsha("0" * 40, 1, key),
        "SCRIPT LOAD": lambda client, key: client.script_load(Lock.LUA_EXTEND_SCRIPT),
    }
)
_GRANTS = tuple(f"+{command.lower().replace(' ', '|')}" for command in _PROBES)


def _maxmemory_policy(client: Redis) -> str | None:
    try:
        return str(client.info("memory")["maxmemory_policy"])
    except (*NO_ANSWER, KeyError):
        return None


def _warnings(policy: str | None) -> tuple[str, ...]:
    if policy in (None, _KEEPS_LOCKS):
        return ()
    return (
        f"maxmemory-policy of the lock server is {policy}: Redis may drop locks and queued messages when memory runs "
        f"out; set {_KEEPS_LOCKS}",
    )
