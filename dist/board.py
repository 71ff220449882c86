#!/usr/bin/env python3
"""Makes dist/grafana.json, a board for Grafana 9 and later: one line a panel.

    dist/board.py [--check]

--check: changes nothing, and fails where the file would be another.
"""

import json
import os
import sys

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grafana.json")
COLUMNS, WIDTH, HEIGHT = 24, 8, 8
FROM_ZERO = ("cps", "reqps", "percentunit", "bytes", "bool")
SOURCE = {"type": "prometheus", "uid": "${source}"}

# Row: panels of (title, unit, what it shows, [(query, legend)]). S: the series of the chosen jobs and instances, R: the
# range of a rate.
ROWS = {
    "Rows": [
        ("Records read", "cps", "Records of all sources, a second.",
         [("sum by (job, instance) (rate(leat_run_records_total{S}[R]))", "{{instance}}")]),
        ("Rows by node", "cps", "Rows that come into each node, a second.",
         [('sum by (node) (rate(leat_node_rows_total{S,rows="in"}[R]))', "{{node}}")]),
        ("Rows that do not go on", "cps", "Filtered, late, duplicate and dead rows, a second. Dead: see the dead letters.",
         [('sum by (node, rows) (rate(leat_node_rows_total{S,rows=~"filtered|late|duplicate|dead"}[R])) > 0',
           "{{node}} {{rows}}")]),
    ],
    "Time": [
        ("Where the lanes' time goes", "percentunit",
         "Shares of all lanes' time. behind_...: a lane has no work because of what comes behind the sources.",
         [("avg by (on) (rate(leat_lane_seconds_total{S}[R]))", "{{on}}")]),
        ("Time by node, on its fullest lane", "percentunit", "Near 100 %: the node keeps the run from going faster.",
         [("max by (node) (rate(leat_node_seconds_total{S}[R]))", "{{node}}")]),
        ("Queues", "percentunit", "Micro-batches that wait for each node's stage, as a share of those allowed.",
         [("max by (node) (leat_node_queue_ratio{S})", "{{node}}")]),
    ],
    "Event time": [
        ("Watermarks behind the newest event", "s", "How long windows and joins wait, by node.",
         [("max by (node) (-(leat_node_watermark_timestamp_seconds{S}"
           " - on (job, instance) group_left () leat_run_newest_event_timestamp_seconds{S}))", "{{node}}")]),
        ("Newest event behind the clock", "s", "How old the newest event is. A run over old files is years behind.",
         [("time() - leat_run_newest_event_timestamp_seconds{S}", "{{instance}}")]),
        ("Watermark's pace", "none", "Seconds of event time in a second: 1 is as fast as life, 0 stands still.",
         [("deriv(leat_run_watermark_timestamp_seconds{S}[R])", "{{instance}}")]),
    ],
    "Kafka": [
        ("Lag: records", "short", "Kafka: records of the topics that are not read yet.",
         [("sum by (node) (leat_source_lag_records{S})", "{{node}}")]),
        ("Lag: time", "s", "Kafka: how far the worst partition is behind.",
         [("max by (node) (leat_source_lag_seconds{S})", "{{node}}")]),
        ("Brokers and sinks", "short", "Kafka: round trips (99 %, in seconds), records that wait to be sent, the outbox's share.",
         [("max by (node) (leat_broker_round_trip_p99_seconds{S})", "{{node}} round trip"),
          ("sum by (node) (leat_sink_waiting_records{S})", "{{node}} waiting"),
          ("max by (node) (leat_sink_outbox_ratio{S})", "{{node}} outbox")]),
    ],
    "Checkpoints": [
        ("Age", "s", "Time since the last checkpoint, beside the time between checkpoints that the job asks for.",
         [("leat_checkpoint_age_seconds{S}", "{{instance}} age"),
          ("leat_checkpoint_interval_seconds{S}", "{{instance}} asked for")]),
        ("Duration", "s", "The last checkpoint, and how long a lane stood still for it.",
         [("leat_checkpoint_duration_seconds{S}", "{{instance}} whole"),
          ("leat_checkpoint_stop_seconds{S}", "{{instance}} lanes stood still")]),
        ("Size", "bytes", "Bytes written by the last checkpoint.", [("leat_checkpoint_bytes{S}", "{{instance}}")]),
    ],
    "Learning": [
        ("Logloss", "none", "Progressive, over the last window of metrics.",
         [('leat_learner_logloss{S,over="window"}', "{{node}}")]),
        ("AUC", "none", "Progressive, over the last window of metrics.", [('leat_learner_auc{S,over="window"}', "{{node}}")]),
        ("Calibration", "none", "Mean prediction divided by mean label: 1 is right.",
         [('leat_learner_calibration{S,over="window"}', "{{node}}")]),
        ("RMSE", "none", "Over the last window of metrics.", [('leat_learner_rmse{S,over="window"}', "{{node}}")]),
        ("Hits", "percentunit", "Learners that choose items: events of the last window whose item was among the best k.",
         [('leat_learner_hr{S,over="window"}', "{{node}}, k = {{k}}")]),
        ("NDCG, MRR", "none", "Learners that choose items: the higher the item stood, the more a hit counts.",
         [('leat_learner_ndcg{S,over="window"}', "{{node}} NDCG@{{k}}"),
          ('leat_learner_mrr{S,over="window"}', "{{node}} MRR@{{k}}")]),
        ("Coverage", "percentunit", "Learners that choose items: share of the items that were among the best k for some event.",
         [('leat_learner_coverage{S,over="window"}', "{{node}}, k = {{k}}")]),
        ("Loss of a step", "none", "Learners that choose items: mean over the targets of the last step.",
         [("max by (node) (leat_learner_step_loss{S})", "{{node}}")]),
        ("Items", "short", "That learners choose from.", [("max by (node) (leat_learner_items{S})", "{{node}}")]),
        ("Examples", "cps", "Learned and rejected, a second. Rejected: something is not finite, or a label out of range.",
         [('sum by (node) (rate(leat_node_rows_total{S,rows="absorbed"}[R])'
           ' and on (job, instance, node) leat_learner_examples{S,over="run"})', "{{node}} learned"),
          ("sum by (node) (rate(leat_learner_rejected_total{S}[R]))", "{{node}} rejected")]),
        ("Rows of tables", "short", "In memory and on disk; those on disk alone; those that expired, a second.",
         [("max by (node) (leat_learner_rows{S})", "{{node}}"),
          ("max by (node) (leat_learner_rows_cold{S})", "{{node}} on disk alone"),
          ("sum by (node) (rate(leat_learner_rows_expired_total{S}[R]))", "{{node}} expired a second")]),
        ("Frozen", "bool", "1: the learner does not learn now.", [("max by (node) (leat_learner_frozen{S})", "{{node}}")]),
    ],
    "State and sinks": [
        ("Entries", "short", "Entries of keyed state in memory.", [("sum by (node) (leat_state_entries{S})", "{{node}}")]),
        ("Memory", "bytes", "Bytes of keyed state in memory.", [("sum by (node) (leat_state_bytes{S})", "{{node}}")]),
        ("Look-ups", "ops", "Look-ups a second, and entries that had to be loaded from disk.",
         [("sum by (node) (rate(leat_state_lookups_total{S}[R]))", "{{node}}"),
          ("sum by (node) (rate(leat_state_loaded_total{S}[R]))", "{{node}} loaded")]),
        ("Rows to sinks", "cps", "Rows a second.",
         [('sum by (node) (rate(leat_node_rows_total{S,rows="in"}[R]) and on (job, instance, node) leat_sink_full{S})',
           "{{node}}")]),
        ("Full sinks, nodes in trouble", "bool", "1: a sink takes no rows now; a node reports an error that may persist.",
         [("max by (node) (leat_sink_full{S})", "{{node}} full"), ("max by (node) (leat_node_trouble{S})", "{{node}} trouble")]),
        ("Held rows", "short", "Rows that wait in a node, in joins for example.",
         [("max by (node) (leat_node_held_rows{S})", "{{node}}")]),
    ],
    "Serving": [
        ("Requests", "reqps", "By what became of them, a second.",
         [("sum by (model, outcome) (rate(leat_serve_requests_total{S}[R]))", "{{model}} {{outcome}}")]),
        ("Latency, 99 %", "s", "By phase; buckets of powers of two.",
         [("histogram_quantile(0.99, sum by (model, phase, le) (rate(leat_serve_seconds_bucket{S}[R])))",
           "{{model}} {{phase}}")]),
        ("Latency, mean", "s", "By phase.",
         [("sum by (model, phase) (rate(leat_serve_seconds_sum{S}[R])) / sum by (model, phase)"
           " (rate(leat_serve_seconds_count{S}[R]))", "{{model}} {{phase}}")]),
        ("Staleness", "s", "Age of what answers; -1: none yet.",
         [("max by (model) (leat_serve_staleness_seconds{S})", "{{model}}")]),
        ("Rows, batches", "cps", "Rows answered and batches computed, a second; rows in the queue.",
         [('sum by (model) (rate(leat_serve_rows_total{S,outcome="answered"}[R]))', "{{model}} rows"),
          ("sum by (model) (rate(leat_serve_batches_total{S}[R]))", "{{model}} batches"),
          ("max by (model) (leat_serve_waiting_rows{S})", "{{model}} waiting")]),
        ("Following jobs", "cps", "Rows and cuts of models applied, a second; live: 1.",
         [("sum by (job, instance) (rate(leat_follow_rows_total{S}[R]))", "{{instance}} rows"),
          ("sum by (job, instance) (rate(leat_follow_cuts_total{S}[R]))", "{{instance}} cuts"),
          ("max by (job, instance) (leat_follow_live{S})", "{{instance}} live")]),
        ("Connections", "short", "Open; and requests that were refused or named no model, a second.",
         [("sum by (instance) (leat_net_connections_open{S})", "{{instance}} open"),
          ("sum by (instance) (rate(leat_net_refused_total{S}[R]))", "{{instance}} refused"),
          ("sum by (instance) (rate(leat_serve_unknown_models_total{S}[R]))", "{{instance}} no such model")]),
        ("Log of what was served", "cps", "Lines written and lost, a second; lines that wait.",
         [("sum by (model, outcome) (rate(leat_serve_log_lines_total{S}[R]))", "{{model}} {{outcome}}"),
          ("max by (model) (leat_serve_log_lines_waiting{S})", "{{model}} waiting")]),
    ],
}


