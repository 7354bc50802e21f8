"""A barrier of JAX's service: who comes late is no lost process, as on Reactant."""

import pytest

from pyreactant.arrays.runtimes.jax import distributed
from pyreactant.base.errors import DeadlineError, PeerLostError

LATE = """DEADLINE_EXCEEDED: Barrier timed out. Id: pyreactant/b/1::0. This usually happens \
because a task triggered the barrier too early or too slowly.
# of tasks that reached the barrier: 1/2."""
LOST = """INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 1 heartbeat \
timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly.
RPC: /xla.coordination.CoordinationService/Barrier"""


class Service:
    """JAX's client, with the words of jax 0.10.2."""

    def __init__(self, words: str) -> None:
        self.words = words

    def wait_at_barrier(self, name: str, milliseconds: int) -> None:
        raise RuntimeError(self.words)


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (LATE, DeadlineError, "not every process came to barrier 'b' within 8 s: DEADLINE_EXC"),
        (LOST, PeerLostError, "barrier 'b' cannot finish, because a process was lost: INTERNAL"),
    ],
)
def test_what_a_barrier_raises(
    words: str, kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "client", lambda: Service(words))
    with pytest.raises(DeadlineError, match=message) as caught:
        distributed.wait_at_barrier("b", 8)
    assert type(caught.value) is kind
