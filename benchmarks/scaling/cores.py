"""A machine in virtual time: processor time that is given out to whoever asks, in the order of asking."""

from __future__ import annotations

from collections import defaultdict

STEP_S = 0.1


class Cores:
    """So many cores, of which `reserved` are always busy with something else. Work is given what is left of each tenth
    of a second by those that asked before, which is what takes the last of them as long as sharing would."""

    def __init__(self, count: float, reserved: float = 0.0) -> None:
        if count <= reserved:
            raise ValueError(f"{count:g} cores are too few: {reserved:.2f} are busy already")
        self._free = count - reserved
        self._reserved = reserved
        self._used: defaultdict[int, float] = defaultdict(float)

    def serve(self, begun: float, work: float, quickest: float) -> float:
        """When `work` seconds of processor time are done that begin at `begun` and take `quickest` at least, because
        whoever asks for them does not ask faster."""
        if work <= 0:
            return begun + quickest
        at, left, rate = begun, work, work / quickest if quickest > 0 else self._free
        while left > 1e-9:
            step = int(at / STEP_S + 1e-9)
            lasts = (step + 1) * STEP_S - at
            taken = max(0.0, min(left, rate * lasts, self._free * STEP_S - self._used[step]))
            self._used[step] += taken
            left -= taken
            at = at + taken / min(rate, self._free) if left <= 1e-9 else (step + 1) * STEP_S
        return max(at, begun + quickest)

    def busy(self, second: int) -> float:
        """How many cores were busy in a second, on average."""
        steps = round(1 / STEP_S)
        return self._reserved + sum(self._used[step] for step in range(second * steps, (second + 1) * steps))
