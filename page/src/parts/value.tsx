// A figure as people read it, with what machines compare: data-key names it, data-value is the API's own value.
import type { JSX } from "preact";
import { UNKNOWN, whole, type Format } from "./format";

interface ValueProps {
    k: string; // where it is in the API: "figures.records_life"
    v: number | string | boolean | null | undefined;
    as?: Format;
    unit?: string;
    what?: string; // in the title, before the full value
}

export function Value({ k, v, as = whole, unit, what }: ValueProps): JSX.Element {
    const isKnown = v !== null && v !== undefined;
    const text = !isKnown ? UNKNOWN : typeof v === "number" ? as(v) : String(v);
    const full = isKnown ? `${v}${unit ? " " + unit : ""}` : "not known";
    return (
        <span
            class={isKnown ? "value" : "value unknown"}
            data-key={k}
            data-value={isKnown ? String(v) : "null"}
            title={what ? `${what}: ${full}` : full}>
            {text}
            {unit && isKnown ? <span class="unit">{"\u202f" + unit}</span> : null}
        </span>
    );
}

interface FactProps extends ValueProps {
    name: string;
}

/* A line of a list of definitions: name and figure. */
export function Fact({ name, ...value }: FactProps): JSX.Element {
    return (
        <div class="fact">
            <dt>{name}</dt>
            <dd>
                <Value {...value} />
            </dd>
        </div>
    );
}
