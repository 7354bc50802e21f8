"""cause.py REPORT: the cause in a run's report.json; nothing where there is none."""

import json
import sys
from pathlib import Path

try:
    print(json.loads(Path(sys.argv[1]).read_text())["cause"])
except (OSError, ValueError, KeyError):
    pass
