"""pytest-xdist's groups, for which a run also ends if a worker dies."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduling(LoadGroupScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """`--dist loadgroup`, where what a dead worker had finished is not given out again.

    pytest-xdist 3.8 also gives its finished groups to the others, as work without a test, and then
    waits forever for one of them to be done. It also repeats the test that killed the worker, which
    may kill the next one. A new worker that gets one test waits with it for the test after it, and
    pytest-xdist does not send one.
    """

    def _reschedule(self, node: WorkerController) -> None:
        """Send a worker more groups, until it has two tests or none is left."""
        super()._reschedule(node)
        while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            if node.shutting_down:
                return
            self._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Give out what a worker has not done; return the test that it was running."""
        work = self.assigned_work.pop(node)
        waiting = ((tests, test) for tests in work.values() for test in tests if not tests[test])
        group, running = next(waiting, (None, None))
        if group is None or running is None:
            return None
        group[running] = True
        left = {name: tests for name, tests in work.items() if not all(tests.values())}
        self.workqueue.update(left)
        for other in self.assigned_work:
            if other in self.registered_collections:
                self._reschedule(other)
        return running


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """What pytest-xdist asks for its way to distribute tests."""
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None
