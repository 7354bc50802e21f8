"""cause.py REPORT: print the cause in a run's report.json; nothing if there is none."""

import json
import sys
from pathlib import Path

try:
    print(json.loads(Path(sys.argv[1]).read_text())["cause"])
except (OSError, ValueError, KeyError):
    pass
