"""cause.py REPORT: print job and cause in a run's report.json; nothing if there is none."""

import json
import sys
from pathlib import Path

try:
    report = json.loads(Path(sys.argv[1]).read_text())
    print(report["job"], report["cause"])
except (OSError, ValueError, KeyError):
    pass
