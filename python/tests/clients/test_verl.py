"""verl's manager moves a model from an actor to rollouts that come and go, through the checkpoint engine "bascule"."""

import asyncio
import inspect
import time

import pytest
import torch

pytest.importorskip("verl")
import ray  # noqa: E402
import verl_workers  # noqa: E402
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry  # noqa: E402

import bascule  # noqa: E402
import bascule.verl  # noqa: E402

F32, BF16 = 0, 1
PATIENCE = 300  # seconds, longer than anything healthy takes on a busy machine


@pytest.fixture(scope="module")
def cluster():
    verl_workers.start_ray()
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def whole(cluster, checkpoint):
    """An actor of two ranks, whose rank 0 sends, and three rollouts, of which verl's manager has two."""
    run = verl_workers.Run(checkpoint, 2, 3, 2)
    yield run
    run.end()


@pytest.fixture(scope="module")
def sharded(cluster, checkpoint):
    """An actor of two ranks that both send, and one rollout."""
    run = verl_workers.Run(checkpoint, 2, 1, sharded=True)
    yield run
    run.end()


def updates(run, version, rollouts, dtype=F32):
    """Trains and updates: these rollouts, and no others, then have the weights."""
    before = run.kept()
    trained = run.actor.train(version)[0][dtype]
    run.manager.update_weights(global_steps=version)
    for i, kept in enumerate(run.kept()):
        assert kept == ((version, trained) if i in rollouts else before[i])


def fails(run, match):
    with pytest.raises(Exception, match=match):
        run.manager.update_weights(global_steps=99)


def test_replicas_come_and_go(whole):
    updates(whole, 1, {0, 1})
    updates(whole, 2, {0, 1})
    whole.manager.add_replicas(whole.replicas[2:])
    updates(whole, 3, {0, 1, 2})
    whole.manager.remove_replicas(whole.replicas[:1])
    for version in range(4, 8):  # more than there are slots
        updates(whole, version, {1, 2})


def test_an_export_that_fails_is_an_error_and_the_next_update_begins_anew(whole):
    before = whole.kept()
    whole.actor.fail(True)
    fails(whole, "the export failed")
    deadline = time.monotonic() + PATIENCE
    while not all(errors := whole.rollouts.error()[1:]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert all("the actor has gone, or its send failed" in error for error in errors)
    assert whole.kept() == before
    whole.actor.fail(False)
    updates(whole, 8, {1, 2})


def test_a_rollout_that_fails_is_an_error_at_both_ends(whole):
    whole.rollouts.get_into("fails")
    fails(whole, "out of memory|stopped reading the weights")
    assert "stopped reading the weights" in whole.actor.outcome()[0]
    whole.rollouts.get_into("")
    updates(whole, 9, {1, 2})


def test_each_rank_sends_its_shards(sharded):
    for version in (1, 2, 3):
        updates(sharded, version, {0}, BF16)  # verl exports shards in bf16


def test_a_rollout_that_dies_is_an_error_and_the_others_go_on(whole):
    ray.get(whole.rollouts.workers[1].get_into.remote("dies"))
    fails(whole, "died")
    whole.manager.remove_replicas(whole.replicas[1:2])
    trained = whole.actor.train(10)[0][F32]
    whole.manager.update_weights(global_steps=10)
    assert ray.get(whole.rollouts.workers[2].kept.remote()) == (10, trained)


def test_a_rollout_that_does_not_come_is_named(cluster, endpoint):
    engine = bascule.verl.BasculeCheckpointEngine(1 << 20, True, endpoint=endpoint, timeout=0.1)
    actor, _ = engine.build_topology(1, 1, [engine.prepare(), bascule.verl.Member("rollout-7")])
    engine.init_process_group(**{name: each[0] for name, each in actor.items()})
    with pytest.raises(bascule.BasculeTimeoutError, match="these rollouts did not join within 0.1 seconds: rollout-7"):
        asyncio.run(engine.send_weights([("weight", torch.zeros(2))]))


def test_the_signatures_are_those_of_verls_class():
    ours = CheckpointEngineRegistry.get("bascule")
    assert ours is bascule.verl.BasculeCheckpointEngine and not ours.__abstractmethods__
    for name in CheckpointEngine.__abstractmethods__ - {"init_process_group"}:  # whose arguments come from build_topology()
        expected, found = (list(inspect.signature(getattr(each, name)).parameters) for each in (CheckpointEngine, ours))
        assert expected == found, name
