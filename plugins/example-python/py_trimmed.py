"""An aggregator called `py-trimmed`."""

from typing import Annotated

import fl
import numpy as np


@fl.aggregator("py-trimmed")
class PyTrimmed:
    """Averages each number after dropping the smallest and the largest of its values."""

    trim: Annotated[float, "Share of clients dropped at each end.", fl.between(ge=0, lt=0.5)] = 0.1

    claims = ["order_free", "weight_scale_free", "weight_free", "within_hull"]

    def aggregate(self, round, inbox):
        drop = int(self.trim * len(inbox))
        out = {}
        for name in inbox[0]:
            values = np.sort(np.stack([mail[name] for mail in inbox]), axis=0)[drop : len(inbox) - drop]
            out[name] = values.mean(axis=0, dtype=np.float64)
        return out
