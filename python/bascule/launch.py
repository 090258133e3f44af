"""Which rank this process is, as torchrun or Slurm's srun has started it."""

from __future__ import annotations

import os

from .errors import BasculeError

_LAUNCHERS = {"torchrun": ("RANK", "WORLD_SIZE"), "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")}


def launched_as() -> dict[str, int]:
    """{"rank": …, "ranks": …} of this process, from the variables of torchrun or else of srun; 0 of 1 without them.

    For whatever takes ranks: bascule.Receiver(endpoint, worker=…, group="tp", **bascule.launched_as()).

    Raises BasculeError: INVALID_ARGUMENT if one of the two variables is missing, or they do not fit together.
    """
    for launcher, names in _LAUNCHERS.items():
        found = {name: os.environ[name] for name in names if name in os.environ}
        # srun's processes and sbatch's script itself have a SLURM_PROCID; only the first have a number of tasks.
        if not found or (launcher == "srun" and len(found) == 1):
            continue
        texts = [found.get(name, "") for name in names]
        if not all(text.isascii() and text.isdigit() for text in texts) or int(texts[0]) >= int(texts[1]):
            raise BasculeError(f"{' and '.join(names)}: expected a rank and the number of ranks, as {launcher} sets them, found "
                               f"{' and '.join(map(repr, texts))}; set both or none", "INVALID_ARGUMENT")
        return {"rank": int(texts[0]), "ranks": int(texts[1])}
    return {"rank": 0, "ranks": 1}
