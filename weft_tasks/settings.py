"""The settings: what an application may say as `weft_*` keys in its Celery configuration.

Settings that cannot work do not construct; the message names the settings and both values. Durations are given in
seconds (or as timedelta) and kept as timedelta. Everything that follows from the renew interval follows it by itself:
change `weft_renew_interval` alone, and grace, heartbeat, deadlines and lock life move along.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Self, cast

from weft_tasks.errors import SettingsError
from weft_tasks.shards import MAX_SHARDS

PREFIX = "weft_"
MILLISECOND = timedelta(milliseconds=1)
NEVER = timedelta.max
"""As a duration: not at all."""
DERIVED = cast("timedelta", None)
"""The default of a duration that follows from the others; no Settings keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One coherent set. Field `claim_ttl` is the Celery setting `weft_claim_ttl`, and so on.

    Raises SettingsError for a set that cannot work.
    """

    database_url: str = field(default="sqlite:///weft.sqlite3", repr=False)
    """SQLAlchemy URL of the store: `sqlite:///FILE` or `postgresql+psycopg://USER:PASSWORD@HOST/NAME`."""
    redis_url: str | None = field(default=None, repr=False)
    """URL of the Redis for the single-flight locks. Default: the broker, which must be Redis then."""

    claim_ttl: timedelta = timedelta(seconds=30)
    """T: how long a claim is good after its engine's last heartbeat. At least 3R."""
    renew_interval: timedelta = timedelta(seconds=5)
    """R: how often beat fires each pass."""
    grace: timedelta = DERIVED
    """G: added to T before silence means death. Default 2R. At least R."""
    heartbeat_interval: timedelta = DERIVED
    """How often an engine proves that it lives. Default R/2, which is also the most it may be."""
    pass_deadline: timedelta = DERIVED
    """When a pass stops, and the longest life of its lock. Default 3R, but T - R at most. Below T."""
    lock_ttl: timedelta = DERIVED
    """How soon the lock of a killed pass is free. Default 2R, but the pass deadline at most, as for any value."""
    statement_timeout: timedelta = DERIVED
    """The longest that a statement of the suite may take. Default R, but 2 s at most. Below G."""
    connect_timeout: timedelta = timedelta(seconds=2)
    """The longest that a connection to the database may take to open. PostgreSQL takes whole seconds, at least 2."""

    pool_width: int = 16
    """Threads of a pass. Below `weft_database_pool_size`."""
    database_pool_size: int = 20
    """Connections to the database that a process keeps at most. Above `weft_pool_width`."""
    shards: int = 1
    """Shards of the store, each with ticks, locks and marks of its own for every pass, so that the passes of a very
    large store run side by side. At most 64."""
    takeover_tries: int = 5
    """Tries at one candidate within a reclaim pass."""
    begun_turn_limit: int = 5
    """Turns begun in a row without a commit before a workflow is set aside (O11)."""
    turn_tries: int = 5
    """Tries at a turn whose handler raises, before the workflow has failed. `Retry` sets it for one type."""
    turn_retry_delay: timedelta = timedelta(seconds=1)
    """Before the second try; doubles with each further one. At most `weft_turn_retry_delay_max`."""
    turn_retry_delay_max: timedelta = timedelta(minutes=5)
    """The longest of these delays."""
    cancel_bound: timedelta = timedelta(seconds=30)
    """How long the last turn of a cancelled workflow may take, from the cancel on."""
    history_retention: timedelta = timedelta(days=30)
    """How long a running workflow keeps its turns, its consumed signals with their keys, and its answered updates, and
    how long changes of ownership are kept."""
    retention: timedelta = NEVER
    """How long an ended workflow is kept before the reclaim pass purges it, 1,000 a pass. Default: until somebody calls
    `weft.purge`."""
    call_resend_after: timedelta = timedelta(hours=1)
    """How long after a called task was sent, its countdown not counted, it is taken for lost and sent again if neither
    its reply nor its outcome is known: longer than it may take, retries and queueing included. NEVER leaves it out."""
    payload_limit: int = 256 * 1024
    """Bytes of JSON that one state, input, result, signal, update or answer may have."""
    publish_timeout: timedelta = timedelta(seconds=1)
    """How long a message after a commit may wait for the broker; the row is the truth, so it may fail."""
    health_folder: str | None = None
    """Where an engine keeps the files `alive` and `ready`, for probes. One folder for each engine. Default: none."""
    idle_tick_event_interval: timedelta = timedelta(minutes=5)
    """How often a worker tells of a pass that did nothing, in a task event such as Flower shows."""

    def __post_init__(self) -> None:
        for name, derived in self._derivations():
            if getattr(self, name) is DERIVED:
                object.__setattr__(self, name, derived)
        problems = tuple(_out_of_range(self)) or tuple(_contradictions(self))
        if problems:
            raise SettingsError("; ".join(problems))

    def _derivations(self) -> Iterator[tuple[str, timedelta]]:
        r = self.renew_interval
        deadline = min(3 * r, max(self.claim_ttl - r, MILLISECOND))
        yield "grace", 2 * r
        yield "heartbeat_interval", r / 2
        yield "pass_deadline", deadline
        yield "lock_ttl", min(2 * r, deadline)
        yield "statement_timeout", min(r, timedelta(seconds=2))

    @classmethod
    def from_mapping(cls, configuration: Mapping[str, Any]) -> Self:
        """From the `weft_*` keys of a Celery configuration; a key nobody knows is refused, so no typo is silent."""
        given = {
            key.removeprefix(PREFIX): configuration[key]
            for key in configuration
            if key.startswith(PREFIX) and configuration[key] is not None
        }
        known = {setting.name: setting.type for setting in fields(cls)}
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise SettingsError("; ".join(_unknown_setting(name, tuple(known)) for name in unknown))
        converted: dict[str, Any] = {name: _converted(name, str(known[name]), value) for name, value in given.items()}
        return cls(**converted)

    @property
    def silence_limit(self) -> timedelta:
        """T + G of witnessed time: an engine silent for longer is dead (O4)."""
        return self.claim_ttl + self.grace

    @property
    def deaf_after(self) -> int:
        """(T + G)/R unanswered dispatches in a row: the engine is deaf (O12)."""
        return -(-self.silence_limit // self.renew_interval)


def _unknown_setting(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
    return f"unknown setting {PREFIX}{name}{hint}"


def _converted(name: str, declared: str, value: object) -> object:
    if "timedelta" in declared:
        return _duration(name, value)
    if declared.startswith("int"):
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingsError(f"{PREFIX}{name} must be a whole number, not {value!r}")
        return value
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{PREFIX}{name} must be a non-empty string, not {type(value).__name__}")
    return value


def _duration(name: str, value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{PREFIX}{name} must be seconds (a number) or a timedelta, not {value!r}")
    try:
        return timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise SettingsError(f"{PREFIX}{name} cannot be {value!r} seconds") from None


def _out_of_range(s: Settings) -> Iterator[str]:
    for setting in fields(s):
        value = getattr(s, setting.name)
        if isinstance(value, timedelta) and value < MILLISECOND:
            yield f"{PREFIX}{setting.name} must be at least 1 ms, not {_seconds(value)}"
        elif isinstance(value, int) and value < 1:
            yield f"{PREFIX}{setting.name} must be at least 1, not {value}"


def _contradictions(s: Settings) -> Iterator[str]:
    """Every pair that cannot work together, with the names and both values."""
    yield from _at_least(s, "claim_ttl", 3, "renew_interval")
    yield from _at_least(s, "grace", 1, "renew_interval")
    yield from _at_most(s, "heartbeat_interval", "renew_interval", share=2)
    yield from _below(s, "pass_deadline", "claim_ttl")
    yield from _at_most(s, "lock_ttl", "pass_deadline")
    yield from _below(s, "statement_timeout", "grace")
    yield from _at_most(s, "turn_retry_delay", "turn_retry_delay_max")
    if s.shards > MAX_SHARDS:
        yield f"weft_shards ({s.shards}) must be at most {MAX_SHARDS}"
    if s.database_pool_size <= s.pool_width:
        yield (
            f"weft_database_pool_size ({s.database_pool_size}) must be larger than weft_pool_width ({s.pool_width}), "
            "or the threads of a pass wait for each other's connections"
        )
    one_try = s.heartbeat_interval + s.connect_timeout + s.statement_timeout
    if one_try >= s.silence_limit:
        yield (
            f"weft_heartbeat_interval + weft_connect_timeout + weft_statement_timeout ({_seconds(one_try)}) "
            f"must be less than weft_claim_ttl + weft_grace ({_seconds(s.silence_limit)}), "
            "or one unanswered heartbeat loses every claim"
        )


def _at_least(s: Settings, name: str, factor: int, other: str) -> Iterator[str]:
    if getattr(s, name) < factor * getattr(s, other):
        times = f"{factor} x " if factor > 1 else ""
        yield f"{_shown(s, name)} must be at least {times}{_shown(s, other)}"


def _at_most(s: Settings, name: str, other: str, *, share: int = 1) -> Iterator[str]:
    if getattr(s, name) * share > getattr(s, other):
        part = f"1/{share} of " if share > 1 else ""
        yield f"{_shown(s, name)} must be at most {part}{_shown(s, other)}"


def _below(s: Settings, name: str, other: str) -> Iterator[str]:
    if getattr(s, name) >= getattr(s, other):
        yield f"{_shown(s, name)} must be less than {_shown(s, other)}"


def _shown(s: Settings, name: str) -> str:
    return f"{PREFIX}{name} ({_seconds(getattr(s, name))})"


def _seconds(value: timedelta) -> str:
    return f"{value.total_seconds():g} s"
