import multiprocessing
import threading
from itertools import pairwise

import pytest
import torch

from spdnet.linalg import eigh, threads
from spdnet.linalg.threads import parallel_for
from tests.cases import random_spd

X = random_spd(9, 6)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def parts_of(batch):
    seen, lock = [], threading.Lock()

    def work(part):
        with lock:
            seen.append((part.start, part.stop, threading.current_thread().name))

    parallel_for(work, batch, cost=1e9)
    return sorted(seen)


@pytest.mark.parametrize("batch", [1, 2, 3, 30, 31])
def test_slices_cover_the_batch(two_threads, batch):
    seen = parts_of(batch)
    assert seen[0][0] == 0
    assert seen[-1][1] == batch
    assert all(a[1] == b[0] for a, b in pairwise(seen))


def test_single_thread_or_matrix_runs_in_calling_thread(two_threads):
    here = threading.current_thread().name
    assert [name for *_, name in parts_of(1)] == [here]
    torch.set_num_threads(1)
    assert [name for *_, name in parts_of(9)] == [here]


@pytest.fixture(params=["openmp", "pool"])
def kind(request, monkeypatch):
    """Run with OpenMP threads of torch, and with a thread pool."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("OpenMP of torch is not accessible")


def test_parts_run_concurrently(two_threads, kind):
    together = threading.Barrier(2, timeout=30)  # each waits for the other
    parallel_for(lambda part: together.wait(), 2, cost=1e9)


def test_workers_inherit_grad_and_inference_modes(two_threads, kind):
    target = torch.zeros(4)

    def work(part):
        assert not torch.is_grad_enabled()
        target[part] = 1

    parallel_for(work, 4, cost=1e9)
    with torch.inference_mode():
        target = torch.zeros(4)
        parallel_for(work, 4, cost=1e9)
        assert target.sum() == 4
        eigh(X)


def test_keyboard_interrupt_propagates(two_threads, kind):
    def interrupted(part):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parallel_for(interrupted, 8, cost=1e9)
    assert len(parts_of(8)) == 8


def test_little_work_runs_in_one_thread(two_threads):
    seen = []
    parallel_for(seen.append, 30, cost=10)
    assert seen == [slice(0, 30)]


def test_thread_count_is_unchanged(two_threads):
    s, U = eigh(X)
    assert torch.get_num_threads() == 2
    torch.testing.assert_close((U * s[:, None]) @ U.mT, X)
    found = []
    other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert found == [2]


def test_errors_propagate(two_threads):
    def fail(part):
        raise ArithmeticError(f"in {part.start}")

    with pytest.raises(ArithmeticError, match="in 0"):
        parallel_for(fail, 9, cost=1e9)


def test_eigh_gradient_and_no_grad_with_threads(two_threads):
    matrices = X.clone().requires_grad_()
    s, _ = eigh(matrices)
    (gradient,) = torch.autograd.grad(s.sum(), matrices)
    torch.testing.assert_close(gradient, torch.eye(6, dtype=torch.float64).expand(9, 6, 6))
    with torch.no_grad():
        assert not eigh(matrices)[0].requires_grad


def _in_child(queue):
    queue.put(eigh(X)[0].tolist())


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_eigh_works_after_fork(two_threads):
    expected = eigh(X)[0]  # the threads exist
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    got = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), expected)


def test_eigh_from_many_threads(two_threads):
    expected = eigh(X)[0]
    results = []

    def many():
        for _ in range(20):
            results.append(torch.allclose(eigh(X)[0], expected))

    callers = [threading.Thread(target=many) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert results == [True] * 80
