"""verl's workers on a CPU, in Ray's processes: its own FSDP2 engine as the actor, and rollouts without an inference engine.

verl has no platform for CPUs, so a process imports this module before it uses verl.
"""

import contextlib
import os
from pathlib import Path

import torch
from verl.plugin.platform import platform_base, platform_manager


@platform_manager.PlatformRegistry.register(platform="cpu")
class PlatformCPU(platform_base.PlatformBase):
    """Enough of one for FSDP2, verl's worker groups and their checkpoint engines."""

    device_name = vendor_name = "cpu"
    device_module = torch.cpu

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index): ...

    def synchronize(self, device_index=None): ...

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings): ...

    def empty_cache(self): ...

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "NO_VISIBLE_DEVICES"

    def nvtx_range(self, msg):
        return contextlib.nullcontext()

    def profiler_start(self): ...

    def profiler_stop(self): ...

    def ray_resource_name(self):
        return "CPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


platform_manager.set_platform(PlatformCPU())
os.environ["VERL_ENGINE_DEVICE"] = "cuda"  # verl registers its engine for GPUs only

import ray  # noqa: E402
import tiny  # noqa: E402
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker  # noqa: E402
from verl.single_controller.base import Worker  # noqa: E402
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.utils.distributed import initialize_global_process_group_ray  # noqa: E402
from verl.utils.import_utils import import_external_libs  # noqa: E402
from verl.workers.config import (CheckpointEngineConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig,  # noqa: E402
                                 RolloutConfig)
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker, TrainingWorkerConfig  # noqa: E402
from verl.workers.rollout import BaseRollout, RolloutReplica  # noqa: E402

ALL = {"dispatch_mode": Dispatch.ONE_TO_ALL}


def start_ray(*folders, **options):
    """Starts Ray, whose processes find this module, and modules in these folders."""
    paths = [str(Path(__file__).parent), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.environ["RAY_worker_niceness"] = "0"  # else Ray's workers starve during a build
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, **options)


class Actor(ActorRolloutRefWorker):
    """verl's worker with its checkpoint engine, made without the whole configuration of a run."""

    def __init__(self, training, checkpoint_engine):
        Worker.__init__(self)
        initialize_global_process_group_ray(backend="cpu:gloo")  # TrainingWorker would name the device cpu twice
        self.actor = TrainingWorker(training)
        self.actor.reset()
        self.config = type("Config", (), {"rollout": RolloutConfig(name="vllm", checkpoint_engine=checkpoint_engine)})
        import_external_libs(checkpoint_engine.custom_backend_module)
        backend = checkpoint_engine.backend
        self.checkpoint_engine = CheckpointEngineRegistry.new(
            backend, is_master=torch.distributed.get_rank() == 0, bucket_size=1 << 20,
            **checkpoint_engine.engine_kwargs.get(backend, {}))
        self.fails, self.sent = False, None
        send_weights = self.checkpoint_engine.send_weights

        async def send(weights, **options):
            try:
                self.sent = await send_weights(self._failing(weights) if self.fails else weights, **options)
            except Exception as error:
                self.sent = str(error)
                raise

        self.checkpoint_engine.send_weights = send

    def _failing(self, weights):
        for i, named in enumerate(weights):
            if i == 3:
                raise RuntimeError("the export failed")
            yield named

    @register(**ALL)
    def outcome(self):
        """What the last send returned, or its error."""
        return self.sent

    @register(**ALL)
    def train(self, version):
        """Gives the model weights of this version; returns a digest of each tensor of the whole model, in f32 and in bf16."""
        module = self.actor.engine.module
        with torch.no_grad():
            generator = torch.Generator().manual_seed(version)
            for parameter in module.parameters():
                whole = 0.3 * torch.randn(parameter.shape, generator=generator)
                parameter.copy_(torch.distributed.tensor.distribute_tensor(whole, parameter.device_mesh, parameter.placements))
            wholes = {name: each.full_tensor() if hasattr(each, "full_tensor") else each
                      for name, each in module.state_dict().items()}
        return [{name: tiny.digest(each.to(dtype)) for name, each in wholes.items()}
                for dtype in (torch.float32, torch.bfloat16)]

    @register(**ALL)
    def fail(self, fails):
        self.fails = fails


