// A value of JSON as nested lists of text. What is long or deep is cut, and says so.
import type { JSX } from "preact";
import { cut, whole } from "./format";

const ENTRIES_MAX = 200;
const DEPTH_MAX = 12;
const TEXT_MAX = 4096;

function Leaf({ value, path }: { value: unknown; path: string }): JSX.Element {
    const text =
        typeof value === "number" ? String(value) : typeof value === "string" ? cut(value, TEXT_MAX) : String(value);
    return (
        <span class={"json-" + typeof value} data-key={path} data-value={String(value)}>
            <bdi>{text}</bdi>
        </span>
    );
}

export function Json({ value, path, depth = 0 }: { value: unknown; path: string; depth?: number }): JSX.Element {
    if (typeof value !== "object" || value === null) return <Leaf value={value} path={path} />;
    const entries = Object.entries(value);
    if (entries.length === 0) return <span class="muted">{Array.isArray(value) ? "empty list" : "empty"}</span>;
    if (depth >= DEPTH_MAX) return <span class="muted">… deeper</span>;
    return (
        <dl class="json">
            {entries.slice(0, ENTRIES_MAX).map(([name, one]) => (
                <div key={name}>
                    <dt>
                        <bdi>{cut(name, 200)}</bdi>
                    </dt>
                    <dd>
                        <Json value={one} path={`${path}.${name}`} depth={depth + 1} />
                    </dd>
                </div>
            ))}
            {entries.length > ENTRIES_MAX ? (
                <p class="muted">and {whole(entries.length - ENTRIES_MAX)} more</p>
            ) : null}
        </dl>
    );
}
