// The first five seconds at night: is it going, how far behind is it, what holds it back.
import type { JSX } from "preact";
import { hasEnded, type Live } from "../../live/live";
import { changed, href } from "../../live/route";
import type { Figures } from "../../api/types";
import { bytes, milliseconds, seconds, share, short, whole } from "../../parts/format";
import { Icon } from "../../parts/icon";
import { Value } from "../../parts/value";

function Going({ now, figures }: { now: Live; figures: Figures }): JSX.Element {
    const isStill = now.rate === 0 && !hasEnded(figures);
    return (
        <div class={"answer" + (isStill ? " warning" : "")}>
            <h2>Going</h2>
            <p class="big">
                <Value k="derived.rate" v={now.rate} as={short} unit="records/s" />
            </p>
            <p class="muted">
                {isStill ? (
                    <>
                        <Icon name="warning" /> no record in the last second;{" "}
                    </>
                ) : null}
                <Value k="figures.records_life" v={figures.records_life} as={whole} unit="records" /> in{" "}
                <Value k="figures.seconds" v={figures.seconds} as={seconds} />
                {figures.share_done !== null ? (
                    <>
                        ; <Value k="figures.share_done" v={figures.share_done} as={share} /> of the input is done
                    </>
                ) : null}
            </p>
        </div>
    );
}

function Behind({ now, figures }: { now: Live; figures: Figures }): JSX.Element {
    const mark = figures.watermark;
    const holder = figures.nodes.find((node) => node.tag === "source" && node.name === mark?.source);
    const lags = [...now.facts.values()].flatMap((one) => (one.lagSeconds === null ? [] : [one]));
    const last = lags.sort((a, b) => (b.lagSeconds ?? 0) - (a.lagSeconds ?? 0))[0];
    return (
        <div class="answer">
            <h2>Behind</h2>
            <p class="big">
                <Value k="figures.watermark.behind_ms" v={mark?.behind_ms} as={milliseconds} what="ms" />
            </p>
            <p class="muted">
                {mark !== null && holder !== undefined ? (
                    <>
                        watermark, held by{" "}
                        <a
                            href={changed({ part: holder.part })}
                            data-key="figures.watermark.source"
                            data-value={mark.source}>
                            <bdi>{mark.source}</bdi>
                        </a>
                        {mark.partition ? (
                            <>
                                , <bdi>{mark.partition}</bdi>
                            </>
                        ) : null}
                    </>
                ) : (
                    "no watermark yet"
                )}
                {last !== undefined ? (
                    <>
                        ; source lag{" "}
                        <Value
                            k={`figures.nodes[${last.node.part}].report.run.lag_seconds`}
                            v={last.lagSeconds}
                            as={seconds}
                        />
                    </>
                ) : null}
            </p>
        </div>
    );
}

/* The sentence of the server, with the node that it names as a link. */
function Cause({ figures }: { figures: Figures }): JSX.Element {
    const part = figures.bottleneck_node;
    const text = figures.bottleneck;
    if (text === null)
        return (
            <span class="cause">
                <Icon name="good" />
                Nothing: no node and no wait stands out
            </span>
        );
    const at = part === null ? -1 : text.indexOf("`" + part + "`");
    return (
        <span class="cause">
            <Icon name="slow" />
            <span>
                {part === null || at < 0 ? (
                    <bdi>{text}</bdi>
                ) : (
                    <>
                        {text.slice(0, at)}
                        <a class="code" href={changed({ part })}>
                            <bdi>{part}</bdi>
                        </a>
                        {text.slice(at + part.length + 2)}
                    </>
                )}
            </span>
        </span>
    );
}

function Back({ figures }: { figures: Figures }): JSX.Element {
    const waits = figures.bottleneck_node === null && /wait for records$/.test(figures.bottleneck ?? ""); // it keeps up
    const busy = (figures.lane_time["process"] ?? 0) + (figures.lane_time["decode"] ?? 0);
    const blocked = Object.entries(figures.lane_time).reduce(
        (sum, [name, v]) => sum + (name.startsWith("behind") ? v : 0),
        0,
    );
    return (
        <div class={"answer wide" + (figures.bottleneck === null || waits ? "" : " slow")}>
            <h2>Held back by</h2>
            <p class="sentence" data-key="figures.bottleneck" data-value={figures.bottleneck ?? "null"}>
                <Cause figures={figures} />
            </p>
            <p class="muted">
                lanes <Value k="derived.lanes.busy" v={busy} as={share} /> busy,{" "}
                <Value k="derived.lanes.blocked" v={blocked} as={share} /> blocked,{" "}
                <Value k="figures.lane_time.wait_for_records" v={figures.lane_time["wait_for_records"]} as={share} />{" "}
                wait for records
            </p>
        </div>
    );
}

export function Summary({ now, figures }: { now: Live; figures: Figures }): JSX.Element {
    const dead = figures.nodes.reduce((sum, node) => sum + node.counts.dead, 0);
    const late = figures.nodes.reduce((sum, node) => sum + node.counts.late, 0);
    return (
        <>
            <div class="answers">
                <Going now={now} figures={figures} />
                <Behind now={now} figures={figures} />
                <Back figures={figures} />
            </div>
            <dl class="strip">
                <div>
                    <dt>micro-batches</dt>
                    <dd>
                        <Value k="figures.micro_batches" v={figures.micro_batches} />
                    </dd>
                </div>
                <div>
                    <dt>records, all lives</dt>
                    <dd>
                        <Value k="figures.records" v={figures.records} />
                    </dd>
                </div>
                <div>
                    <dt>
                        <a href={href({ view: "checkpoints" })}>checkpoints</a>
                    </dt>
                    <dd>
                        <Value k="figures.checkpoints" v={figures.checkpoints} />, last{" "}
                        <Value k="figures.checkpoint_bytes" v={figures.checkpoint_bytes} as={bytes} />, longest stop{" "}
                        <Value
                            k="figures.checkpoint_stop_max_ms"
                            v={figures.checkpoint_stop_max_ms}
                            as={milliseconds}
                        />
                    </dd>
                </div>
                <div class={dead > 0 ? "warning" : ""}>
                    <dt>
                        <a href={href({ view: "data" })}>dead rows</a>
                    </dt>
                    <dd>
                        {dead > 0 ? <Icon name="warning" /> : null}
                        <Value k="derived.dead" v={dead} />
                    </dd>
                </div>
                <div>
                    <dt>late rows</dt>
                    <dd>
                        <Value k="derived.late" v={late} />
                    </dd>
                </div>
            </dl>
        </>
    );
}
