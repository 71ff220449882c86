// The answers of the control API, as far as the page reads them. Times are Unix milliseconds; null: not known.

export interface Counts {
    in: number;
    passed: number;
    filtered: number;
    late: number;
    duplicate: number;
    dead: number;
    absorbed: number;
    held: number;
    emitted: number;
    late_updates: number;
    null_keys: number;
    balanced: boolean;
}

export type Tag = "source" | "operator" | "learner" | "sink";
export type ReportValue = number | string | null;
export type Report = Record<string, ReportValue>;

export interface FiguresNode {
    name: string;
    part: string;
    tag: Tag;
    kind: string;
    label: string;
    note: string;
    stage: number;
    queue: number; // the micro-batches that wait for its stage, as a share of those allowed
    counts: Counts;
    report: { run: Report; window: Report };
    time: { watermark: string | null; behind_ms: number | null; newest?: string | null; held_by?: string | null };
    lane_share: number;
    error: string | null;
    warning: string | null; // that nearly all of its rows became dead letters
}

/* A `serve` beside the run: name, requests, and a count for each outcome. */
export type Served = { name: string; requests: number } & Record<string, number | string | null>;

/** How far the object store of checkpoints is behind. */
export interface StoreFigures {
    checkpoints_behind: number;
    behind_ms: number;
    bytes: number;
    retries: number;
    sinks_wait: boolean; // `commit: store`
}

/** One of several workers of a job. */
export interface WorkerFigures {
    worker: number;
    known: boolean; // its figures have come
    leads: boolean;
    address: string;
    lanes: number;
    partitions: number; // of sources, that it reads
    groups: number; // key groups that it has
    busy: number | null; // share of its lanes' time in the last second
    records_life: number;
    sent_bytes: number;
    sent_frames: number;
    received_bytes: number;
    round_trip_ms: number | null;
}

export interface ClusterFigures {
    incarnation: number;
    count: number;
    worker: number; // this one
    leader: number;
    is_part: boolean; // all figures are of this worker's part
    head: { epoch: number; age_ms: number | null } | null;
    workers: WorkerFigures[];
}

export interface Figures {
    job: string;
    fingerprint: string;
    state: "running" | "finished" | "stopped" | "failed";
    good: boolean;
    finished: boolean;
    records: number;
    records_life: number;
    seconds: number;
    lanes: number;
    micro_batches: number;
    checkpoints: number;
    checkpoint_epoch: number;
    checkpoint_bytes: number;
    checkpoint_stop_ms: number;
    checkpoint_stop_max_ms: number;
    checkpoint_age_ms: number | null;
    checkpoint_duration_ms: number | null;
    store?: StoreFigures; // of a job with an object store
    cluster?: ClusterFigures; // of a job with several workers
    share_done: number | null;
    input_ended: boolean;
    lane_time: Record<string, number>;
    bottleneck: string | null;
    bottleneck_node: string | null; // the part that the sentence is about
    watermark: { time: string | null; behind_ms: number | null; source: string; partition: string | null } | null;
    nodes: FiguresNode[];
    dead_examples: string[];
    warnings: string[];
    serves: Served[];
    now?: number;
}

export interface Box {
    x: number;
    y: number;
    width: number;
    height: number;
}

export interface PlanStage extends Box {
    title: string;
    instances: string;
    sort: "sources" | "keyed" | "single";
}

export interface PlanNode extends Box {
    part: string;
    name: string;
    tag: Tag;
    kind: string;
    label: string;
    settings: string;
    detail: string;
    stage: number;
    inputs: number[];
    has_state: boolean;
}

export interface PlanArrow {
    from: number;
    to: number;
    stream: string;
    mode: string;
    path: string;
    label: Box;
}

export interface Plan {
    job: string;
    fingerprint: string;
    lanes: number;
    width: number;
    height: number;
    stages: PlanStage[];
    nodes: PlanNode[];
    arrows: PlanArrow[];
}

export interface Hello {
    job: string;
    fingerprint: string;
    life: string;
    now: number;
}

export interface LogLine {
    n: number;
    time: number;
    level: "info" | "warning" | "error";
    text: string;
    repeated: number;
    left_out?: number; // it stands for so many lines, which /api/v1/log has
}

export interface LogTail {
    next: number;
    lines: LogLine[];
}

export const SPANS = ["1h", "12h", "30d"] as const;
export type Span = (typeof SPANS)[number];

export interface History {
    node: string | null;
    span: Span;
    resolution_s: number;
    figures: { name: string; unit: string; rolls_up: string }[];
    ticks: number[];
    times: number[];
    gaps: number;
    values: (number | null)[][];
}

export interface Checkpoint {
    id: string;
    time: number;
    bytes: number;
    total_bytes: number;
    duration_ms: number | null;
    stop_ms: number | null;
    parents: string[];
    kind: "full" | "delta" | "savepoint";
    micro_batch: number | null;
}

export interface Checkpoints {
    directory: string;
    newest: string | null;
    checkpoints: Checkpoint[];
    failed: { time: number; reason: string }[];
    order_log: { micro_batch: number; position: number } | null;
    keep: number;
}

export interface DeadLetter {
    n: number;
    time: number;
    part: string;
    place: string;
    reason: string;
    record: string;
    record_bytes: number;
}

export interface DeadLetters {
    total: number;
    letters: DeadLetter[];
}

export interface Column {
    name: string;
    type: string;
    rows: number;
    nulls: number;
    null_share_recent: number | null;
    null_share_before: number | null;
    is_sketched: boolean; // false: only its nulls are counted
    distinct: number | null;
    measure: "value" | "length" | null; // what min, max, mean and histogram are of
    min: number | null;
    max: number | null;
    mean: number | null;
    mean_recent: number | null;
    mean_before: number | null;
    not_finite: number | null;
    histogram: { from: number; to: number; count: number }[];
    top: { value: string; share: number }[];
}

export interface Columns {
    nodes: { part: string; rows: number; columns: Column[] }[];
}

export interface StateAnswer {
    state: string;
    columns: string[];
    micro_batch: number;
    keys: { key: unknown[]; state: unknown }[];
}

export interface ModelRow {
    learner: string;
    field: string;
    value: string;
    micro_batch: number;
    row: unknown;
}
