// The checkpoints: how long, how large, how long a lane stood still, over time and as a table; those that failed.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { live } from "../live/live";
import { usePolled } from "../live/polled";
import { route } from "../live/route";
import { useStore } from "../live/store";
import type { Checkpoint, Checkpoints as Answer, StoreFigures } from "../api/types";
import { Chart } from "../charts/chart";
import { HistoryCharts } from "../charts/history";
import { bytes, iso, milliseconds, moment } from "../parts/format";
import { Missing, Notice } from "../parts/notice";
import { Section } from "../parts/section";
import { Fact, Value } from "../parts/value";

function Row({ one, newest }: { one: Checkpoint; newest: string | null }): JSX.Element {
    const at = `checkpoints[${one.id}]`;
    return (
        <tr data-id={one.id}>
            <th scope="row" class="code">
                <bdi>{one.id}</bdi>
                {one.id === newest ? <span class="flag good">newest</span> : null}
            </th>
            <td>
                <time dateTime={iso(one.time)} title={iso(one.time)} data-key={`${at}.time`} data-value={one.time}>
                    {moment(one.time)}
                </time>
            </td>
            <td>{one.kind}</td>
            <td>
                <Value k={`${at}.duration_ms`} v={one.duration_ms} as={milliseconds} />
            </td>
            <td>
                <Value k={`${at}.stop_ms`} v={one.stop_ms} as={milliseconds} />
            </td>
            <td>
                <Value k={`${at}.bytes`} v={one.bytes} as={bytes} />
            </td>
            <td>
                <Value k={`${at}.total_bytes`} v={one.total_bytes} as={bytes} />
            </td>
            <td>
                <Value k={`${at}.micro_batch`} v={one.micro_batch} />
            </td>
            <td class="code">
                <bdi>{one.parents.join(", ") || "none"}</bdi>
            </td>
        </tr>
    );
}

const HEADS = ["checkpoint", "time", "kind", "duration", "stop", "written", "in all", "micro-batch", "parents"];

function Ladder({ answer }: { answer: Answer }): JSX.Element {
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of checkpoints">
            <table class="columns">
                <thead>
                    <tr>
                        {HEADS.map((head) => (
                            <th key={head} scope="col">
                                {head}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {answer.checkpoints.map((one) => (
                        <Row key={one.id} one={one} newest={answer.newest} />
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function Charts({ answer }: { answer: Answer }): JSX.Element {
    const made = answer.checkpoints.map((one) => one.id).join();
    const [xs, duration, stop, written] = useMemo(() => {
        const rising = [...answer.checkpoints]
            .sort((a, b) => a.time - b.time)
            .filter((one, i, all) => one.time > (all[i - 1]?.time ?? 0));
        return [
            rising.map((one) => one.time / 1000),
            rising.map((one) => one.duration_ms),
            rising.map((one) => one.stop_ms),
            rising.map((one) => one.bytes),
        ];
    }, [made]) as [number[], (number | null)[], (number | null)[], (number | null)[]];
    const line = (name: string) => [{ name, key: `checkpoints.newest.${name}` }];
    const data = useMemo(
        () =>
            [
                [xs, duration],
                [xs, stop],
                [xs, written],
            ] as [number[], (number | null)[]][],
        [made],
    );
    return (
        <div class="charts">
            <Chart title="duration" lines={line("duration_ms")} data={data[0] ?? [[]]} as={milliseconds} />
            <Chart
                title="stop"
                unit="longest of a lane"
                lines={line("stop_ms")}
                data={data[1] ?? [[]]}
                as={milliseconds}
            />
            <Chart title="written" lines={line("bytes")} data={data[2] ?? [[]]} as={bytes} />
        </div>
    );
}

function Known({ answer }: { answer: Answer }): JSX.Element {
    const log = answer.order_log;
    return (
        <>
            {answer.failed.map((one) => (
                <Notice key={one.time} tone="bad">
                    Failed at{" "}
                    <time dateTime={iso(one.time)} title={iso(one.time)}>
                        {moment(one.time)}
                    </time>
                    : <bdi>{one.reason}</bdi>
                </Notice>
            ))}
            <dl class="facts wide">
                <Fact name="directory" k="checkpoints.directory" v={answer.directory} />
                <Fact name="newest" k="checkpoints.newest" v={answer.newest} />
                <Fact name="kept" k="checkpoints.keep" v={answer.keep} />
                <Fact name="order log, micro-batch" k="checkpoints.order_log.micro_batch" v={log?.micro_batch} />
                <Fact name="order log, position" k="checkpoints.order_log.position" v={log?.position} as={bytes} />
            </dl>
            {answer.checkpoints.length === 0 ? (
                <Notice>There is no checkpoint yet.</Notice>
            ) : (
                <Charts answer={answer} />
            )}
            {answer.checkpoints.length === 0 ? null : <Ladder answer={answer} />}
        </>
    );
}

/** What the object store has of the checkpoints. */
function Store({ store }: { store: StoreFigures }): JSX.Element {
    const waits = store.sinks_wait && store.checkpoints_behind > 0;
    return (
        <Section title="In the object store">
            <dl class="facts wide">
                <Fact name="checkpoints behind" k="figures.store.checkpoints_behind" v={store.checkpoints_behind} />
                <Fact name="behind" k="figures.store.behind_ms" v={store.behind_ms} as={milliseconds} />
                <Fact name="sent" k="figures.store.bytes" v={store.bytes} as={bytes} />
                <Fact name="tried again" k="figures.store.retries" v={store.retries} />
            </dl>
            {waits ? <Notice>Sinks give away what a checkpoint covers once the store has it.</Notice> : null}
        </Section>
    );
}

/** What tells the run to take a checkpoint; nothing of a job without them. A directory that a shell would split or read is not shown. */
function HowToTake({ directory }: { directory: string }): JSX.Element | null {
    if (directory === "") {
        return null;
    }
    return (
        <span class="muted">
            take one: <code>leat ctl checkpoint {/^[\w./][\w./-]*$/.test(directory) ? directory : "JOB"}</code>
        </span>
    );
}

export function Checkpoints(): JSX.Element {
    const answer = usePolled<Answer>("checkpoints", 2000);
    const figures = useStore(live, (now) => now.figures);
    const { span } = useStore(route, (now) => now);
    return (
        <>
            <Section title="Checkpoints of this process">
                <dl class="facts wide">
                    <Fact name="taken" k="figures.checkpoints" v={figures?.checkpoints} />
                    <Fact
                        name="last, written"
                        k="figures.checkpoint_bytes"
                        v={figures?.checkpoint_bytes}
                        as={bytes}
                    />
                    <Fact
                        name="last, stop"
                        k="figures.checkpoint_stop_ms"
                        v={figures?.checkpoint_stop_ms}
                        as={milliseconds}
                    />
                    <Fact
                        name="longest stop"
                        k="figures.checkpoint_stop_max_ms"
                        v={figures?.checkpoint_stop_max_ms}
                        as={milliseconds}
                    />
                </dl>
                <HistoryCharts key={span} part={null} span={span} only={["checkpoint_age", "checkpoint_stop"]} />
            </Section>
            {figures?.store ? <Store store={figures.store} /> : null}
            <Section
                title="On disk"
                aside={answer.is === "here" ? <HowToTake directory={answer.value.directory} /> : null}>
                <Missing answer={answer} what="The list of checkpoints" />
                {answer.is === "here" ? <Known answer={answer.value} /> : null}
            </Section>
        </>
    );
}
