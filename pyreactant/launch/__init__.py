"""Start a program on every process of a run, supervise it, and report what broke it."""

from ._metrics import Metric as Metric
from ._metrics import read_metrics as read_metrics
from ._options import RunOptions as RunOptions
from ._report import RunReport as RunReport
from ._supervisor import supervise as supervise
