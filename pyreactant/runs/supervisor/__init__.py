"""Start a program on every process of a run, supervise it, and report what broke it."""

from .metrics import Metric as Metric
from .metrics import read_metrics as read_metrics
from .options import RunOptions as RunOptions
from .report import RunReport as RunReport
from .supervisor import supervise as supervise
