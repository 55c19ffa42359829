"""Places that several share, such as those of uploads: no holder has the last ones of the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Share:
    """Who holds how many places of one kind at this gateway."""

    def __init__(self, times: int = 1, n_gateways: int = 1) -> None:
        """Start without holders.

        Args:
            times: how many times the places that are left a holder may have. One that is alone leaves the half with 1,
                and a fifth with 4. Those who have a place keep it.
            n_gateways: at how many gateways places are held, if connections are spread evenly. Gateways share how many
                there are in all, and not whose, so a share is an estimate.
        """
        self._times = times
        self._n_gateways = n_gateways
        self._held: Counter[str] = Counter()

    def held(self, holder: str) -> int:
        """How many places a holder has here."""
        return self._held[holder]

    def total(self) -> int:
        """How many places are held here."""
        return self._held.total()

    def is_used(self, holder: str, n_left: int) -> bool:
        """Whether a holder has its share. An empty name has none: it stands for all who are not told apart."""
        return holder != "" and self._held[holder] * self._n_gateways >= self._times * n_left

    @contextmanager
    def one_more(self, holder: str) -> Iterator[None]:
        """Give a holder a place for as long as the context is open."""
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
