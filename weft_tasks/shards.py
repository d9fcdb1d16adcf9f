"""Shards: parts of a store that passes handle side by side.

Every workflow is in one of 1,024 buckets, by its id, and shard k of n has the k-th of n ranges of them. What belongs to
a shard is only listed by it: each write keeps the conditions of its claim, so shards that overlap, because two
processes disagree about their number, do nothing twice.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from weft_tasks.errors import InvalidInput

BUCKETS: Final = 1024
MAX_SHARDS: Final = 64


def bucket_of(workflow_id: str) -> int:
    """The same in every process and release: it is kept in rows."""
    # An id that is no UTF-8 is refused at the edge; here it only must not raise something else.
    return zlib.crc32(workflow_id.encode(errors="surrogatepass")) % BUCKETS


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `of`, counted from 0. Raises InvalidInput if there is no such shard."""

    index: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if type(self.index) is not int or type(self.of) is not int or not 0 <= self.index < self.of <= MAX_SHARDS:
            raise InvalidInput("shard", f"{self.index!r} of {self.of!r} is none: there are at most {MAX_SHARDS}")

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole store."""
        return self.of == 1

    @property
    def buckets(self) -> range:
        return range(self.index * BUCKETS // self.of, (self.index + 1) * BUCKETS // self.of)

    def has(self, workflow_id: str) -> bool:
        return bucket_of(workflow_id) in self.buckets

    def named(self, name: str) -> str:
        """What is called `name` for the whole store, for this shard: `name[2/4]`."""
        return name if self.is_whole else f"{name}[{self.index}/{self.of}]"


WHOLE: Final = Shard()


def shards_of(count: int) -> tuple[Shard, ...]:
    """All of them; together they are the whole store."""
    return tuple(Shard(index, count) for index in range(count))
