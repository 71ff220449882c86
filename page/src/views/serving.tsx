// The requests that `serve` beside this run answered, by what became of them, and whatever else the figures have of them.
import type { JSX } from "preact";
import { live } from "../live/live";
import { useStore } from "../live/store";
import type { Served } from "../api/types";
import { formatOf, share, whole, words } from "../parts/format";
import { Notice } from "../parts/notice";
import { Section } from "../parts/section";
import { Value } from "../parts/value";

/* Counts of outcomes are whole numbers without a unit in their name; latency, staleness and joins have one. */
const MEASURES = /(_ms|_seconds|_share|_p\d+)$|^(join|staleness|latency)/;

function Server({ served }: { served: Served }): JSX.Element {
    const at = `figures.serves[${served.name}]`;
    const rest = Object.entries(served).filter(([name]) => name !== "name" && name !== "requests");
    const outcomes = rest.filter(([name, value]) => typeof value === "number" && !MEASURES.test(name));
    const measures = rest.filter(([name]) => MEASURES.test(name));
    const requests = <Value k={`${at}.requests`} v={served.requests} unit="requests since the server began" />;
    return (
        <Section title={served.name} aside={requests}>
            <table class="outcomes">
                <thead>
                    <tr>
                        <th scope="col">outcome</th>
                        <th scope="col">requests</th>
                        <th scope="col">share</th>
                        <th />
                    </tr>
                </thead>
                <tbody>
                    {outcomes.map(([name, value]) => {
                        const part = served.requests > 0 && typeof value === "number" ? value / served.requests : 0;
                        return (
                            <tr key={name} class={value === 0 ? "zero" : ""}>
                                <th scope="row">{words(name)}</th>
                                <td>
                                    <Value k={`${at}.${name}`} v={value} as={whole} />
                                </td>
                                <td>
                                    <Value k={`derived.share[${served.name}].${name}`} v={part} as={share} />
                                </td>
                                <td class="bar-cell" aria-hidden="true">
                                    <span class="bar-of" style={{ transform: `scaleX(${Math.min(part, 1)})` }} />
                                </td>
                            </tr>
                        );
                    })}
                </tbody>
            </table>
            {measures.length > 0 ? (
                <dl class="facts wide">
                    {measures.map(([name, value]) => (
                        <div class="fact" key={name}>
                            <dt>{words(name)}</dt>
                            <dd>
                                <Value k={`${at}.${name}`} v={value} as={formatOf(name)} />
                            </dd>
                        </div>
                    ))}
                </dl>
            ) : (
                <p class="muted">
                    Latency by phase, staleness and joins of its requests are in the metrics of{" "}
                    <code>leat serve</code>: <code>/metrics</code> there.
                </p>
            )}
        </Section>
    );
}

export function Serving(): JSX.Element {
    const serves = useStore(live, (now) => now.figures?.serves);
    if (serves === undefined) return <Notice icon="waiting">The figures of the run are awaited …</Notice>;
    if (serves.length === 0)
        return (
            <Notice>
                No <code>leat serve</code> of this job has been seen beside this run.
            </Notice>
        );
    return (
        <>
            {serves.map((served) => (
                <Server key={served.name} served={served} />
            ))}
        </>
    );
}
