// What is stored for a key, now: of the states of nodes, and of a learner's rows. The URL has the question, so that it can
// be sent to somebody.
import type { JSX } from "preact";
import { learnersOf } from "../live/learners";
import { live } from "../live/live";
import { usePlan } from "../live/plan";
import { usePolled } from "../live/polled";
import { go, href, route } from "../live/route";
import { useStore } from "../live/store";
import type { ModelRow, StateAnswer } from "../api/types";
import { Json } from "../parts/json";
import { Missing, Notice } from "../parts/notice";
import { Section } from "../parts/section";
import { Value } from "../parts/value";

const KEYS_MAX = 100;

function formOf(event: Event): Record<string, string> {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    return Object.fromEntries([...data].map(([name, value]) => [name, String(value)]));
}

/* One key a line, or at commas; a key of several columns is a JSON array, and is left whole. */
export function keysOf(text: string): string[] {
    const parts = text.split("\n").flatMap((line) => (line.trim().startsWith("[") ? [line] : line.split(",")));
    return parts.map((part) => part.trim()).filter((part) => part !== "");
}

/* Which nodes have state; where no plan is, those that report entries. */
function useStates(): string[] {
    const plan = usePlan();
    const figures = useStore(live, (now) => now.figures);
    if (plan.is === "here") return plan.value.nodes.filter((node) => node.has_state).map((node) => node.part);
    return figures?.nodes.filter((node) => "state_entries" in node.report.run).map((node) => node.part) ?? [];
}

function written(value: unknown): string {
    return typeof value === "string" ? value : JSON.stringify(value);
}

function StateResult({ part, keys, turn }: { part: string; keys: string[]; turn: string }): JSX.Element {
    const answer = usePolled<StateAnswer>(`state/${encodeURIComponent(part)}`, 0, turn, { key: keys });
    if (answer.is !== "here") return <Missing answer={answer} what="The state" />;
    const { columns, micro_batch, keys: found } = answer.value;
    return (
        <>
            <p class="muted">
                As of micro-batch <Value k="state.micro_batch" v={micro_batch} />, by{" "}
                <bdi class="code">{columns.join(", ")}</bdi>.
            </p>
            {found.map((one, i) => (
                <article
                    class="found"
                    key={i}
                    data-key={`state.keys[${i}].state`}
                    data-value={JSON.stringify(one.state)}>
                    <h3 class="code">
                        <bdi>
                            {one.key.map((value, k) => `${columns[k] ?? "key"} = ${written(value)}`).join(", ")}
                        </bdi>
                    </h3>
                    {one.state === null ? (
                        <p class="muted">Nothing is stored for this key.</p>
                    ) : (
                        <Json value={one.state} path={`state.keys[${i}].state`} />
                    )}
                </article>
            ))}
        </>
    );
}

function StateForm({ states }: { states: string[] }): JSX.Element {
    const { query } = useStore(route, (now) => now);
    const part = query.get("of") ?? states[0] ?? "";
    const text = query.get("key") ?? "";
    const keys = keysOf(text).slice(0, KEYS_MAX);
    const ask = (event: Event) => {
        const { of = "", key = "" } = formOf(event);
        go(href({ view: "state", query: { of, key, at: String(Date.now()) } }));
    };
    return (
        <>
            <form class="ask" onSubmit={ask} key={part + "\n" + text}>
                <label>
                    State
                    <select name="of">
                        {states.map((one) => (
                            <option key={one} value={one} selected={one === part}>
                                {one}
                            </option>
                        ))}
                    </select>
                </label>
                <label class="grow">
                    Keys, up to {KEYS_MAX}, one a line
                    <textarea
                        name="key"
                        rows={2}
                        spellcheck={false}
                        placeholder={'42, or ["a", 3] for a key of two columns'}>
                        {text}
                    </textarea>
                </label>
                <button type="submit">Look up</button>
            </form>
            {keys.length > 0 && part !== "" ? (
                <StateResult part={part} keys={keys} turn={query.get("at") ?? ""} />
            ) : null}
        </>
    );
}

function ModelResult({
    learner,
    field,
    value,
    turn,
}: {
    learner: string;
    field: string;
    value: string;
    turn: string;
}): JSX.Element {
    const answer = usePolled<ModelRow>(`model/${encodeURIComponent(learner)}`, 0, turn, { field, value });
    if (answer.is !== "here") return <Missing answer={answer} what="The row" />;
    const { row, micro_batch } = answer.value;
    return (
        <article class="found" data-key="model.row" data-value={JSON.stringify(row)}>
            <p class="muted">
                As of micro-batch <Value k="model.micro_batch" v={micro_batch} />.
            </p>
            {row === null ? <p class="muted">The model has no row for it.</p> : <Json value={row} path="model.row" />}
        </article>
    );
}

function ModelForm(): JSX.Element {
    const { query } = useStore(route, (now) => now);
    const parts = useStore(live, (now) =>
        now.figures === null
            ? ""
            : learnersOf(now.figures)
                  .map((node) => node.part)
                  .join("\n"),
    );
    const learners = parts === "" ? [] : parts.split("\n");
    const learner = query.get("learner") ?? learners[0] ?? "";
    const field = query.get("field") ?? "";
    const value = query.get("value") ?? "";
    const ask = (event: Event) => go(href({ view: "state", query: { ...formOf(event), at: String(Date.now()) } }));
    if (learners.length === 0) return <Notice>This job has no learner.</Notice>;
    return (
        <>
            <form class="ask" onSubmit={ask} key={[learner, field, value].join("\n")}>
                <label>
                    Learner
                    <select name="learner">
                        {learners.map((one) => (
                            <option key={one} value={one} selected={one === learner}>
                                {one}
                            </option>
                        ))}
                    </select>
                </label>
                <label>
                    Field
                    <input name="field" value={field} required spellcheck={false} autocomplete="off" />
                </label>
                <label class="grow">
                    Value
                    <input name="value" value={value} spellcheck={false} autocomplete="off" />
                </label>
                <button type="submit">Look up</button>
            </form>
            {field !== "" ? (
                <ModelResult learner={learner} field={field} value={value} turn={query.get("at") ?? ""} />
            ) : null}
        </>
    );
}

export function State(): JSX.Element {
    const states = useStates();
    return (
        <>
            <Section title="State of a key">
                {states.length === 0 ? (
                    <Notice>No node of this job keeps state by key.</Notice>
                ) : (
                    <StateForm states={states} />
                )}
            </Section>
            <Section title="Row of a model">
                <ModelForm />
            </Section>
        </>
    );
}
