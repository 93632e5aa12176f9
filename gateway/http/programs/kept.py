"""How much text a session has, so that what goes on from it can be reserved."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 16_384


class KeptTexts:
    """Sessions whose programs ended at this gateway. The longest unused give way beyond `most`.

    Of another gateway's nothing is known here: they are charged in the end. A tenant that names a
    session of another one's learns nothing of it.
    """

    def __init__(self, most: int = _MOST):
        self._most = most
        self._num_bytes: OrderedDict[tuple[bytes, str], int] = OrderedDict()

    def note(self, namespace: bytes, word: str, num_bytes: int) -> None:
        """A session of the namespace has so much text now."""
        self._num_bytes[namespace, word] = num_bytes
        self._num_bytes.move_to_end((namespace, word))
        while len(self._num_bytes) > self._most:
            self._num_bytes.popitem(last=False)

    def num_bytes(self, namespace: bytes, word: str) -> int:
        """How much a session of the namespace has, 0 where that isn't known."""
        return self._num_bytes.get((namespace, word), 0)
