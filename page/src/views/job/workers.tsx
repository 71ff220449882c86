// The workers of a job on several machines: who they are, what each has of the job, and what its links carry.
import type { JSX } from "preact";
import type { ClusterFigures, WorkerFigures } from "../../api/types";
import { bytes, milliseconds, share, short } from "../../parts/format";
import { Notice } from "../../parts/notice";
import { Section } from "../../parts/section";
import { Fact, Value } from "../../parts/value";

const HEADS = [
    "worker",
    "lanes",
    "busy",
    "partitions",
    "key groups",
    "records",
    "sent",
    "frames",
    "received",
    "round trip",
];

/* at: where it is in the figures. */
function Row({ one, at }: { one: WorkerFigures; at: string }): JSX.Element {
    return (
        <tr data-worker={one.worker}>
            <th scope="row">
                <Value k={`${at}.worker`} v={one.worker} />{" "}
                <span class="code">
                    <bdi>{one.address}</bdi>
                </span>
                {one.leads ? <span class="flag good">leads</span> : null}
                {one.known ? null : <span class="flag">has sent no figures yet</span>}
            </th>
            <td>
                <Value k={`${at}.lanes`} v={one.lanes} />
            </td>
            <td>
                <Value k={`${at}.busy`} v={one.busy} as={share} />
            </td>
            <td>
                <Value k={`${at}.partitions`} v={one.partitions} />
            </td>
            <td>
                <Value k={`${at}.groups`} v={one.groups} />
            </td>
            <td>
                <Value k={`${at}.records_life`} v={one.records_life} as={short} />
            </td>
            <td>
                <Value k={`${at}.sent_bytes`} v={one.sent_bytes} as={bytes} />
            </td>
            <td>
                <Value k={`${at}.sent_frames`} v={one.sent_frames} as={short} />
            </td>
            <td>
                <Value k={`${at}.received_bytes`} v={one.received_bytes} as={bytes} />
            </td>
            <td>
                <Value k={`${at}.round_trip_ms`} v={one.round_trip_ms} as={milliseconds} />
            </td>
        </tr>
    );
}

export function Workers({ cluster }: { cluster: ClusterFigures }): JSX.Element {
    return (
        <Section title="Workers">
            {cluster.is_part ? (
                <Notice>
                    This is one worker of {cluster.count}: all figures here are of its part alone. The page of worker{" "}
                    {cluster.leader}, which leads, shows the whole job.
                </Notice>
            ) : null}
            <dl class="facts wide">
                <Fact name="workers" k="figures.cluster.count" v={cluster.count} />
                <Fact name="incarnation" k="figures.cluster.incarnation" v={cluster.incarnation} />
                {cluster.head === null ? (
                    <Fact name="head" k="figures.cluster.head" v={null} />
                ) : (
                    <>
                        <Fact name="head" k="figures.cluster.head.epoch" v={cluster.head.epoch} />
                        <Fact
                            name="since"
                            k="figures.cluster.head.age_ms"
                            v={cluster.head.age_ms}
                            as={milliseconds}
                        />
                    </>
                )}
            </dl>
            <div class="scroll" tabIndex={0} role="region" aria-label="Table of workers">
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
                        {cluster.workers.map((one, i) => (
                            <Row key={one.worker} one={one} at={`figures.cluster.workers[${i}]`} />
                        ))}
                    </tbody>
                </table>
            </div>
        </Section>
    );
}
