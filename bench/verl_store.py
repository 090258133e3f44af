"""The simplest checkpoint engine of verl for an actor and rollouts in two groups: pickled tensors in Ray's object store."""

import pickle

import ray
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry


@ray.remote
class Mailbox:
    def __init__(self):
        self.reference = None

    def give(self, reference):
        self.reference = reference

    def take(self):
        return self.reference


class ObjectStore(CheckpointEngine):
    def __init__(self, bucket_size, is_master=False):
        self.is_master, self.mailbox = is_master, None

    def prepare(self):
        if self.is_master and self.mailbox is None:
            self.mailbox = Mailbox.options(num_cpus=0).remote()
        return self.mailbox

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        return {"mailbox": metadata[:1] * actor_wg_world_size}, {"mailbox": metadata[:1] * rollout_world_size}

    def init_process_group(self, mailbox):
        self.mailbox = mailbox

    async def send_weights(self, weights, global_steps=None):
        if self.is_master:
            reference = ray.put(pickle.dumps(list(weights), protocol=5))
            await self.mailbox.give.remote([reference])
        else:
            for _ in weights:  # takes part in the gathers
                pass

    async def receive_weights(self, global_steps=None):
        while (reference := await self.mailbox.take.remote()) is None:
            pass
        for named in pickle.loads(await reference[0]):
            yield named

    def finalize(self):
        if self.is_master:
            ray.get(self.mailbox.give.remote(None))


CheckpointEngineRegistry.register("store")(ObjectStore)
