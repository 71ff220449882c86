#!/usr/bin/env python3
"""Makes docs/metrics.md: what is said here, and the tables of the program.

    docs/metrics.py LEAT [--check]

--check: changes nothing, and fails where the file would be another.
"""

import os
import subprocess
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.md")

TOP = """<!-- Made by docs/metrics.py from the tables of the program; `leat help metrics` has them, too. -->
# Metrics

`leat run JOB --control HOST:PORT` and `leat serve` answer `GET /metrics` with their figures: in Prometheus' text format,
and as OpenMetrics 1.0 to a client that prefers it (`Accept: application/openmetrics-text`). Prometheus does.

```yaml
# prometheus.yml
scrape_configs:
  - job_name: leat                # leat run JOB --control 127.0.0.1:8081
    static_configs: [{targets: ["127.0.0.1:8081"]}]
    # --control-token-file FILE: Prometheus needs the same token
    # authorization: {credentials_file: /etc/prometheus/leat.token}
  - job_name: leat-serve          # leat serve JOB --listen 127.0.0.1:8000
    static_configs: [{targets: ["127.0.0.1:8000"]}]
```

- A counter falls only when the process begins anew. Those of the process (`leat_run_records_total`,
  `leat_lane_seconds_total`, `leat_net_*`) begin at 0 then. Those of nodes go on from the checkpoint: behind a crash they
  fall to its numbers, which `rate` takes for a beginning at 0, so that it shows one peak.
- A series whose value is not known is left out: the watermark before the first event, the AUC of a learner without
  labels of both kinds.
- `node` is the node's name in checkpoints (`features/dedup`); `kind` is what the job calls it. Of learners, `over` is
  `run` or `window`: all examples, or those of the last window of metrics.
- While a run is being restored, `/metrics` has only the metrics of both, and `/readyz` answers 503.
- In OpenMetrics, a counter's family is named without `_total`.

[dist](../dist/README.md) has a board for Grafana and rules for alerts; they expect scrape jobs whose names begin with
`leat`.
"""


def main():
    leat, *more = sys.argv[1:]
    tables = subprocess.run([leat, "help", "metrics", "--markdown"], capture_output=True, text=True, check=True).stdout
    text = f"{TOP}\n{tables}"
    if more == ["--check"]:
        with open(PATH, encoding="utf-8") as file:
            is_same = file.read() == text
        print(f"{'ok' if is_same else 'not ok'} - docs/metrics.md is what docs/metrics.py makes")
        return 0 if is_same else 1
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