def query_of(text):
    return text.replace("{S", '{job=~"$job",instance=~"$instance"').replace("[R]", "[$__rate_interval]")


def variable(name, label):
    return {"name": name, "type": "query", "datasource": SOURCE, "query": {"query": f"label_values(leat_build_info, {label})"},
            "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def panel(number, place, title, unit, what, queries):
    return {"id": number, "type": "timeseries", "title": title, "description": what, "datasource": SOURCE, "gridPos": place,
            "fieldConfig": {"defaults": {"unit": unit, **({"min": 0} if unit in FROM_ZERO else {})}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": query_of(query), "legendFormat": legend}
                        for i, (query, legend) in enumerate(queries)]}


def board():
    panels, y, number = [], 0, 1
    for row, contents in ROWS.items():
        panels.append({"id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        number, y = number + 1, y + 1
        for i, one in enumerate(contents):
            place = {"x": i * WIDTH % COLUMNS, "y": y + i * WIDTH // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(panel(number, place, *one))
            number += 1
        y += -(-len(contents) * WIDTH // COLUMNS) * HEIGHT
    return {"title": "leat", "uid": "leat", "tags": ["leat"], "schemaVersion": 38, "version": 1, "refresh": "10s",
            "timezone": "browser", "time": {"from": "now-1h", "to": "now"}, "panels": panels,
            "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                                    variable("job", "job"), variable("instance", "instance")]}}


def main():
    text = json.dumps(board(), indent=1) + "\n"
    if sys.argv[1:] == ["--check"]:
        with open(PATH, encoding="utf-8") as file:
            is_same = file.read() == text
        print(f"{'ok' if is_same else 'not ok'} - dist/grafana.json is what dist/board.py makes")
        return 0 if is_same else 1
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