class Keeping(BaseRollout):
    """Stands for an inference engine: keeps a digest of each tensor. If told, it fails or ends at the third one."""

    def __init__(self, config, model_config):
        super().__init__(config, model_config, device_mesh=None)
        self.kept, self.step, self.trouble, self.error = {}, None, "", ""

    async def resume(self, tags): ...

    async def release(self): ...

    async def update_weights(self, weights, global_steps=None, **options):
        kept, self.error = {}, ""
        try:
            async for name, tensor in weights:
                kept[name] = tiny.digest(tensor)
                if len(kept) == 3 and self.trouble == "fails":
                    raise RuntimeError("out of memory")
                if len(kept) == 3 and self.trouble == "dies":
                    os._exit(1)
        except Exception as error:
            self.error = str(error)
            raise
        self.kept, self.step = kept, global_steps


class Copying(Keeping):
    """Copies each tensor into its own, as an inference engine does."""

    async def update_weights(self, weights, global_steps=None, **options):
        async for name, tensor in weights:
            if name not in self.kept:
                self.kept[name] = torch.empty_like(tensor)
            self.kept[name].copy_(tensor)


class Rollout(CheckpointEngineWorker):
    def __init__(self, rollout_config, model_config, adapter):
        super().__init__(rollout_config, model_config, adapter(rollout_config, model_config))

    @register(**ALL)
    def kept(self):
        """The global step, and a digest of each tensor."""
        return self.server_adapter.step, self.server_adapter.kept

    @register(**ALL)
    def error(self):
        """Of the last update; empty: none, or not yet."""
        return self.server_adapter.error

    @register(**ALL)
    def get_into(self, trouble):
        self.server_adapter.trouble = trouble


class Replica(RolloutReplica):
    async def launch_servers(self): ...

    def of(self, group):
        self.workers = group.workers[self.replica_rank * self.world_size:][:self.world_size]
        return self


class Run:
    """An actor of `ranks` ranks, and `rollouts` rollouts; verl's manager updates the first `updated` of them.

    keeps: rollouts keep digests, not tensors. options: of the checkpoint engine.
    """

    def __init__(self, checkpoint, ranks, rollouts, updated=None, *, backend="bascule", module="bascule.verl", keeps=True,
                 **options):
        engine = CheckpointEngineConfig(backend=backend, custom_backend_module=module, engine_kwargs={backend: options})
        model = HFModelConfig(path=checkpoint, use_remove_padding=False, override_config={"attn_implementation": "eager"})
        training = TrainingWorkerConfig(
            model_type="language_model", model_config=model, checkpoint_config=None,
            engine_config=FSDPEngineConfig(strategy="fsdp2", fsdp_size=ranks, use_torch_compile=False),
            optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=10))
        rollout = RolloutConfig(name="vllm", tensor_model_parallel_size=1, checkpoint_engine=engine)
        self.groups = []
        self.actor = self._group(ranks, Actor, training=training, checkpoint_engine=engine)
        self.rollouts = self._group(rollouts, Rollout, rollout_config=rollout, model_config=model,
                                    adapter=Keeping if keeps else Copying)
        self.replicas = [Replica(i, rollout, model).of(self.rollouts) for i in range(rollouts)]
        self.manager = CheckpointEngineManager(engine, self.actor, self.replicas[:updated])

    def _group(self, size, cls, **arguments):
        pool = RayResourcePool([size], use_gpu=False, max_colocate_count=1)
        made = RayClassWithInitArgs(cls=ray.remote(cls), **arguments)
        self.groups.append(RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu", use_gpu=False))
        return self.groups[-1]

    def kept(self):
        """Of each rollout, the global step and a digest of each tensor."""
        return ray.get([each.kept.remote() for each in self.rollouts.workers])

    def end(self):
        for group in self.groups:
            for worker in group.workers:
                ray.kill(worker)
            for placement in group.resource_pool.pgs:
                ray.util.remove_placement_group(placement)
