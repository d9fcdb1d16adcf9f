"""Single-flight locks: they save work, while the epoch protects data (O1).

Three thin layers: what a lock is (`SingleFlight`), where it is kept (`RedisSingleFlight`, `AlwaysYes`), and what a pass
does when nobody can tell (`may_run_unlocked`).
"""

from weft_tasks.locks.always_yes import AlwaysYes
from weft_tasks.locks.permissions import LockServerCheck
from weft_tasks.locks.policy import may_run_unlocked
from weft_tasks.locks.redis_single_flight import RedisSingleFlight
from weft_tasks.locks.server import LockServer
from weft_tasks.locks.single_flight import Acquisition, Flight, FlightOutcome, FlightState, Holding, SingleFlight
from weft_tasks.locks.times import FlightTimes
from weft_tasks.locks.token import Holder, mint_token

__all__ = [
    "Acquisition",
    "AlwaysYes",
    "Flight",
    "FlightOutcome",
    "FlightState",
    "FlightTimes",
    "Holder",
    "Holding",
    "LockServer",
    "LockServerCheck",
    "RedisSingleFlight",
    "SingleFlight",
    "may_run_unlocked",
    "mint_token",
]
