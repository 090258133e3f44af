"""Bascule moves weights from a trainer to its generation engines, in whole versions that all verify and acknowledge.

A trainer has a Sender, each engine a Receiver, both at one endpoint ("shm:///run/user/1000/grpo"):

    sender = bascule.Sender(endpoint)               receiver = bascule.Receiver(endpoint, worker="engine-0")
    sender.register_model(model)                    while serving:
    sender.wait_for_workers(1)                          if receiver.commit().changed:   # at a token boundary
    ...                                                     weights = receiver.weights()
    report = sender.send()  # every engine serves it

docs/guide/python.md covers frameworks, docs/design/architecture.md the guarantees.
"""

from . import _interpreter  # noqa: F401  first: it refuses subinterpreters
from . import _core
from .endpoint_folder import EndpointFolder
from .errors import BasculeError, BasculeTimeoutError
from .launch import launched_as
from .names import hf_names
from .progress import Progress, scalars
from .receiver import Part, Receiver, Slice, Target
from .sender import Sender
from .status import observe
from .tensors import TensorSpec

Flip = _core.Flip
Observation = _core.Observation
ReceiverStatus = _core.ReceiverStatus
SendReport = _core.SendReport
StageSeconds = _core.StageSeconds
UpdateReport = _core.UpdateReport
WorkerReport = _core.WorkerReport

__version__ = ".".join(map(str, _core.version))
__all__ = [
    "BasculeError", "BasculeTimeoutError", "EndpointFolder", "Flip", "Observation", "Part", "Progress", "Receiver",
    "ReceiverStatus", "SendReport", "Sender", "Slice", "StageSeconds", "Target", "TensorSpec", "UpdateReport",
    "WorkerReport", "hf_names", "launched_as", "observe", "scalars",
]
