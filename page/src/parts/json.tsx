// A value of JSON as nested lists of text; lists of flat objects as tables. What is long or deep is cut, and says so.
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

const COLUMNS_MAX = 12;

/* The members of a list of flat objects, all together; null: it is no such list. */
export function columnsOf(value: unknown): string[] | null {
    if (!Array.isArray(value) || value.length === 0) return null;
    const names = new Set<string>();
    for (const one of value) {
        if (typeof one !== "object" || one === null || Array.isArray(one)) return null;
        for (const [name, leaf] of Object.entries(one)) {
            if (typeof leaf === "object" && leaf !== null) return null;
            names.add(name);
        }
    }
    return names.size > 0 && names.size <= COLUMNS_MAX ? [...names] : null;
}

function Table({ rows, columns, path }: { rows: unknown[]; columns: string[]; path: string }): JSX.Element {
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label={path}>
            <table class="json-table">
                <thead>
                    <tr>
                        {columns.map((name) => (
                            <th key={name} scope="col">
                                <bdi>{cut(name, 60)}</bdi>
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.slice(0, ENTRIES_MAX).map((row, i) => (
                        <tr key={i}>
                            {columns.map((name) => {
                                const leaf = (row as Record<string, unknown>)[name];
                                return (
                                    <td key={name}>
                                        {leaf === undefined ? null : (
                                            <Leaf value={leaf} path={`${path}.${i}.${name}`} />
                                        )}
                                    </td>
                                );
                            })}
                        </tr>
                    ))}
                </tbody>
            </table>
            {rows.length > ENTRIES_MAX ? <p class="muted">and {whole(rows.length - ENTRIES_MAX)} more</p> : null}
        </div>
    );
}

export function Json({ value, path, depth = 0 }: { value: unknown; path: string; depth?: number }): JSX.Element {
    if (typeof value !== "object" || value === null) return <Leaf value={value} path={path} />;
    const entries = Object.entries(value);
    if (entries.length === 0) return <span class="muted">{Array.isArray(value) ? "empty list" : "empty"}</span>;
    const columns = columnsOf(value);
    if (columns !== null) return <Table rows={value as unknown[]} columns={columns} path={path} />;
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
